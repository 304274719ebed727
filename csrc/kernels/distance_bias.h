// What attention adds to the scores of a head by the distance of key and query: a slope times the
// distance (ALiBi), an entry of a table (T5's relative positions), or products with vectors of the
// distance (DeBERTa's disentangled attention, on the CPU alone). Values; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mlc_native/detail/export.h"

namespace mlc_native::kernels {

// Behind both ends of a head's table its last entries are repeated, so that vectors can be read
// from any place of it.
inline constexpr int64_t kDistancePadding = 16;

// A row has entries for the distances from -reach - kDistancePadding to reach + kDistancePadding.
constexpr int64_t DistanceRowSize(int64_t reach) { return 2 * (reach + kDistancePadding) + 1; }
// Where in a row the entries for the distances from `first` on begin: of kDistancePadding of them
// all are there.
constexpr int64_t PlaceOfDistance(int64_t reach, int64_t first) {
  const int64_t least = -reach - kDistancePadding;
  const int64_t begin = first < least ? least : first > reach ? reach : first;
  return begin - least;
}

// The bias of head h at distance d = key - query is
//   -slopes[h] * |d| + table[h, min(max(d, -reach), reach)]
// without what is null. A view.
struct DistanceBias {
  const float* slopes = nullptr;  // [heads]
  // Of distance d: entry d + reach + kDistancePadding of a row of RowSize().
  const float* table = nullptr;
  int64_t reach = 0;

  constexpr explicit operator bool() const { return slopes != nullptr || table != nullptr; }
  constexpr int64_t RowSize() const { return DistanceRowSize(reach); }
  // Where the entries of a head for the distances from `first` on begin (PlaceOfDistance).
  constexpr const float* Entries(int64_t head, int64_t first) const {
    return table + head * RowSize() + PlaceOfDistance(reach, first);
  }
  // Of the heads from `head` on.
  constexpr DistanceBias From(int64_t head) const {
    return {slopes == nullptr ? nullptr : slopes + head,
            table == nullptr ? nullptr : table + head * RowSize(), reach};
  }
};

// What the scores of head h get at distance d = key - query before they are scaled:
//   q . keys[h, d] + k . queries[h, d]
// without what is null; farther than `reach` the vectors are those at it. Element e of a head's
// vectors has a row with an entry for each distance. A view.
struct DistanceVectors {
  const float* keys = nullptr;  // [heads, head_dim, DistanceRowSize(reach)]
  const float* queries = nullptr;
  int64_t reach = 0;

  constexpr int64_t NumTables() const {
    return (keys != nullptr ? 1 : 0) + (queries != nullptr ? 1 : 0);
  }
};

// The rows of a table, [heads, RowSize()], of entries [heads, 2 * reach + 1].
MLC_NATIVE_PRIVATE_API std::vector<float> PadDistances(std::span<const float> entries,
                                                       int64_t heads, int64_t reach);

}  // namespace mlc_native::kernels
