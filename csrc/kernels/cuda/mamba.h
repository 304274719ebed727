// Mamba-2 on CUDA, the counterpart of kernels/mamba.h for the CPU, which has its formulas: a state
// for each head of a sequence, in slots, in place of keys and values.
//
// Slices, slots, contracts and the layout of a state are those of states.h, with a group for a key
// head.
#pragma once

#include <limits>

#include "kernels/cuda/states.h"
#include "kernels/cuda/stream.h"
#include "kernels/delta_shape.h"
#include "mlc_native/detail/basic_types.h"

namespace mlc_native::kernels::cuda {

struct MambaArgs {
  DType dtype = DType::kBFloat16;      // of inputs and out
  DeltaShape shape{};                  // key_heads: groups. Heads' sizes are multiples of 4
  const void* inputs = nullptr;        // [m, 2 values + 2 keys + value_heads]: z, v, k, q, t
  int64_t ld_inputs = 0;               // a multiple of 8
  const float* convolution = nullptr;  // [conv_width, channels]: of v, k and q
  const float* conv_bias = nullptr;    // [channels]; null: zeros
  const float* decay = nullptr;        // [value_heads]
  const float* step_bias = nullptr;    // [value_heads]
  float shortest_step = 0;
  float longest_step = std::numeric_limits<float>::infinity();
  const float* skip = nullptr;  // [value_heads]
  const float* norm = nullptr;  // [values]; null: without a norm
  float norm_eps = 1e-6f;
  void* out = nullptr;  // [m, values]
  int64_t m = 0;
  const DeltaSlice* slices = nullptr;  // [num_slices]
  int64_t num_slices = 0;
  const int32_t* slice_of_row = nullptr;  // [m], below zero: an unused row
  const DeltaWrite* writes = nullptr;
  float* states = nullptr;     // of the layer, in slot 0
  int64_t slot_floats = 0;     // from slot to slot, a multiple of 4
  float* workspace = nullptr;  // MambaWorkspaceFloats
  // Of one of several devices, each of which has heads of the one group: where the sums of the
  // squares of a row's elements in front of the norm go, [m]. Mamba ends with them, and MambaNorm
  // goes on when those of all devices, which have `whole_size` elements, have been added.
  float* square_sums = nullptr;
  int64_t whole_size = 0;
};
constexpr int64_t MambaWorkspaceFloats(const DeltaShape& shape, int64_t m) {
  return m * (shape.channels() + 2 * shape.value_heads);
}
// The heads of a group have a multiple of 8 elements, at most kMaxNormDim; keys at most
// kMaxDeltaDim.
void Mamba(const MambaArgs& args, Stream stream);
void MambaNorm(const MambaArgs& args, Stream stream);

}  // namespace mlc_native::kernels::cuda
