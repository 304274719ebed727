// The formats of keys and values, and the layout of a KV page on the CPU: where each element lies,
// and how many bytes a page takes. Pure functions; any thread.
//
// D is head_dim rounded up to kKvRowUnit. The part of one kv head in a page is a whole number of
// cache lines, for K and for V:
//   float32, float16   K [D, 16 tokens]         V [16 tokens, D]
//   bfloat16, int8     K [D / 2, 16 tokens, 2]  V [8, D, 2 tokens]
//   int8               followed by the tokens' scales, float32 [16]
// CUDA's pages have a layout of their own (kernels/cuda/kernels.h), and float8 exists only there.
// K is transposed so that the scores of 16 keys need no sums across a vector. Pairs are adjacent
// because the dot product of bfloat16 takes two products at a time. In written tokens, the elements
// of K beyond head_dim are zero and those of V are unspecified.
//
// int8: value = scale * code, with codes in [-127, 127]. The float32 scales of a page fill one
// cache line; float16 would save half of it and round a second time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/formats.h"
#include "mlc_native/detail/dtype.h"
#include "mlc_native/detail/page.h"

namespace mlc_native::kernels {

inline constexpr int64_t kPageSize = kKvPageSize;
inline constexpr int64_t kKvRowUnit = 16;
inline constexpr int64_t kKvBlockPages = 32;  // of KvPages in blocks

// The names that EngineConfig.kv_cache_dtype uses.
constexpr std::string_view KvFormatName(KvFormat format) {
  switch (format) {
    case KvFormat::kFloat32:
      return "float32";
    case KvFormat::kBFloat16:
      return "bfloat16";
    case KvFormat::kFloat16:
      return "float16";
    case KvFormat::kInt8:
      return "int8";
    case KvFormat::kFloat8:
      return "float8";
  }
  return "invalid";
}

constexpr bool KvInPairs(KvFormat format) {
  return format == KvFormat::kBFloat16 || format == KvFormat::kInt8;
}
constexpr int64_t KvRow(int64_t head_dim) {
  return (head_dim + kKvRowUnit - 1) / kKvRowUnit * kKvRowUnit;
}

// Bytes of K, or of V, of one kv head in one page.
constexpr int64_t KvPageBytes(KvFormat format, int64_t head_dim) {
  const int64_t scales = format == KvFormat::kInt8 ? kPageSize * 4 : 0;
  return kPageSize * KvRow(head_dim) * KvElementBytes(format) + scales;
}

// Bytes from the first page of K, or of V, to one of a head. `block_bytes` is that of KvPages.
constexpr int64_t KvPageAt(int64_t block_bytes, int64_t num_pages, int64_t page_bytes, int64_t head,
                           int64_t page) {
  if (block_bytes == 0) return (head * num_pages + page) * page_bytes;
  return page / kKvBlockPages * block_bytes +
         (head * kKvBlockPages + page % kKvBlockPages) * page_bytes;
}

// Index of an element in its page. `row` is KvRow(head_dim).
constexpr int64_t KvKeyIndex(bool in_pairs, int64_t token, int64_t d) {
  return in_pairs ? (d / 2 * kPageSize + token) * 2 + d % 2 : d * kPageSize + token;
}
constexpr int64_t KvValueIndex(bool in_pairs, int64_t row, int64_t token, int64_t d) {
  return in_pairs ? (token / 2 * row + d) * 2 + token % 2 : token * row + d;
}

}  // namespace mlc_native::kernels
