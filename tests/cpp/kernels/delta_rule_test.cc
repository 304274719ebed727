// The gated delta rule of every ISA against a recurrence in double precision.
#include "kernels/delta_rule.h"

#include <algorithm>
#include <cmath>

#include "kernels/test_util.h"
#include "support/check.h"

namespace mlc_native::kernels {
namespace {

// A head with one value per dimension of everything: the sizes of real models, sizes that no vector
// divides, and heads that share queries and keys.
constexpr DeltaShape kShapes[] = {
    {.key_heads = 2, .value_heads = 2, .key_dim = 128, .value_dim = 128, .conv_width = 4},
    {.key_heads = 2, .value_heads = 6, .key_dim = 24, .value_dim = 40, .conv_width = 4},
    {.key_heads = 1, .value_heads = 3, .key_dim = 7, .value_dim = 33, .conv_width = 2},
    {.key_heads = 3, .value_heads = 3, .key_dim = 1, .value_dim = 1, .conv_width = 8},
};

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

class DeltaRuleTest : public KernelTest {
 protected:
  // The inputs of a batch, and what all sequences have in common.
  struct Inputs {
    DeltaShape shape;
    int64_t rows = 0;
    Floats inputs, gates, convolution, decay, bias, norm;

    int64_t width() const { return shape.channels() + shape.values(); }
  };

  Inputs MakeInputs(const DeltaShape& shape, int64_t rows) {
    Inputs in;
    in.shape = shape;
    in.rows = rows;
    in.inputs = Random(rows * in.width());
    in.gates = Random(rows * 2 * shape.value_heads, 2);
    in.convolution = Random(shape.conv_width * shape.channels());
    in.decay = Random(shape.value_heads);
    in.bias = Random(shape.value_heads);
    for (float& bias : in.bias) bias -= 3;  // forgets slowly, so that early rows count
    in.norm = Random(shape.value_dim);
    return in;
  }

  // A sequence fed in slices of these lengths, which read and write states in turn.
  Floats Run(const Inputs& in, const std::vector<int64_t>& slices, int threads) {
    const DeltaShape& shape = in.shape;
    Poisoned out(in.rows, shape.values(), 5);
    Floats states[2] = {Floats(DeltaStateFloats(shape), NAN), Floats(DeltaStateFloats(shape), NAN)};
    int64_t row = 0;
    for (size_t i = 0; i < slices.size(); ++i) {
      const DeltaWrite write{slices[i], states[i % 2].data()};
      const DeltaSequence sequence{.row_begin = row,
                                   .num_rows = slices[i],
                                   .state = i == 0 ? nullptr : states[(i + 1) % 2].data(),
                                   .writes = &write,
                                   .num_writes = 1};
      Call(in, {&sequence, 1}, threads, &out);
      row += slices[i];
    }
    MLC_CHECK(row == in.rows);
    out.ExpectPaddingUntouched();
    return out.Dense();
  }

  void Call(const Inputs& in, std::span<const DeltaSequence> sequences, int threads,
            Poisoned* out) {
    const AlignedBuffer workspace(DeltaWorkspaceBytes(threads, in.shape));
    DeltaRule(Threads(threads), {.shape = in.shape,
                                 .inputs = in.inputs.data(),
                                 .ld_inputs = in.width(),
                                 .gates = in.gates.data(),
                                 .ld_gates = 2 * in.shape.value_heads,
                                 .convolution = in.convolution.data(),
                                 .decay = in.decay.data(),
                                 .decay_bias = in.bias.data(),
                                 .norm = in.norm.data(),
                                 .norm_eps = 1e-5f,
                                 .out = out->data.data(),
                                 .ldo = out->ld,
                                 .sequences = sequences.data(),
                                 .num_sequences = std::ssize(sequences),
                                 .workspace = workspace.data()});
  }

  // silu of the convolution of a channel at a row of a sequence that begins at row 0.
  static double Convolved(const Inputs& in, int64_t row, int64_t channel) {
    double sum = 0;
    for (int64_t i = 0; i < in.shape.conv_width; ++i) {
      const int64_t from = row - (in.shape.conv_width - 1) + i;
      if (from < 0) continue;
      sum += static_cast<double>(in.convolution[i * in.shape.channels() + channel]) *
             in.inputs[from * in.width() + channel];
    }
    return sum * Sigmoid(sum);
  }

  static std::vector<double> Head(const Inputs& in, int64_t row, int64_t first, int64_t dim,
                                  double length) {
    std::vector<double> x(dim);
    double squares = 1e-6;
    for (int64_t i = 0; i < dim; ++i) {
      x[i] = Convolved(in, row, first + i);
      squares += x[i] * x[i];
    }
    for (double& value : x) value *= length == 0 ? 1 : length / std::sqrt(squares);
    return x;
  }

  static void ReferenceHead(const Inputs& in, int64_t head, reference::Matrix* out) {
    const DeltaShape& s = in.shape;
    const int64_t key = head / (s.value_heads / s.key_heads) * s.key_dim;
    std::vector<double> state(s.key_dim * s.value_dim);
    for (int64_t row = 0; row < in.rows; ++row) {
      const auto q = Head(in, row, key, s.key_dim, 1 / std::sqrt(static_cast<double>(s.key_dim)));
      const auto k = Head(in, row, s.keys() + key, s.key_dim, 1);
      const auto v = Head(in, row, 2 * s.keys() + head * s.value_dim, s.value_dim, 0);
      const float* const gates = &in.gates[row * 2 * s.value_heads];
      const double a = static_cast<double>(gates[s.value_heads + head]) + in.bias[head];
      const double decay = std::exp(-std::exp(in.decay[head]) * std::log1p(std::exp(a)));
      const double beta = Sigmoid(gates[head]);
      std::vector<double> o(s.value_dim);
      double squares = 0;
      for (int64_t j = 0; j < s.value_dim; ++j) {
        double recalled = 0;
        for (int64_t i = 0; i < s.key_dim; ++i) recalled += state[i * s.value_dim + j] * k[i];
        const double written = beta * (v[j] - decay * recalled);
        for (int64_t i = 0; i < s.key_dim; ++i) {
          double& cell = state[i * s.value_dim + j];
          cell = decay * cell + k[i] * written;
          o[j] += cell * q[i];
        }
        squares += o[j] * o[j];
      }
      const double scale = 1 / std::sqrt(squares / static_cast<double>(s.value_dim) + 1e-5);
      for (int64_t j = 0; j < s.value_dim; ++j) {
        const double z = in.inputs[row * in.width() + s.channels() + head * s.value_dim + j];
        (*out)[row * s.values() + head * s.value_dim + j] =
            o[j] * scale * in.norm[j] * z * Sigmoid(z);
      }
    }
  }
};

TEST_P(DeltaRuleTest, MatchesTheRecurrence) {
  for (const DeltaShape& shape : kShapes) {
    const Inputs in = MakeInputs(shape, 70);
    reference::Matrix want(in.rows * shape.values());
    for (int64_t head = 0; head < shape.value_heads; ++head) ReferenceHead(in, head, &want);
    ExpectClose(Run(in, {in.rows}, 2), want, 2e-4);
  }
}

TEST_P(DeltaRuleTest, BitsDoNotDependOnSlicesAndThreads) {
  for (const DeltaShape& shape : kShapes) {
    const Inputs in = MakeInputs(shape, 70);
    const Floats whole = Run(in, {70}, 1);
    for (const auto& slices : std::vector<std::vector<int64_t>>{
             {1, 69}, {16, 16, 38}, {2, 1, 1, 66}, {37, 33}, std::vector<int64_t>(70, 1)}) {
      EXPECT_EQ(Run(in, slices, 3), whole) << slices.size() << " slices";
    }
  }
}

// States within a slice are those that slices up to there leave, and go on as these do.
TEST_P(DeltaRuleTest, LeavesStatesWithinASlice) {
  const DeltaShape& shape = kShapes[1];
  const Inputs in = MakeInputs(shape, 40);
  const int64_t floats = DeltaStateFloats(shape);
  std::vector<Floats> states(3, Floats(floats, NAN));
  const DeltaWrite writes[] = {
      {1, states[0].data()}, {19, states[1].data()}, {40, states[2].data()}};
  const DeltaSequence sequence{.num_rows = 40, .writes = writes, .num_writes = 3};
  Poisoned out(40, shape.values(), 0);
  Call(in, {&sequence, 1}, 2, &out);
  EXPECT_EQ(out.Dense(), Run(in, {40}, 1));
  for (int i = 0; i < 3; ++i) {
    Floats alone(floats, NAN);
    const DeltaWrite write{writes[i].num_rows, alone.data()};
    const DeltaSequence part{.num_rows = write.num_rows, .writes = &write, .num_writes = 1};
    Poisoned rows(40, shape.values(), 0);
    Call(in, {&part, 1}, 1, &rows);
    const int64_t used = (shape.conv_width - 1) * shape.channels(), at = DeltaHeadsAt(shape);
    EXPECT_TRUE(SameBits(alone.data(), states[i].data(), used)) << i;
    EXPECT_TRUE(SameBits(&alone[at], &states[i][at], floats - at)) << i;
  }
}

// Sequences of a batch have what they have alone, and a call may be repeated.
TEST_P(DeltaRuleTest, SequencesAreIndependent) {
  const DeltaShape& shape = kShapes[1];
  const Inputs in = MakeInputs(shape, 30);
  std::vector<Floats> states(3, Floats(DeltaStateFloats(shape), NAN));
  const DeltaWrite writes[] = {
      {5, states[0].data()}, {24, states[1].data()}, {1, states[2].data()}};
  const DeltaSequence sequences[] = {
      {.row_begin = 0, .num_rows = 5, .writes = &writes[0], .num_writes = 1},
      {.row_begin = 5, .num_rows = 24, .writes = &writes[1], .num_writes = 1},
      {.row_begin = 29, .num_rows = 1, .writes = &writes[2], .num_writes = 1}};
  Poisoned together(30, shape.values(), 0), alone(30, shape.values(), 0);
  Call(in, sequences, 3, &together);
  const std::vector<Floats> first = states;
  Call(in, sequences, 2, &together);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(SameBits(first[i].data(), states[i].data(), DeltaHeadsAt(shape) - 15)) << i;
    Call(in, {&sequences[i], 1}, 1, &alone);
  }
  EXPECT_EQ(together.Dense(), alone.Dense());
}

TEST_P(DeltaRuleTest, RefusesWhatCannotBeRepeated) {
  const DeltaShape& shape = kShapes[1];
  const Inputs in = MakeInputs(shape, 4);
  Floats state(DeltaStateFloats(shape));
  Poisoned out(4, shape.values(), 0);
  const auto call = [&](const DeltaWrite& write, const float* from) {
    const DeltaSequence sequence{.num_rows = 4, .state = from, .writes = &write, .num_writes = 1};
    Call(in, {&sequence, 1}, 1, &out);
  };
  EXPECT_THROW(call({3, state.data()}, nullptr), InternalError);
  EXPECT_THROW(call({4, state.data()}, state.data()), InternalError);
}

INSTANTIATE_TEST_SUITE_P(Isas, DeltaRuleTest, ::testing::ValuesIn(IsaNames()),
                         [](const auto& isa) { return isa.param; });

}  // namespace
}  // namespace mlc_native::kernels
