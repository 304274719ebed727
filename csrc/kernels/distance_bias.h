// What attention adds to the scores of a head by the distance of key and query, on the CPU and on
// GPUs: a slope times the distance (ALiBi), or an entry of a table (T5's relative positions).
// Values; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mlc_native/detail/export.h"

namespace mlc_native::kernels {

// Behind both ends of a head's table its last entries are repeated, so that vectors can be read
// from any place of it.
inline constexpr int64_t kDistancePadding = 16;

// The bias of head h at distance d = key - query is
//   -slopes[h] * |d| + table[h, min(max(d, -reach), reach)]
// without what is null. A view.
struct DistanceBias {
  const float* slopes = nullptr;  // [heads]
  // Of distance d: entry d + reach + kDistancePadding of a row of RowSize().
  const float* table = nullptr;
  int64_t reach = 0;

  constexpr explicit operator bool() const { return slopes != nullptr || table != nullptr; }
  constexpr int64_t RowSize() const { return 2 * (reach + kDistancePadding) + 1; }
  // Where the entries of a head for the distances from `first` on begin: of kDistancePadding of
  // them all are there.
  constexpr const float* Entries(int64_t head, int64_t first) const {
    const int64_t least = -reach - kDistancePadding;
    const int64_t begin = first < least ? least : first > reach ? reach : first;
    return table + head * RowSize() + (begin - least);
  }
  // Of the heads from `head` on.
  constexpr DistanceBias From(int64_t head) const {
    return {slopes == nullptr ? nullptr : slopes + head,
            table == nullptr ? nullptr : table + head * RowSize(), reach};
  }
};

// The rows of a table, [heads, RowSize()], of entries [heads, 2 * reach + 1].
MLC_NATIVE_PRIVATE_API std::vector<float> PadDistances(std::span<const float> entries,
                                                       int64_t heads, int64_t reach);

}  // namespace mlc_native::kernels
