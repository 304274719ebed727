// The gated delta rule of every ISA against a recurrence in double precision.
#include "kernels/delta_rule.h"

#include <algorithm>
#include <cmath>

#include "kernels/recurrent_slices.h"
#include "kernels/reference_delta.h"
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
constexpr DeltaShape WithDecaysOfChannels(DeltaShape shape) {
  shape.decays_channels = true;
  return shape;
}
// Also where each channel of the keys has a decay of its own.
std::vector<DeltaShape> Shapes() {
  std::vector<DeltaShape> shapes(std::begin(kShapes), std::end(kShapes));
  for (const DeltaShape& shape : kShapes) shapes.push_back(WithDecaysOfChannels(shape));
  return shapes;
}
constexpr DeltaShape kUneven[] = {kShapes[1], WithDecaysOfChannels(kShapes[1])};

class DeltaRuleTest : public KernelTest {
 protected:
  using Inputs = reference::DeltaInputs;

  Inputs MakeInputs(const DeltaShape& shape, int64_t rows) { return {shape, rows, random_}; }

  // A sequence fed in slices of these lengths, which read and write states in turn.
  Floats Run(const Inputs& in, const std::vector<int64_t>& slices, int threads) {
    Poisoned out(in.rows, in.shape.values(), 5);
    const int64_t rows = RunInSlices(
        slices, DeltaStateFloats(in.shape),
        [&](const DeltaSequence& sequence) { Call(in, {&sequence, 1}, threads, &out); });
    MLC_CHECK(rows == in.rows);
    out.ExpectPaddingUntouched();
    return out.Dense();
  }

  void Call(const Inputs& in, std::span<const DeltaSequence> sequences, int threads,
            Poisoned* out) {
    const AlignedBuffer workspace(DeltaWorkspaceBytes(threads, in.shape));
    DeltaRule(Threads(threads), {.shape = in.shape,
                                 .inputs = in.inputs.data(),
                                 .ld_inputs = in.width(),
                                 .out_gates = in.inputs.data() + in.shape.channels(),
                                 .ld_out_gates = in.width(),
                                 .sigmoid_out_gates = in.shape.decays_channels,
                                 .gates = in.gates.data(),
                                 .ld_gates = in.shape.gates(),
                                 .channel_decays = in.channel_decays.data(),
                                 .ld_channel_decays = in.shape.decays(),
                                 .convolution = in.convolution.data(),
                                 .decay = in.decay.data(),
                                 .decay_bias = in.bias.data(),
                                 .beta_scale = static_cast<float>(in.beta_scale),
                                 .norm = in.norm.data(),
                                 .norm_eps = 1e-5f,
                                 .out = out->data.data(),
                                 .ldo = out->ld,
                                 .sequences = sequences.data(),
                                 .num_sequences = std::ssize(sequences),
                                 .workspace = workspace.data()});
  }
};

TEST_P(DeltaRuleTest, MatchesTheRecurrence) {
  for (const DeltaShape& shape : Shapes()) {
    Inputs in = MakeInputs(shape, 70);
    for (in.beta_scale = 1; in.beta_scale <= 2; ++in.beta_scale) {
      ExpectClose(Run(in, {in.rows}, 2), reference::DeltaRule(in), 2e-4);
    }
  }
}

TEST_P(DeltaRuleTest, BitsDoNotDependOnSlicesAndThreads) {
  for (const DeltaShape& shape : Shapes()) {
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
  for (const DeltaShape& shape : kUneven) {
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
}

// Sequences of a batch have what they have alone, and a call may be repeated.
TEST_P(DeltaRuleTest, SequencesAreIndependent) {
  for (const DeltaShape& shape : kUneven) {
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
      const DeltaSequence& sequence = sequences[i];
      Call(in.WithRowsAlone(sequence.row_begin, sequence.num_rows), {&sequence, 1}, 1, &alone);
    }
    EXPECT_EQ(together.Dense(), alone.Dense());
  }
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
