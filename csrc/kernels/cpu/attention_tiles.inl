// Register tiles of paged attention: scores of some queries for some pages, and values of a step's
// tokens added to some queries. Included by cpu/attention.inl only.
//
// For each query, the order of sums is that of head_dim (scores) and of the tokens (values), pair
// by pair, independent of the tile. Whether a pair is split depends only on the query's own tokens.
#pragma once

#include "kernels/cpu/kv_pages.inl"

namespace mlc_native::kernels {
namespace {

constexpr int64_t kStepTokens = kPagesPerStep * kPageSize;
constexpr int64_t kPagePairs = kPageSize / 2;
constexpr int kPageVectors = static_cast<int>(kPageSize) / Vec::kLanes;
static_assert(kPageSize % Vec::kLanes == 0 && kKvRowUnit % Vec::kLanes == 0);

// A tile of few queries computes several pages or several vectors of head_dim at a time, because at
// least kChains independent sums hide the latency of the multiply-adds. A power of two.
constexpr int kChains = kTileRows >= 12 ? 16 : 8;
template <int kQueries, int kMost>
constexpr int kAtOnce =
    kQueries * kMost <= kChains || kMost == 1 ? kMost : kAtOnce<kQueries, kMost / 2>;

// Positions [first, last].
struct KeyRange {
  int64_t first;
  int64_t last;
};

// Pages of a step that a tile reads, K or V of one kv head, by their number in the step. While a
// tile reads a line of a page, it prefetches that of the page in `ahead`, which is read later (or
// the same page), so that it does not wait for memory between products. Prefetches of whole pages
// at once would wait for each other.
template <typename T>
struct StepPages {
  const typename T::Storage* data[kPagesPerStep] = {};
  const typename T::Storage* ahead[kPagesPerStep] = {};
};

template <int64_t kElements, typename Storage>
inline void PrefetchElements(const Storage* p) {
  constexpr int64_t kLine = 64 / sizeof(Storage);
#pragma GCC unroll 16
  for (int64_t i = 0; i < kElements; i += kLine) PrefetchL2(p + i);
}

// Elements of head_dim that all queries of a block multiply before they go on to the next, so that
// what tiles share stays in the level-1 cache. Sums wait in memory meanwhile, which rounds nothing.
// As many as a tile of one query adds at a time, or a multiple.
constexpr int64_t kElementsAtOnce = 128;
static_assert(kElementsAtOnce % (8 * Vec::kLanes) == 0);

// Pairs [begin, end) of elements of head_dim.
struct PairRange {
  int64_t begin;
  int64_t end;
};

// scores[kQueries, kPages * 16] += q[kQueries, row] . k[page][row, 16] for some pairs of elements,
// of which the first ones begin with 0.
template <typename T, int kQueries, int kPages>
inline void ScoreTile(const StepPages<T>& pages, int64_t page, const float* q, int64_t row,
                      PairRange pairs, float* scores) {
  const typename T::Storage* const* const k = pages.data + page;
  Vec acc[kQueries][kPages][kPageVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 16
    for (int p = 0; p < kPages; ++p) {
#pragma GCC unroll 16
      for (int v = 0; v < kPageVectors; ++v) {
        const float* sum = scores + i * kStepTokens + p * kPageSize + v * Vec::kLanes;
        acc[i][p][v] = pairs.begin == 0 ? Vec::Zero() : Vec::Load(sum);
      }
    }
  }
  for (int64_t pair = pairs.begin; pair < pairs.end; ++pair) {
#pragma GCC unroll 16
    for (int p = 0; p < kPages; ++p) {
      PrefetchElements<2 * kPageSize>(pages.ahead[page + p] + 2 * pair * kPageSize);
    }
#pragma GCC unroll 2
    for (int part = 0; part < T::kParts; ++part) {
      decltype(T::template LoadPairs<3>(k[0], 0, 0)) keys[kPages][kPageVectors];
#pragma GCC unroll 16
      for (int p = 0; p < kPages; ++p) {
#pragma GCC unroll 16
        for (int v = 0; v < kPageVectors; ++v) {
          keys[p][v] = T::template LoadPairs<3>(
              k[p] + 2 * pair * kPageSize + v * Vec::kLanes * T::kStep, kPageSize, part);
        }
      }
#pragma GCC unroll 16
      for (int i = 0; i < kQueries; ++i) {
        const auto input = T::Input(q + i * AttentionScratchRow(row), pair, part);
#pragma GCC unroll 16
        for (int p = 0; p < kPages; ++p) {
#pragma GCC unroll 16
          for (int v = 0; v < kPageVectors; ++v) {
            acc[i][p][v] = T::Add(acc[i][p][v], input, keys[p][v]);
          }
        }
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 16
    for (int p = 0; p < kPages; ++p) {
#pragma GCC unroll 16
      for (int v = 0; v < kPageVectors; ++v) {
        if constexpr (T::kFormat == KvFormat::kInt8) {
          if (pairs.end == row / 2) {
            acc[i][p][v] = acc[i][p][v] * Vec::Load(KvScales(k[p], row) + v * Vec::kLanes);
          }
        }
        acc[i][p][v].Store(scores + i * kStepTokens + p * kPageSize + v * Vec::kLanes);
      }
    }
  }
}

// Values to add: the pages of V; weights (as inputs) of the step's token 0; tokens within the step.
template <typename T>
struct ValueTile {
  const StepPages<T>& v;
  const float* weights;
  float* out;
  int64_t row;
  KeyRange tokens;
};

// acc += weights * values for one pair of tokens, or for one of the two (kTokens, see
// kv_pages.inl).
template <typename T, int kTokens, int kQueries, int kVectors>
inline __attribute__((always_inline)) void AddPair(const typename T::Storage* v, int64_t row,
                                                   const float* weights, int64_t pair,
                                                   Vec (&acc)[kQueries][kVectors]) {
#pragma GCC unroll 2
  for (int part = 0; part < T::kParts; ++part) {
    if (T::kParts == 2 && (kTokens >> part & 1) == 0) continue;
    decltype(T::template LoadPairs<3>(v, 0, 0)) values[kVectors];
#pragma GCC unroll 16
    for (int j = 0; j < kVectors; ++j) {
      values[j] = T::template LoadPairs<kTokens>(v + j * Vec::kLanes * T::kStep, row, part);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kQueries; ++i) {
      const auto input = T::Input(weights + i * kStepTokens, pair, part);
#pragma GCC unroll 16
      for (int j = 0; j < kVectors; ++j) acc[i][j] = T::Add(acc[i][j], input, values[j]);
    }
  }
}

// out[kQueries, kVectors vectors from d on] += sum over the tokens of weights[query, token] *
// v[token, :]
template <typename T, int kQueries, int kVectors>
inline void AddValues(const ValueTile<T>& tile, int64_t d) {
  const int64_t out_row = AttentionScratchRow(tile.row);
  float* const out = tile.out + d;
  Vec acc[kQueries][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kVectors; ++j) acc[i][j] = Vec::Load(out + i * out_row + j * Vec::kLanes);
  }
  const auto pair_of = [&](const typename T::Storage* const* v, int64_t pair) {
    return v[pair / kPagePairs] + pair % kPagePairs * 2 * tile.row + d * T::kStep;
  };
  const auto pair_at = [&](int64_t pair) { return pair_of(tile.v.data, pair); };
  int64_t pair = tile.tokens.first / 2;
  const int64_t end = (tile.tokens.last + 1) / 2;
  if (tile.tokens.first % 2 == 1) {
    AddPair<T, 2>(pair_at(pair), tile.row, tile.weights, pair, acc);
    ++pair;
  }
  while (pair < end) {
    const int64_t page_end = Min64(end, (pair / kPagePairs + 1) * kPagePairs);
    const typename T::Storage* v = pair_at(pair);
    const typename T::Storage* ahead = pair_of(tile.v.ahead, pair);
    for (; pair < page_end; ++pair, v += 2 * tile.row, ahead += 2 * tile.row) {
#pragma GCC unroll 2
      for (int part = 0; part < T::kParts; ++part) {
        PrefetchElements<kVectors * Vec::kLanes * T::kStep>(ahead + part * tile.row);
      }
      AddPair<T, 3>(v, tile.row, tile.weights, pair, acc);
    }
  }
  if (tile.tokens.last % 2 == 0) {
    AddPair<T, 1>(pair_at(pair), tile.row, tile.weights, pair, acc);
  }
#pragma GCC unroll 16
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kVectors; ++j) acc[i][j].Store(out + i * out_row + j * Vec::kLanes);
  }
}

// Adds the tokens to the elements [d, end) of kQueries queries, as many vectors at a time as
// registers allow (a power of two, to divide head_dim).
template <typename T, int kQueries>
void AddAllValues(const ValueTile<T>& tile, int64_t d, int64_t end) {
  constexpr int kVectors = kAtOnce<kQueries, 8> > 2 ? kAtOnce<kQueries, 8> : 2;
  const auto run = [&](auto vectors) {
    constexpr int kStep = decltype(vectors)::value * Vec::kLanes;
    for (; d + kStep <= end; d += kStep) {
      AddValues<T, kQueries, decltype(vectors)::value>(tile, d);
    }
  };
  run(Constant<kVectors>{});
  run(Constant<1>{});
}

}  // namespace
}  // namespace mlc_native::kernels
