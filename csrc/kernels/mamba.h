// Mamba-2: layers whose heads have a state in place of keys and values.
//
// For each head, with the state S [key_dim, value_dim] of the rows before (0 of the first one), a
// row with value v, key k and query q, both of which the heads of a group share, gives o:
//
//   [v | k | q] = silu(convolution over this row and the conv_width - 1 rows before it)
//   step = softplus(t + bias), between the shortest and the longest one
//   S = e^(-e^A step) S + k (step v)^T
//   o = RMSNorm((S^T q + skip v) * silu(z))
//
// The norm is of the heads of a group. A state lies as that of the gated delta rule does
// (delta_rule.h), with a group for a key head, and with the same contract.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/delta_rule.h"
#include "kernels/kernels.h"

namespace mlc_native::kernels {

struct MambaArgs {
  DeltaShape shape{};             // key_heads: groups
  const float* inputs = nullptr;  // [m, 2 values + 2 keys + value_heads]: z, v, k, q, t
  int64_t ld_inputs = 0;
  const float* convolution = nullptr;  // [conv_width, channels]: of v, k and q
  const float* conv_bias = nullptr;    // [channels]; null: zeros
  const float* decay = nullptr;        // [value_heads]: A
  const float* step_bias = nullptr;    // [value_heads]
  float shortest_step = 0;
  float longest_step = std::numeric_limits<float>::infinity();
  const float* skip = nullptr;  // [value_heads]
  const float* norm = nullptr;  // [values]: its weight; null: without a norm
  float norm_eps = 1e-6f;
  float* keys = nullptr;  // [m, 2 keys], dense: where k and q of the rows go
  float* out = nullptr;   // [m, values]
  int64_t ldo = 0;
  const DeltaSequence* sequences = nullptr;
  int64_t num_sequences = 0;
  void* workspace = nullptr;  // DeltaWorkspaceBytes, aligned to kPackedAlignment

  DeltaConvolution convolved() const {
    return {.inputs = inputs + shape.values(),
            .ld_inputs = ld_inputs,
            .channels = shape.channels(),
            .width = shape.conv_width,
            .weights = convolution,
            .bias = conv_bias};
  }
};
// Requires: no state is read and written, or written twice, by a call.
MLC_NATIVE_PRIVATE_API void Mamba(const Cpu& cpu, const MambaArgs& args);

}  // namespace mlc_native::kernels
