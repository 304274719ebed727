// Mamba-1, the selective scan: layers whose channels have a state in place of keys and values.
//
// A row first gives, of each channel,
//
//   u = silu(convolution over this row and the conv_width - 1 rows before it)
//
// from which the layer computes a key k and a query q [state_dim], which all channels share, and
// a number t of each channel. With the channel's state S [state_dim] of the rows before (0 of the
// first one), the row then gives o:
//
//   step = softplus(t + bias)
//   S = e^(-e^A step) S + k step u          (A: a number of each element of S)
//   o = (S q + skip u) * silu(z)
//
// The contract of kernels.h holds: a row's bits do not depend on the slices that a sequence is fed
// in. States are read and written in different places, so that a call may be repeated.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/delta_rule.h"
#include "kernels/kernels.h"
#include "kernels/scan_shape.h"

namespace mlc_native::kernels {

// The state of one layer: [conv_width - 1, channels], what the convolution reads of the rows
// before, the oldest first; and then, from ScanBlocksAt on, the states of the channels in blocks
// [blocks, state_dim, kDeltaColumns]. Columns behind the last channel are zero.
constexpr int64_t ScanBlocks(const ScanShape& shape) {
  return (shape.channels + kDeltaColumns - 1) / kDeltaColumns;
}
constexpr int64_t ScanBlocksAt(const ScanShape& shape) {
  return ((shape.conv_width - 1) * shape.channels + 15) / 16 * 16;
}
constexpr int64_t ScanStateFloats(const ScanShape& shape) {
  return ScanBlocksAt(shape) + ScanBlocks(shape) * shape.state_dim * kDeltaColumns;
}

struct ScanArgs {
  ScanShape shape{};
  const float* inputs = nullptr;  // [m, 2 channels]: what the convolution reads, then z
  int64_t ld_inputs = 0;
  const float* convolution = nullptr;  // [conv_width, channels]
  const float* conv_bias = nullptr;    // [channels]; null: zeros
  float* convolved = nullptr;          // [m, channels]: u
  int64_t ld_convolved = 0;
  // The rest is of SelectiveScan alone.
  const float* steps = nullptr;  // [m, channels]: t
  int64_t ld_steps = 0;
  const float* keys = nullptr;  // [m, 2 state_dim]: k, then q
  int64_t ld_keys = 0;
  const float* decay = nullptr;      // [state_dim, channels]: A
  const float* step_bias = nullptr;  // [channels]
  const float* skip = nullptr;       // [channels]
  float* out = nullptr;              // [m, channels]
  int64_t ldo = 0;
  const DeltaSequence* sequences = nullptr;  // whose states are those of this file
  int64_t num_sequences = 0;
  void* workspace = nullptr;  // ScanWorkspaceBytes, aligned to kPackedAlignment

  DeltaConvolution convolved_inputs() const {
    return {.inputs = inputs,
            .ld_inputs = ld_inputs,
            .channels = shape.channels,
            .width = shape.conv_width,
            .weights = convolution,
            .bias = conv_bias};
  }
};

MLC_NATIVE_PRIVATE_API size_t ScanWorkspaceBytes(int num_threads, const ScanShape& shape);
// Writes args.convolved.
MLC_NATIVE_PRIVATE_API void ScanConvolution(const Cpu& cpu, const ScanArgs& args);
// Reads args.convolved, and leaves all states, those of the convolution included. Requires: no
// state is read and written, or written twice, by a call.
MLC_NATIVE_PRIVATE_API void SelectiveScan(const Cpu& cpu, const ScanArgs& args);

// ---- For the loops of each instruction set ----

// What each element of the states of a block is decayed with.
constexpr int64_t ScanScratchFloats(const ScanShape& shape) {
  return shape.state_dim * kDeltaColumns;
}

}  // namespace mlc_native::kernels
