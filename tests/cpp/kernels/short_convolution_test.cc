// Short convolutions of every ISA against sums in double precision.
#include "kernels/short_convolution.h"

#include <cmath>

#include "kernels/recurrent_slices.h"
#include "kernels/reference_convolution.h"
#include "kernels/test_util.h"
#include "support/check.h"

namespace mlc_native::kernels {
namespace {

using reference::ConvolutionSizes;
using Inputs = reference::ConvolutionInputs;

// Those of a real model, some that no vector divides, and the widest one.
constexpr ConvolutionSizes kConvolutions[] = {{2048, 3}, {67, 4}, {5, 2}, {130, 8}};

class ShortConvolutionTest : public KernelTest {
 protected:
  Inputs MakeInputs(const ConvolutionSizes& sizes, int64_t rows) { return {sizes, rows, random_}; }

  static int64_t StateFloats(const Inputs& in) {
    return ConvolutionStateFloats(in.sizes.channels, in.sizes.width);
  }

  void Call(const Inputs& in, std::span<const DeltaSequence> sequences, int threads,
            Poisoned* out) {
    ShortConvolution(Threads(threads), {.channels = in.sizes.channels,
                                        .width = in.sizes.width,
                                        .inputs = in.inputs.data(),
                                        .ld_inputs = 3 * in.sizes.channels,
                                        .weights = in.weights.data(),
                                        .out = out->data.data(),
                                        .ldo = out->ld,
                                        .sequences = sequences.data(),
                                        .num_sequences = std::ssize(sequences)});
  }

  // A sequence fed in slices of these lengths, which read and write states in turn.
  Floats Run(const Inputs& in, const std::vector<int64_t>& slices, int threads) {
    Poisoned out(in.rows, in.sizes.channels, 5);
    const int64_t rows = RunInSlices(slices, StateFloats(in), [&](const DeltaSequence& sequence) {
      Call(in, {&sequence, 1}, threads, &out);
    });
    MLC_CHECK(rows == in.rows);
    out.ExpectPaddingUntouched();
    return out.Dense();
  }
};

TEST_P(ShortConvolutionTest, MatchesSumsInDouble) {
  for (const ConvolutionSizes& sizes : kConvolutions) {
    const Inputs in = MakeInputs(sizes, 30);
    ExpectClose(Run(in, {in.rows}, 2), reference::ShortConvolution(in), 1e-5);
  }
}

TEST_P(ShortConvolutionTest, BitsDoNotDependOnSlicesAndThreads) {
  for (const ConvolutionSizes& sizes : kConvolutions) {
    const Inputs in = MakeInputs(sizes, 30);
    const Floats whole = Run(in, {30}, 1);
    for (const auto& slices : std::vector<std::vector<int64_t>>{
             {1, 29}, {2, 1, 1, 26}, {16, 14}, std::vector<int64_t>(30, 1)}) {
      EXPECT_EQ(Run(in, slices, 3), whole) << slices.size() << " slices";
    }
  }
}

// States within a slice are those that slices up to there leave. Sequences of a batch have what
// they have alone, and a call may be repeated.
TEST_P(ShortConvolutionTest, LeavesStatesWithinASliceAndKeepsSequencesApart) {
  const Inputs in = MakeInputs(kConvolutions[1], 30);
  const auto floats = static_cast<size_t>(StateFloats(in));
  std::vector<Floats> states(4, Floats(floats, NAN));
  const DeltaWrite writes[] = {
      {1, states[0].data()}, {17, states[1].data()}, {25, states[2].data()}};
  const DeltaWrite other{5, states[3].data()};
  const DeltaSequence sequences[] = {
      {.row_begin = 0, .num_rows = 25, .writes = writes, .num_writes = 3},
      {.row_begin = 25, .num_rows = 5, .writes = &other, .num_writes = 1}};
  Poisoned together(30, in.sizes.channels, 0), alone(30, in.sizes.channels, 0);
  for (int repeated = 0; repeated < 2; ++repeated) Call(in, sequences, 3, &together);
  for (const DeltaSequence& sequence : sequences) {
    for (int64_t i = 0; i < sequence.num_writes; ++i) {
      Floats state(floats, NAN);
      const DeltaWrite write{sequence.writes[i].num_rows, state.data()};
      const DeltaSequence part{.row_begin = sequence.row_begin,
                               .num_rows = write.num_rows,
                               .writes = &write,
                               .num_writes = 1};
      Call(in, {&part, 1}, 1, &alone);
      EXPECT_TRUE(SameBits(state.data(), sequence.writes[i].state, StateFloats(in))) << i;
    }
  }
  EXPECT_EQ(together.Dense(), alone.Dense());
}

TEST_P(ShortConvolutionTest, RefusesWhatCannotBeRepeated) {
  const Inputs in = MakeInputs(kConvolutions[2], 4);
  Floats state(static_cast<size_t>(StateFloats(in)));
  Poisoned out(4, in.sizes.channels, 0);
  const auto call = [&](const DeltaWrite& write, const float* from) {
    const DeltaSequence sequence{.num_rows = 4, .state = from, .writes = &write, .num_writes = 1};
    Call(in, {&sequence, 1}, 1, &out);
  };
  EXPECT_THROW(call({3, state.data()}, nullptr), InternalError);
  EXPECT_THROW(call({4, state.data()}, state.data()), InternalError);
}

INSTANTIATE_TEST_SUITE_P(Isas, ShortConvolutionTest, ::testing::ValuesIn(IsaNames()),
                         [](const auto& isa) { return isa.param; });

}  // namespace
}  // namespace mlc_native::kernels
