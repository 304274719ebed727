// What the kernels of all layers with states have in common: slices of sequences, and the slots
// that these read and write in place of keys and values.
//
// The contracts of kernels.h hold: launches depend on sizes alone, so a captured step serves any
// sequences, and a row's bits do not depend on the slices that its sequence is fed in. A slot is
// read or written by a launch, never both, so a step that failed may be repeated.
#pragma once

#include <cstdint>

#include "kernels/delta_shape.h"

namespace mlc_native::kernels::cuda {

// A layer's state in a slot: [conv_width - 1, channels], what the convolution reads of the rows
// before, and then [value_heads, value_dim, key_dim], all float32.
constexpr int64_t DeltaHeadsAt(const DeltaShape& shape) {
  return ((shape.conv_width - 1) * shape.channels() + 3) / 4 * 4;
}
constexpr int64_t DeltaStateFloats(const DeltaShape& shape) {
  return DeltaHeadsAt(shape) + shape.values() * shape.key_dim;
}

// Rows [row_begin, row_begin + num_rows) are one sequence's next ones. Without rows: none are.
struct DeltaSlice {
  int32_t row_begin = 0;
  int32_t num_rows = 0;
  int32_t slot = -1;  // of the rows before; below zero: there are none
  int32_t first_write = 0;
  int32_t num_writes = 0;
};
// The state behind the first num_rows rows of a slice goes to this slot; the last of a slice is
// behind all of its rows.
struct DeltaWrite {
  int32_t num_rows = 0;
  int32_t slot = 0;
};

inline constexpr int64_t kMaxDeltaDim = 256;  // of a key, or of a value
inline constexpr int64_t kMaxConvWidth = 8;

}  // namespace mlc_native::kernels::cuda
