// What the tokens of compressed attention (compression.h) leave for entries, and the sums that
// entries are made of.
//
// A token leaves a row of floats in its page: of each channel a number, and a weight that says how
// much the number counts. Channel c of the entry of a window is
//   the sum over its tokens t of softmax_t(weight[t, c] + bias[t, c]) * number[t, c],
// where t counts from the window's first token. With overlaps, tokens have twice as many channels:
// the sum is over the first half of those of the window in front, too, if there is one, and over
// the second half of the window's own.
// A value; any thread.
#pragma once

#include <cstdint>

#include "kernels/kv_format.h"

namespace mlc_native::kernels {

inline constexpr int64_t kMaxTokensPerEntry = 1024;

// Rows of floats that tokens have in pages, which lie in blocks as those of KvPages do.
struct TokenRows {
  float* data = nullptr;
  int64_t width = 0;
  int64_t num_pages = 0;
  int64_t block_bytes = 0;

  float* At(int64_t page, int64_t token) const {
    float* const block = data + page / kKvBlockPages * (block_bytes / 4);
    return block + (page % kKvBlockPages * kPageSize + token) * width;
  }
};
constexpr int64_t TokenRowsBytes(int64_t num_pages, int64_t width) {
  return num_pages * kPageSize * width * 4;
}

// A window, by its last token.
struct WindowEnd {
  const int32_t* block_table = nullptr;
  int64_t position = 0;
};

struct CompressArgs {
  const TokenRows* tokens = nullptr;
  int64_t numbers = 0;  // columns of `tokens`: the first number, and the first weight
  int64_t weights = 0;
  int64_t dim = 0;  // of an entry
  int64_t num_tokens = 0;
  bool overlaps = false;
  const float* bias = nullptr;  // [num_tokens, dim], or [num_tokens, 2 dim] with overlaps
  const WindowEnd* ends = nullptr;
  int64_t num_ends = 0;
  float* out = nullptr;  // [num_ends, dim], row stride ldo
  int64_t ldo = 0;
};

}  // namespace mlc_native::kernels
