// Mamba-1 of every ISA against a recurrence in double precision.
#include <algorithm>
#include <cmath>

#include "kernels/recurrent_slices.h"
#include "kernels/reference_scan.h"
#include "kernels/selective_scan.h"
#include "kernels/test_util.h"
#include "support/check.h"

namespace mlc_native::kernels {
namespace {

// The states of a real model with few channels, sizes that no vector divides, and the least ones.
constexpr ScanShape kScanShapes[] = {
    {.channels = 96, .state_dim = 16, .conv_width = 4},
    {.channels = 43, .state_dim = 7, .conv_width = 3},
    {.channels = 1, .state_dim = 1, .conv_width = 2},
    {.channels = 65, .state_dim = 2, .conv_width = 8},
};

using reference::ScanInputs;

class ScanTest : public KernelTest {
 protected:
  ScanInputs MakeInputs(const ScanShape& shape, int64_t rows) { return {shape, rows, random_}; }

  void Call(const ScanInputs& in, std::span<const DeltaSequence> sequences, int threads,
            Poisoned* out) {
    const AlignedBuffer workspace(ScanWorkspaceBytes(threads, in.shape));
    Poisoned convolved(in.rows, in.shape.channels, 3);
    const ScanArgs args{.shape = in.shape,
                        .inputs = in.inputs.data(),
                        .ld_inputs = 2 * in.shape.channels,
                        .convolution = in.convolution.data(),
                        .conv_bias = in.conv_bias.empty() ? nullptr : in.conv_bias.data(),
                        .convolved = convolved.data.data(),
                        .ld_convolved = convolved.ld,
                        .steps = in.steps.data(),
                        .ld_steps = in.shape.channels,
                        .keys = in.keys.data(),
                        .ld_keys = 2 * in.shape.state_dim,
                        .decay = in.decay.data(),
                        .step_bias = in.step_bias.data(),
                        .skip = in.skip.data(),
                        .out = out->data.data(),
                        .ldo = out->ld,
                        .sequences = sequences.data(),
                        .num_sequences = std::ssize(sequences),
                        .workspace = workspace.data()};
    ScanConvolution(Threads(threads), args);
    SelectiveScan(Threads(threads), args);
    convolved.ExpectPaddingUntouched();
  }

  // A sequence fed in slices of these lengths, which read and write states in turn.
  Floats Run(const ScanInputs& in, const std::vector<int64_t>& slices, int threads) {
    Poisoned out(in.rows, in.shape.channels, 5);
    const int64_t rows = RunInSlices(
        slices, ScanStateFloats(in.shape),
        [&](const DeltaSequence& sequence) { Call(in, {&sequence, 1}, threads, &out); });
    MLC_CHECK(rows == in.rows);
    out.ExpectPaddingUntouched();
    return out.Dense();
  }
};

TEST_P(ScanTest, MatchesTheRecurrence) {
  for (const ScanShape& shape : kScanShapes) {
    const ScanInputs in = MakeInputs(shape, 70);
    ExpectClose(Run(in, {in.rows}, 2), reference::Scan(in), 2e-4);
  }
}

TEST_P(ScanTest, ConvolutionsMayLackABias) {
  ScanInputs in = MakeInputs(kScanShapes[1], 40);
  in.conv_bias.clear();
  ExpectClose(Run(in, {in.rows}, 1), reference::Scan(in), 2e-4);
}

TEST_P(ScanTest, StatesThatDecayAtOnceAreForgotten) {
  ScanInputs in = MakeInputs(kScanShapes[1], 40);
  std::ranges::fill(in.decay, 12.0f);
  ExpectClose(Run(in, {in.rows}, 1), reference::Scan(in), 2e-4);
}

TEST_P(ScanTest, BitsDoNotDependOnSlicesAndThreads) {
  for (const ScanShape& shape : kScanShapes) {
    const ScanInputs in = MakeInputs(shape, 70);
    const Floats whole = Run(in, {70}, 1);
    for (const auto& slices : std::vector<std::vector<int64_t>>{
             {1, 69}, {16, 16, 38}, {2, 1, 1, 66}, {37, 33}, std::vector<int64_t>(70, 1)}) {
      EXPECT_EQ(Run(in, slices, 3), whole) << slices.size() << " slices";
    }
  }
}

// States within a slice are those that slices up to there leave, and go on as these do.
TEST_P(ScanTest, LeavesStatesWithinASlice) {
  const ScanShape& shape = kScanShapes[1];
  const ScanInputs in = MakeInputs(shape, 40);
  const int64_t floats = ScanStateFloats(shape);
  std::vector<Floats> states(3, Floats(static_cast<size_t>(floats), NAN));
  const DeltaWrite writes[] = {
      {1, states[0].data()}, {19, states[1].data()}, {40, states[2].data()}};
  const DeltaSequence sequence{.num_rows = 40, .writes = writes, .num_writes = 3};
  Poisoned out(40, shape.channels, 0);
  Call(in, {&sequence, 1}, 2, &out);
  EXPECT_EQ(out.Dense(), Run(in, {40}, 1));
  for (const DeltaWrite& written : writes) {
    Floats alone(static_cast<size_t>(floats), NAN);
    const DeltaWrite write{written.num_rows, alone.data()};
    const DeltaSequence part{.num_rows = write.num_rows, .writes = &write, .num_writes = 1};
    Poisoned rows(40, shape.channels, 0);
    Call(in.WithRowsAlone(0, write.num_rows), {&part, 1}, 1, &rows);
    const int64_t used = (shape.conv_width - 1) * shape.channels, at = ScanBlocksAt(shape);
    EXPECT_TRUE(SameBits(alone.data(), written.state, used)) << write.num_rows;
    EXPECT_TRUE(SameBits(&alone[static_cast<size_t>(at)], written.state + at, floats - at))
        << write.num_rows;
  }
}

// Sequences of a batch have what they have alone, and a call may be repeated.
TEST_P(ScanTest, SequencesAreIndependent) {
  const ScanShape& shape = kScanShapes[1];
  const ScanInputs in = MakeInputs(shape, 30);
  std::vector<Floats> states(3, Floats(static_cast<size_t>(ScanStateFloats(shape)), NAN));
  const DeltaWrite writes[] = {
      {5, states[0].data()}, {24, states[1].data()}, {1, states[2].data()}};
  const DeltaSequence sequences[] = {
      {.row_begin = 0, .num_rows = 5, .writes = &writes[0], .num_writes = 1},
      {.row_begin = 5, .num_rows = 24, .writes = &writes[1], .num_writes = 1},
      {.row_begin = 29, .num_rows = 1, .writes = &writes[2], .num_writes = 1}};
  Poisoned together(30, shape.channels, 0), alone(30, shape.channels, 0);
  Call(in, sequences, 3, &together);
  const std::vector<Floats> first = states;
  Call(in, sequences, 2, &together);
  const int64_t at = ScanBlocksAt(shape);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(SameBits(&first[i][static_cast<size_t>(at)], &states[i][static_cast<size_t>(at)],
                         ScanStateFloats(shape) - at))
        << i;
    const DeltaSequence& sequence = sequences[i];
    Call(in.WithRowsAlone(sequence.row_begin, sequence.num_rows), {&sequence, 1}, 1, &alone);
  }
  EXPECT_EQ(together.Dense(), alone.Dense());
}

TEST_P(ScanTest, RefusesWhatCannotBeRepeated) {
  const ScanShape& shape = kScanShapes[1];
  const ScanInputs in = MakeInputs(shape, 4);
  Floats state(static_cast<size_t>(ScanStateFloats(shape)));
  Poisoned out(4, shape.channels, 0);
  const auto call = [&](const DeltaWrite& write, const float* from) {
    const DeltaSequence sequence{.num_rows = 4, .state = from, .writes = &write, .num_writes = 1};
    Call(in, {&sequence, 1}, 1, &out);
  };
  EXPECT_THROW(call({3, state.data()}, nullptr), InternalError);
  EXPECT_THROW(call({4, state.data()}, state.data()), InternalError);
}

INSTANTIATE_TEST_SUITE_P(Isas, ScanTest, ::testing::ValuesIn(IsaNames()),
                         [](const auto& isa) { return isa.param; });

}  // namespace
}  // namespace mlc_native::kernels
