// Mamba-1 on CUDA, the counterpart of kernels/selective_scan.h for the CPU, which has its formulas:
// a state for each channel of a sequence, in slots, in place of keys and values.
//
// Slices, slots and contracts are those of states.h. A layer's state in a slot: [conv_width - 1,
// channels], what the convolution reads of the rows before, and then [channels, state_dim], all
// float32.
#pragma once

#include "kernels/cuda/states.h"
#include "kernels/cuda/stream.h"
#include "kernels/scan_shape.h"
#include "mlc_native/detail/basic_types.h"

namespace mlc_native::kernels::cuda {

inline constexpr int64_t kMaxScanStates = 64;  // of a channel

constexpr int64_t ScanStatesAt(const ScanShape& shape) {
  return ((shape.conv_width - 1) * shape.channels + 3) / 4 * 4;
}
constexpr int64_t ScanStateFloats(const ScanShape& shape) {
  return ScanStatesAt(shape) + shape.channels * shape.state_dim;
}

struct ScanArgs {
  DType dtype = DType::kBFloat16;      // of inputs, convolved and out
  ScanShape shape{};                   // channels and states are multiples of 4
  const void* inputs = nullptr;        // [m, 2 channels]: what the convolution reads, then z
  int64_t ld_inputs = 0;               // a multiple of 8
  const float* convolution = nullptr;  // [conv_width, channels]
  const float* conv_bias = nullptr;    // [channels]; null: zeros
  void* convolved = nullptr;           // [m, channels]: u
  // The next ones are of SelectiveScan alone.
  const float* steps = nullptr;      // [m, channels]: t
  const float* keys = nullptr;       // [m, 2 state_dim]: k, then q; aligned to 16 bytes
  int64_t ld_keys = 0;               // a multiple of 4
  const float* decay = nullptr;      // [state_dim, channels]
  const float* step_bias = nullptr;  // [channels]
  const float* skip = nullptr;       // [channels]
  void* out = nullptr;               // [m, channels]
  int64_t m = 0;
  const DeltaSlice* slices = nullptr;  // [num_slices]
  int64_t num_slices = 0;
  const int32_t* slice_of_row = nullptr;  // [m], below zero: an unused row
  const DeltaWrite* writes = nullptr;
  float* states = nullptr;  // of the layer, in slot 0
  int64_t slot_floats = 0;  // from slot to slot, a multiple of 4
};
// Writes convolved, and leaves the convolution's part of the states.
void ScanConvolution(const ScanArgs& args, Stream stream);
// Reads convolved, and leaves the other part.
void SelectiveScan(const ScanArgs& args, Stream stream);

// Of what gives steps, keys and queries: [m, rank + 2 state_dim].
struct ScanNormArgs {
  DType dtype = DType::kBFloat16;  // of ranks
  int64_t rank = 0;
  int64_t state_dim = 0;
  float* x = nullptr;             // keys and queries stay here, normalized
  void* ranks = nullptr;          // [m, rank]: what steps come from, normalized
  const float* weight = nullptr;  // [rank + 2 state_dim]; null: there are no norms
  float eps = 1e-6f;
  int64_t m = 0;
};
void ScanNorm(const ScanNormArgs& args, Stream stream);

}  // namespace mlc_native::kernels::cuda
