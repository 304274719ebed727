// The gated delta rule on CUDA, the counterpart of kernels/delta_rule.h for the CPU, which has its
// formulas: a state for each value head of a sequence, in slots, in place of keys and values.
//
// The contracts of states.h hold.
#pragma once

#include "kernels/cuda/states.h"
#include "kernels/cuda/stream.h"
#include "kernels/delta_shape.h"
#include "mlc_native/detail/basic_types.h"

namespace mlc_native::kernels::cuda {

struct DeltaRuleArgs {
  DType dtype = DType::kBFloat16;  // of inputs and out
  DeltaShape shape{};              // key_dim is a multiple of 4
  const void* inputs = nullptr;    // [m, channels]: q, k, v of all heads
  int64_t ld_inputs = 0;
  const void* out_gates = nullptr;  // [m, values]: z
  int64_t ld_out_gates = 0;
  bool sigmoid_out_gates = false;         // their sigmoids in place of their silus
  const float* gates = nullptr;           // [m, shape.gates()]: b, and a
  const float* channel_decays = nullptr;  // [m, shape.decays()]: a of channels
  const float* convolution = nullptr;     // [conv_width, channels]
  const float* decay = nullptr;           // [value_heads]
  const float* decay_bias = nullptr;      // [shape.decays()]
  float beta_scale = 1.0f;
  const float* norm = nullptr;  // [value_dim]
  float norm_eps = 1e-6f;
  void* out = nullptr;  // [m, values]
  int64_t m = 0;
  const DeltaSlice* slices = nullptr;  // [num_slices]
  int64_t num_slices = 0;
  const int32_t* slice_of_row = nullptr;  // [m], below zero: an unused row
  const DeltaWrite* writes = nullptr;
  float* states = nullptr;     // of the layer, in slot 0
  int64_t slot_floats = 0;     // from slot to slot, a multiple of 4
  float* workspace = nullptr;  // DeltaWorkspaceFloats
};
constexpr int64_t DeltaWorkspaceFloats(const DeltaShape& shape, int64_t m) {
  return m * (shape.channels() + shape.decays() + shape.value_heads);
}
void DeltaRule(const DeltaRuleArgs& args, Stream stream);

// x[m, i] *= sigmoid(gate[m, i / per_gate]), or likewise softplus; n and the strides are multiples
// of 8.
struct GateArgs {
  DType dtype = DType::kBFloat16;
  const void* gate = nullptr;
  int64_t ld_gate = 0;
  void* x = nullptr;
  int64_t ldx = 0;
  int64_t m = 0;
  int64_t n = 0;
  int64_t per_gate = 1;  // or a multiple of 8
  bool softplus = false;
};
void Gate(const GateArgs& args, Stream stream);

}  // namespace mlc_native::kernels::cuda
