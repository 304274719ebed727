// Gated short convolutions: layers that have a state in place of keys and values.
//
// A row has b, c and x of each channel. With p = b * x of this row and of the width - 1 rows before
// it, it gives
//
//   o = c * (sum over these rows of weight * p)
//
// The contract of kernels.h holds: a row's bits do not depend on the slices that a sequence is fed
// in. States are read and written in different places, so that a call may be repeated.
#pragma once

#include <cstdint>

#include "kernels/delta_rule.h"
#include "kernels/kernels.h"

namespace mlc_native::kernels {

inline constexpr int64_t kMaxConvolutionWidth = 8;

// The state of one layer: [width - 1, channels], p of the rows before, the oldest first.
constexpr int64_t ConvolutionStateFloats(int64_t channels, int64_t width) {
  return (width - 1) * channels;
}

struct ConvolutionArgs {
  int64_t channels = 0;
  int64_t width = 0;
  const float* inputs = nullptr;  // [m, 3 channels]: b, c, x
  int64_t ld_inputs = 0;
  const float* weights = nullptr;  // [width, channels], the oldest row first
  float* out = nullptr;            // [m, channels]
  int64_t ldo = 0;
  const DeltaSequence* sequences = nullptr;  // whose states are those of this file
  int64_t num_sequences = 0;
};
// Requires: no state is read and written, or written twice, by a call.
MLC_NATIVE_PRIVATE_API void ShortConvolution(const Cpu& cpu, const ConvolutionArgs& args);

}  // namespace mlc_native::kernels
