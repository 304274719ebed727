// What attention adds to the scores of some rows by vectors of the distance of their keys. Included
// by cpu/attention.inl only.
//
// The sum of a score is over the elements of head_dim in their order, first with the key and then
// with the query, so it does not depend on the tile.
#pragma once

#include "kernels/cpu/attention_tiles.inl"
#include "kernels/distance_bias.h"

namespace mlc_native::kernels {
namespace {

// Rows of a tile: their sums of a page fit into registers together with a page of keys.
constexpr int kDistanceRows = kTileRows < 6 ? kTileRows : 6;
static_assert(kPageSize <= kDistancePadding);

// Consecutive rows of one query head, and one page of their kv head.
template <typename T>
struct DistanceTile {
  const typename T::Storage* keys;
  int64_t head;
  int64_t head_dim;
  const float* q;  // of the first row, neither scaled nor rounded
  int64_t ldq;
  int64_t distance;  // of the page's first key from the first row
  float unit;        // what the products are multiplied with
  float* scores;
  int64_t ld_scores;
};

// Element e of the keys [token, token + kLanes) of a page, without the scales of int8.
template <typename T>
inline Vec KeyElement(const typename T::Storage* keys, int64_t e, int64_t token) {
  if constexpr (KvInPairs(T::kFormat)) {
    const typename T::Storage* const pairs = keys + KvKeyIndex(true, token, e / 2 * 2);
    return e % 2 == 0 ? T::Element::LoadEven(pairs) : T::Element::LoadOdd(pairs);
  } else {
    return T::Element::LoadAs(keys + KvKeyIndex(false, token, e));
  }
}

template <typename T, int kRows>
void AddDistanceTile(const DistanceVectors& vectors, const DistanceTile<T>& tile) {
  const int64_t row_size = DistanceRowSize(vectors.reach);
  const int64_t first = tile.head * tile.head_dim * row_size;
  int64_t places[kRows];
  Vec sums[kRows][kPageVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    places[i] = first + PlaceOfDistance(vectors.reach, tile.distance - i);
#pragma GCC unroll 16
    for (int v = 0; v < kPageVectors; ++v) sums[i][v] = Vec::Zero();
  }
  if (vectors.queries != nullptr) {
    for (int64_t e = 0; e < tile.head_dim; ++e) {
      const float* const entries = vectors.queries + e * row_size;
      Vec keys[kPageVectors];
#pragma GCC unroll 16
      for (int v = 0; v < kPageVectors; ++v) {
        keys[v] = KeyElement<T>(tile.keys, e, v * Vec::kLanes);
      }
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
        for (int v = 0; v < kPageVectors; ++v) {
          const Vec queries = Vec::Load(entries + places[i] + v * Vec::kLanes);
          sums[i][v] = Fma(keys[v], queries, sums[i][v]);
        }
      }
    }
    if constexpr (T::kFormat == KvFormat::kInt8) {
      const float* const scales = KvScales(tile.keys, KvRow(tile.head_dim));
      for (int i = 0; i < kRows; ++i) {
        for (int v = 0; v < kPageVectors; ++v) {
          sums[i][v] = sums[i][v] * Vec::Load(scales + v * Vec::kLanes);
        }
      }
    }
  }
  if (vectors.keys != nullptr) {
    for (int64_t e = 0; e < tile.head_dim; ++e) {
      const float* const entries = vectors.keys + e * row_size;
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        const Vec query = Vec::Set(tile.q[i * tile.ldq + e]);
#pragma GCC unroll 16
        for (int v = 0; v < kPageVectors; ++v) {
          const Vec keys = Vec::Load(entries + places[i] + v * Vec::kLanes);
          sums[i][v] = Fma(query, keys, sums[i][v]);
        }
      }
    }
  }
  const Vec unit = Vec::Set(tile.unit);
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (int v = 0; v < kPageVectors; ++v) {
      float* const scores = tile.scores + i * tile.ld_scores + v * Vec::kLanes;
      Fma(sums[i][v], unit, Vec::Load(scores)).Store(scores);
    }
  }
}

}  // namespace
}  // namespace mlc_native::kernels
