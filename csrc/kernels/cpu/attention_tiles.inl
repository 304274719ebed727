// Register tiles of paged attention: scores of some queries for some pages, and values of one page
// added to some queries. Included by cpu/attention.inl only.
//
// Per query the order is that of head_dim (scores) and of the tokens (values), whatever the tile.
#pragma once

#include "kernels/cpu/vec_math.inl"

namespace mlc_native::kernels {
namespace {

constexpr int64_t kStepTokens = kPagesPerStep * kPageSize;
constexpr int kPageVectors = static_cast<int>(kPageSize) / Vec::kLanes;
static_assert(kPageSize % Vec::kLanes == 0);

constexpr int64_t kAhead = 4;  // pages whose addresses are known in advance, to prefetch them

// Tiles of few queries take several pages or several vectors of head_dim at a time: at least
// kChains independent sums hide the latency of the multiply-adds. A power of two, to divide evenly.
constexpr int kChains = 8;
template <int kQueries, int kMost>
constexpr int kAtOnce =
    kQueries * kMost <= kChains || kMost == 1 ? kMost : kAtOnce<kQueries, kMost / 2>;

// scores[kQueries, kPages * 16] = q[kQueries, head_dim] . k[page][head_dim, 16]; pages
// further on are prefetched.
template <typename T, int kQueries, int kPages>
inline void ScorePageGroup(const typename T::Storage* const* k, const float* q, int64_t q_stride,
                           int64_t head_dim, float* scores) {
  constexpr int kDistance = kPages > 2 ? kPages : 2;
  static_assert(kDistance <= kAhead);
  Vec acc[kQueries][kPages][kPageVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 16
    for (int p = 0; p < kPages; ++p) {
#pragma GCC unroll 16
      for (int v = 0; v < kPageVectors; ++v) acc[i][p][v] = Vec::Zero();
    }
  }
  for (int64_t d = 0; d < head_dim; ++d) {
#pragma GCC unroll 16
    for (int p = 0; p < kPages; ++p) {
      Prefetch(k[p + kDistance] + d * kPageSize);
      Vec kd[kPageVectors];
#pragma GCC unroll 16
      for (int v = 0; v < kPageVectors; ++v) {
        kd[v] = T::LoadAs(k[p] + d * kPageSize + v * Vec::kLanes);
      }
#pragma GCC unroll 16
      for (int i = 0; i < kQueries; ++i) {
        const Vec qd = Vec::Set(q[i * q_stride + d]);
#pragma GCC unroll 16
        for (int v = 0; v < kPageVectors; ++v) acc[i][p][v] = Fma(qd, kd[v], acc[i][p][v]);
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 16
    for (int p = 0; p < kPages; ++p) {
#pragma GCC unroll 16
      for (int v = 0; v < kPageVectors; ++v) {
        acc[i][p][v].Store(scores + i * kStepTokens + p * kPageSize + v * Vec::kLanes);
      }
    }
  }
}

// Values of one page to add: weights and out are of the first query and of the page's token 0.
struct ValueTile {
  const float* weights;
  float* out;
  int64_t out_stride;
  int64_t first_token;  // within the page
  int64_t last_token;
};

// out[kQueries, kVectors vectors] += sum over the tokens of weights[query, token] * v[token, :]
template <typename T, int kQueries, int kVectors>
inline void AddValues(const typename T::Storage* v, const typename T::Storage* next,
                      int64_t head_dim, const ValueTile& tile) {
  Vec acc[kQueries][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kVectors; ++j) {
      acc[i][j] = Vec::Load(tile.out + i * tile.out_stride + j * Vec::kLanes);
    }
  }
  for (int64_t t = tile.first_token; t <= tile.last_token; ++t) {
    Prefetch(next + t * head_dim);
    Vec vt[kVectors];
#pragma GCC unroll 16
    for (int j = 0; j < kVectors; ++j) vt[j] = T::LoadAs(v + t * head_dim + j * Vec::kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kQueries; ++i) {
      const Vec weight = Vec::Set(tile.weights[i * kStepTokens + t]);
#pragma GCC unroll 16
      for (int j = 0; j < kVectors; ++j) acc[i][j] = Fma(weight, vt[j], acc[i][j]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kVectors; ++j) {
      acc[i][j].Store(tile.out + i * tile.out_stride + j * Vec::kLanes);
    }
  }
}

// The last head_dim % lanes elements of a row.
template <typename T>
void AddValuesTail(const typename T::Storage* v, int64_t head_dim, int64_t count, int64_t queries,
                   const ValueTile& tile) {
  for (int64_t i = 0; i < queries; ++i) {
    float* out = tile.out + i * tile.out_stride;
    Vec acc = Vec::Load(out);
    for (int64_t t = tile.first_token; t <= tile.last_token; ++t) {
      const Vec weight = Vec::Set(tile.weights[i * kStepTokens + t]);
      acc = Fma(weight, LoadPartialAs<T>(v + t * head_dim, count), acc);
    }
    acc.Store(out);
  }
}

// Adds one page's tokens to kQueries queries, as many vectors of head_dim at a time as registers
// allow (a power of two, to divide head_dim).
template <typename T, int kQueries>
void AddPage(const typename T::Storage* v, const typename T::Storage* next, int64_t head_dim,
             ValueTile tile) {
  constexpr int kVectors = kAtOnce<kQueries, 8> > 2 ? kAtOnce<kQueries, 8> : 2;
  int64_t d = 0;
  const auto run = [&](auto vectors) {
    constexpr int kStep = decltype(vectors)::value * Vec::kLanes;
    for (; d + kStep <= head_dim; d += kStep) {
      AddValues<T, kQueries, decltype(vectors)::value>(v + d, next + d, head_dim, tile);
      tile.out += kStep;
    }
  };
  run(Constant<kVectors>{});
  run(Constant<1>{});
  if (d < head_dim) AddValuesTail<T>(v + d, head_dim, head_dim - d, kQueries, tile);
}

}  // namespace
}  // namespace mlc_native::kernels
