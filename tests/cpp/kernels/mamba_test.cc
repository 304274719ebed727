// Mamba-2 of every ISA against a recurrence in double precision.
#include "kernels/mamba.h"

#include <algorithm>
#include <cmath>

#include "kernels/recurrent_slices.h"
#include "kernels/reference_mamba.h"
#include "kernels/test_util.h"
#include "support/check.h"

namespace mlc_native::kernels {
namespace {

// The sizes of a real model with few heads, sizes that no vector divides, and heads that share keys
// and queries in several groups.
constexpr DeltaShape kShapes[] = {
    {.key_heads = 1, .value_heads = 4, .key_dim = 128, .value_dim = 64, .conv_width = 4},
    {.key_heads = 2, .value_heads = 6, .key_dim = 24, .value_dim = 40, .conv_width = 4},
    {.key_heads = 3, .value_heads = 3, .key_dim = 7, .value_dim = 33, .conv_width = 2},
    {.key_heads = 1, .value_heads = 5, .key_dim = 1, .value_dim = 1, .conv_width = 8},
};

using reference::MambaInputs;

class MambaTest : public KernelTest {
 protected:
  MambaInputs MakeInputs(const DeltaShape& shape, int64_t rows) { return {shape, rows, random_}; }

  void Call(const MambaInputs& in, std::span<const DeltaSequence> sequences, int threads,
            Poisoned* out) {
    const AlignedBuffer workspace(DeltaWorkspaceBytes(threads, in.shape));
    Floats keys(static_cast<size_t>(in.rows * 2 * in.shape.keys()), NAN);
    Mamba(Threads(threads), {.shape = in.shape,
                             .inputs = in.inputs.data(),
                             .ld_inputs = in.width(),
                             .convolution = in.convolution.data(),
                             .conv_bias = in.conv_bias.empty() ? nullptr : in.conv_bias.data(),
                             .decay = in.decay.data(),
                             .step_bias = in.step_bias.data(),
                             .shortest_step = in.shortest_step,
                             .longest_step = in.longest_step,
                             .skip = in.skip.data(),
                             .norm = in.norm.empty() ? nullptr : in.norm.data(),
                             .norm_eps = in.norm_eps,
                             .keys = keys.data(),
                             .out = out->data.data(),
                             .ldo = out->ld,
                             .sequences = sequences.data(),
                             .num_sequences = std::ssize(sequences),
                             .workspace = workspace.data()});
  }

  // A sequence fed in slices of these lengths, which read and write states in turn.
  Floats Run(const MambaInputs& in, const std::vector<int64_t>& slices, int threads) {
    Poisoned out(in.rows, in.shape.values(), 5);
    const int64_t rows = RunInSlices(
        slices, DeltaStateFloats(in.shape),
        [&](const DeltaSequence& sequence) { Call(in, {&sequence, 1}, threads, &out); });
    MLC_CHECK(rows == in.rows);
    out.ExpectPaddingUntouched();
    return out.Dense();
  }
};

TEST_P(MambaTest, MatchesTheRecurrence) {
  for (const DeltaShape& shape : kShapes) {
    const MambaInputs in = MakeInputs(shape, 70);
    ExpectClose(Run(in, {in.rows}, 2), reference::Mamba(in), 2e-4);
  }
}

TEST_P(MambaTest, StepsHaveLimitsAndConvolutionsMayLackABias) {
  MambaInputs in = MakeInputs(kShapes[1], 40);
  in.conv_bias.clear();
  in.shortest_step = 0.04f;
  in.longest_step = 0.06f;
  ExpectClose(Run(in, {in.rows}, 1), reference::Mamba(in), 2e-4);
}

TEST_P(MambaTest, HeadsMayLackANorm) {
  MambaInputs in = MakeInputs(kShapes[1], 40);
  in.norm.clear();
  ExpectClose(Run(in, {in.rows}, 2), reference::Mamba(in), 2e-4);
}

TEST_P(MambaTest, BitsDoNotDependOnSlicesAndThreads) {
  for (const DeltaShape& shape : kShapes) {
    const MambaInputs in = MakeInputs(shape, 70);
    const Floats whole = Run(in, {70}, 1);
    for (const auto& slices : std::vector<std::vector<int64_t>>{
             {1, 69}, {16, 16, 38}, {2, 1, 1, 66}, {37, 33}, std::vector<int64_t>(70, 1)}) {
      EXPECT_EQ(Run(in, slices, 3), whole) << slices.size() << " slices";
    }
  }
}

// States within a slice are those that slices up to there leave, and go on as these do.
TEST_P(MambaTest, LeavesStatesWithinASlice) {
  const DeltaShape& shape = kShapes[1];
  const MambaInputs in = MakeInputs(shape, 40);
  const int64_t floats = DeltaStateFloats(shape);
  std::vector<Floats> states(3, Floats(static_cast<size_t>(floats), NAN));
  const DeltaWrite writes[] = {
      {1, states[0].data()}, {19, states[1].data()}, {40, states[2].data()}};
  const DeltaSequence sequence{.num_rows = 40, .writes = writes, .num_writes = 3};
  Poisoned out(40, shape.values(), 0);
  Call(in, {&sequence, 1}, 2, &out);
  EXPECT_EQ(out.Dense(), Run(in, {40}, 1));
  for (const DeltaWrite& written : writes) {
    Floats alone(static_cast<size_t>(floats), NAN);
    const DeltaWrite write{written.num_rows, alone.data()};
    const DeltaSequence part{.num_rows = write.num_rows, .writes = &write, .num_writes = 1};
    Poisoned rows(40, shape.values(), 0);
    Call(in.WithRowsAlone(0, write.num_rows), {&part, 1}, 1, &rows);
    const int64_t used = (shape.conv_width - 1) * shape.channels(), at = DeltaHeadsAt(shape);
    EXPECT_TRUE(SameBits(alone.data(), written.state, used)) << write.num_rows;
    EXPECT_TRUE(SameBits(&alone[static_cast<size_t>(at)], written.state + at, floats - at))
        << write.num_rows;
  }
}

// Sequences of a batch have what they have alone, and a call may be repeated.
TEST_P(MambaTest, SequencesAreIndependent) {
  const DeltaShape& shape = kShapes[1];
  const MambaInputs in = MakeInputs(shape, 30);
  std::vector<Floats> states(3, Floats(static_cast<size_t>(DeltaStateFloats(shape)), NAN));
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
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(SameBits(first[i].data(), states[i].data(), DeltaHeadsAt(shape) - 15)) << i;
    const DeltaSequence& sequence = sequences[i];
    Call(in.WithRowsAlone(sequence.row_begin, sequence.num_rows), {&sequence, 1}, 1, &alone);
  }
  EXPECT_EQ(together.Dense(), alone.Dense());
}

TEST_P(MambaTest, RefusesWhatCannotBeRepeated) {
  const DeltaShape& shape = kShapes[1];
  const MambaInputs in = MakeInputs(shape, 4);
  Floats state(static_cast<size_t>(DeltaStateFloats(shape)));
  Poisoned out(4, shape.values(), 0);
  const auto call = [&](const DeltaWrite& write, const float* from) {
    const DeltaSequence sequence{.num_rows = 4, .state = from, .writes = &write, .num_writes = 1};
    Call(in, {&sequence, 1}, 1, &out);
  };
  EXPECT_THROW(call({3, state.data()}, nullptr), InternalError);
  EXPECT_THROW(call({4, state.data()}, state.data()), InternalError);
}

INSTANTIATE_TEST_SUITE_P(Isas, MambaTest, ::testing::ValuesIn(IsaNames()),
                         [](const auto& isa) { return isa.param; });

}  // namespace
}  // namespace mlc_native::kernels
