// The gated delta rule: linear attention, whose heads have a state in place of keys and values.
//
// For each value head, with the state S [key_dim, value_dim] of the rows before (0 of the first
// one), a row with query q, key k and value v gives o:
//
//   [q | k | v] = silu(convolution over this row and the conv_width - 1 rows before it)
//   q = q / |q| / sqrt(key_dim),  k = k / |k|
//   decay = e^(-e^A softplus(a + bias)),  beta = beta_scale sigmoid(b)
//   S = decay S + k (beta (v - decay S^T k))^T
//   o = RMSNorm(S^T q) * silu(z)
//
// In Kimi Delta Attention each row of S, a channel of the keys, has a decay of its own (shape
// .decays_channels), so a and bias are as many, and the gate of o is sigmoid(z).
//
// The contract of kernels.h holds: a row's bits do not depend on the slices that a sequence is fed
// in. States are read and written in different places, so that a call may be repeated.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/delta_shape.h"
#include "kernels/kernels.h"

namespace mlc_native::kernels {

// The state of one layer: [conv_width - 1, channels], what the convolution reads of the rows
// before, the oldest first; and then, from DeltaHeadsAt on, the state of each value head in blocks
// of columns [blocks, key_dim, kDeltaColumns]. Columns behind value_dim are zero.
inline constexpr int64_t kDeltaColumns = 32;
constexpr int64_t DeltaHeadsAt(const DeltaShape& shape) {
  return ((shape.conv_width - 1) * shape.channels() + 15) / 16 * 16;
}
constexpr int64_t DeltaHeadFloats(const DeltaShape& shape) {
  return (shape.value_dim + kDeltaColumns - 1) / kDeltaColumns * kDeltaColumns * shape.key_dim;
}
constexpr int64_t DeltaStateFloats(const DeltaShape& shape) {
  return DeltaHeadsAt(shape) + shape.value_heads * DeltaHeadFloats(shape);
}

inline constexpr int64_t kMaxDeltaWidth = 8;  // of convolutions

// Where the state behind the first num_rows rows of a sequence's slice goes.
struct DeltaWrite {
  int64_t num_rows = 0;
  float* state = nullptr;
};

// Rows [row_begin, row_begin + num_rows) of the batch are one sequence's next ones.
struct DeltaSequence {
  int64_t row_begin = 0;
  int64_t num_rows = 0;
  const float* state = nullptr;        // of the rows before; null: there are none
  const DeltaWrite* writes = nullptr;  // ascending; the last one is behind all rows
  int64_t num_writes = 0;
};

// A convolution whose silu is what the rule works on, and whose last inputs are in the state.
struct DeltaConvolution {
  const float* inputs = nullptr;  // [m, channels]
  int64_t ld_inputs = 0;
  int64_t channels = 0;
  int64_t width = 0;
  const float* weights = nullptr;  // [width, channels], the oldest row first
  const float* bias = nullptr;     // [channels]; null: zeros
};

struct DeltaArgs {
  DeltaShape shape{};
  const float* inputs = nullptr;  // [m, channels]: q, k, v of all heads
  int64_t ld_inputs = 0;
  const float* out_gates = nullptr;  // [m, values]: z
  int64_t ld_out_gates = 0;
  bool sigmoid_out_gates = false;  // their sigmoids in place of their silus
  const float* gates = nullptr;    // [m, shape.gates()]: b, and a
  int64_t ld_gates = 0;
  const float* channel_decays = nullptr;  // [m, shape.decays()]: a of channels
  int64_t ld_channel_decays = 0;
  const float* convolution = nullptr;  // [conv_width, channels]
  const float* decay = nullptr;        // [value_heads]: A
  const float* decay_bias = nullptr;   // [shape.decays()]
  float beta_scale = 1.0f;
  const float* norm = nullptr;  // [value_dim]: its weight
  float norm_eps = 1e-6f;
  float* out = nullptr;  // [m, values]
  int64_t ldo = 0;
  const DeltaSequence* sequences = nullptr;
  int64_t num_sequences = 0;
  void* workspace = nullptr;  // DeltaWorkspaceBytes, aligned to kPackedAlignment

  DeltaConvolution convolved() const {
    return {.inputs = inputs,
            .ld_inputs = ld_inputs,
            .channels = shape.channels(),
            .width = shape.conv_width,
            .weights = convolution};
  }
};
// Checks that sequence `i` leaves states in order, the last one behind all its rows.
void CheckSequence(const DeltaSequence& s, int64_t i);
MLC_NATIVE_PRIVATE_API size_t DeltaWorkspaceBytes(int num_threads, const DeltaShape& shape);
// Requires: no state is read and written, or written twice, by a call.
MLC_NATIVE_PRIVATE_API void DeltaRule(const Cpu& cpu, const DeltaArgs& args);

// ---- For the loops of each instruction set ----

// The rows of a value head that a call computes together: the head's columns stay in a cache.
inline constexpr int64_t kDeltaRows = 16;

// Rows [row_begin, row_begin + num_rows) of a sequence's slice.
struct DeltaChunk {
  const DeltaSequence* sequence = nullptr;
  int64_t value_head = 0;
  int64_t row_begin = 0;
  int64_t num_rows = 0;
  const float* from = nullptr;   // the head's state in front of the first row
  float* to[kDeltaRows] = {};    // and behind each row; the same one until a state is left as it is
  float decay[kDeltaRows] = {};  // of the head
  float beta[kDeltaRows] = {};
  float* scratch = nullptr;  // DeltaScratchFloats
};
constexpr int64_t DeltaScratchFloats(const DeltaShape& shape) {
  const int64_t keys = (shape.key_dim + 15) / 16 * 16;
  const int64_t values = (shape.value_dim + kDeltaColumns - 1) / kDeltaColumns * kDeltaColumns;
  return kDeltaRows * 2 * (keys + values + (shape.decays_channels ? keys : 0));
}

}  // namespace mlc_native::kernels
