// The kernel of short convolutions: against sums in double, and what must not change a bit.
#include "kernels/cuda/short_convolution.h"

#include "cuda/state_slices.h"
#include "kernels/reference_convolution.h"

namespace mlc_native::kernels::cuda {
namespace {

using reference::ConvolutionInputs;
using reference::ConvolutionSizes;

// The width of a real model, with more channels than a block; others, and the widest one.
constexpr ConvolutionSizes kConvolutionSizes[] = {{328, 3}, {64, 4}, {8, 2}, {136, 8}};

// The inputs of all rows, and slots of states, on the device.
struct ConvolutionKernel {
  const ConvolutionInputs& in;
  DType dtype;
  DeviceBytes inputs;
  DeviceArray<float> weights, states;
  DeviceBytes out;

  ConvolutionKernel(const ConvolutionInputs& of, DType type)
      : in(of),
        dtype(type),
        inputs(Encode(type, of.inputs)),
        weights(of.weights),
        states(static_cast<size_t>(kNumTestSlots * slot_floats())),
        out(static_cast<size_t>(of.rows * of.sizes.channels) * DTypeSize(type)) {}

  int64_t state_floats() const { return ConvolutionStateFloats(in.sizes.channels, in.sizes.width); }
  int64_t slot_floats() const { return state_floats() + 8; }

  void Run(const DeviceSlices& of, int64_t first) {
    const auto element = static_cast<int64_t>(DTypeSize(dtype));
    ShortConvolution({.dtype = dtype,
                      .channels = in.sizes.channels,
                      .width = in.sizes.width,
                      .inputs = inputs.data() + first * in.width() * element,
                      .weights = weights.data(),
                      .out = out.data() + first * in.sizes.channels * element,
                      .m = of.m,
                      .slices = of.slices.data(),
                      .slice_of_row = of.slice_of_row.data(),
                      .writes = of.writes.data(),
                      .states = states.data(),
                      .slot_floats = slot_floats()},
                     nullptr);
  }
};

class ShortConvolutionTest : public CudaKernelTest {
 protected:
  ConvolutionInputs MakeInputs(const ConvolutionSizes& sizes, DType dtype) {
    ConvolutionInputs in(sizes, 21, random_);
    RoundTo(dtype, &in.inputs);
    return in;
  }
};

TEST_F(ShortConvolutionTest, MatchesSumsInDouble) {
  for (const ConvolutionSizes& sizes : kConvolutionSizes) {
    for (const DType dtype : kDTypes) {
      const ConvolutionInputs in = MakeInputs(sizes, dtype);
      ExpectClose(Decode(dtype, InSlices<ConvolutionKernel>(in, dtype, {21})),
                  reference::ShortConvolution(in), Epsilon(dtype) + 1e-6);
    }
  }
}

TEST_F(ShortConvolutionTest, BitsDoNotDependOnSlices) {
  const DType dtype = DType::kBFloat16;
  for (const ConvolutionSizes& sizes : kConvolutionSizes) {
    CheckThatBitsDoNotDependOnSlices<ConvolutionKernel>(MakeInputs(sizes, dtype), dtype);
  }
}

TEST_F(ShortConvolutionTest, SequencesOfALaunchAreIndependent) {
  const DType dtype = DType::kFloat16;
  for (const ConvolutionSizes& sizes : kConvolutionSizes) {
    CheckThatSequencesAreIndependent<ConvolutionKernel>(MakeInputs(sizes, dtype), dtype);
  }
}

TEST_F(ShortConvolutionTest, StatesWithinASliceAreThoseOfShorterOnes) {
  for (const ConvolutionSizes& sizes : kConvolutionSizes) {
    CheckStatesWithinASlice<ConvolutionKernel>(MakeInputs(sizes, DType::kFloat32));
  }
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
