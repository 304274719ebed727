// Gated short convolutions on CUDA, the counterpart of kernels/short_convolution.h for the CPU,
// which has their formula: layers with a state of a few rows in place of keys and values.
//
// Slices, slots and contracts are those of states.h.
#pragma once

#include "kernels/cuda/states.h"
#include "kernels/cuda/stream.h"
#include "mlc_native/detail/basic_types.h"

namespace mlc_native::kernels::cuda {

// A layer's state in a slot: [width - 1, channels], what the convolution reads of the rows before,
// float32.
constexpr int64_t ConvolutionStateFloats(int64_t channels, int64_t width) {
  return (width - 1) * channels;
}

struct ShortConvolutionArgs {
  DType dtype = DType::kBFloat16;  // of inputs and out
  int64_t channels = 0;            // a multiple of 4
  int64_t width = 0;               // in [2, kMaxConvWidth]
  const void* inputs = nullptr;    // [m, 3 channels]: b, c, x
  const float* weights = nullptr;  // [width, channels], the oldest row first
  void* out = nullptr;             // [m, channels]
  int64_t m = 0;
  const DeltaSlice* slices = nullptr;
  const int32_t* slice_of_row = nullptr;  // [m], below zero: an unused row
  const DeltaWrite* writes = nullptr;
  float* states = nullptr;  // of the layer, in slot 0
  int64_t slot_floats = 0;  // from slot to slot, a multiple of 4
};
void ShortConvolution(const ShortConvolutionArgs& args, Stream stream);

}  // namespace mlc_native::kernels::cuda
