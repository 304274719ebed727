// LatentWorker: attention of up to 32 rows to latents, or to heads that are too wide for a warp
// (LatentShape, WideShape), on tensor cores. A row is a query head of a token; all rows of a block
// read the same keys. The latents of keys are their values; values of wide heads lie apart.
//
// Keys are copied to shared memory, kKeys of them while those before are computed with, and latents
// are multiplied twice:
//
//   scores [rows, keys] = queries keys^T   a warp has all rows, a half of the keys, and a quarter
//                                          of their elements, of which it holds the queries
//   weights, from the sums of the four quarters     a warp has some rows, a lane a key
//   sums [rows, latent] += weights latents          a warp has all rows and an eighth of the latent
//
// Of wide heads, the values of a step are copied while its scores are computed, and then the keys
// of the next step.
//
// Nothing is copied behind the last keys, so that nothing is on its way where a block's next rows
// begin. Online softmax in base 2. Sums, maxima and totals stay in registers. The order of all sums
// depends on the keys from the first one on alone, so a row has the same bits among any others.
#pragma once

#include "kernels/cuda/latent_shape.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"

namespace mlc_native::kernels::cuda {

// What tests replace in order to see that it matters.
struct LatentRules {
  // What the thread has copied is there. Behind the barrier, that of all threads is, and all are
  // done with the keys of the step before.
  __device__ static void AwaitKeys() {
    WaitForCopies<0>();
    __syncthreads();
  }
  __device__ static void AwaitWidened() { __syncthreads(); }
  __device__ static void AwaitScores() { __syncthreads(); }
  // What the warp has copied of values that lie apart is there: scales are copied by one lane for
  // others. Keys are still on their way.
  __device__ static void AwaitValues() {
    WaitForCopies<1>();
    __syncwarp();
  }
  __device__ static void AwaitWeights() { __syncthreads(); }
  // The softmax of all rows is there, and all are done with the last keys.
  __device__ static void AwaitSoftmax() { __syncthreads(); }
  // Whether a row sees a key.
  __device__ static bool IsSeen(int key, int end) { return key < end; }
  // Whether a row has another maximum than before: else its sums keep their scale.
  __device__ static bool HasOtherMaximum(bool of_lane) {
    return __ballot_sync(kAllLanes, of_lane) != 0;
  }
};

// The keys that a block reads: from `first`, which is the start of a page, to `end`. With `chosen`,
// key i is the one at position chosen[i], and `first` is a multiple of a page's size.
struct LatentKeys {
  const int32_t* table;
  int first;
  int end;
  const int32_t* chosen = nullptr;
};

template <typename T, typename Kv, typename Shape, typename Rules>
class LatentWorker {
 public:
  using Shared = typename Shape::template Shared<T, Kv>;
  static constexpr int kRows = Shape::kRows;

  __device__ LatentWorker(const KvPages& kv, float scale, void* shared, int kv_head = 0)
      : kv_(kv),
        kv_head_(kv_head),
        scale_(kLog2E * scale),
        shared_(*static_cast<Shared*>(shared)),
        dim_(static_cast<int>(kv.head_dim)),
        value_dim_(static_cast<int>(kValuesApart ? kv.head_dim : kv.latent_dim)),
        warp_(static_cast<int>(threadIdx.x) / kWarp),
        lane_(static_cast<int>(threadIdx.x) % kWarp) {}

  // query(row): of a row, or null, if there is none. seen(row): the end of the keys that it sees.
  // place_of(row, softmax, is_first): where the sums of a row's weighted values go; its
  // Store(column, x0, x1) takes two neighbours. One thread of those that ask for a row is the
  // first.
  template <typename Query, typename Seen, typename Place>
  __device__ void Run(const LatentKeys& keys, const Query& query, const Seen& seen,
                      const Place& place_of) {
    FindPage(keys, keys.first);
    CopyQueries(query);
    Load(kv_.k, keys, keys.first, 0);
    CommitCopies();
    if constexpr (!kValuesApart) FindPage(keys, keys.first + kKeys);
    Rules::AwaitKeys();
    HoldQueries();
    Clear();
    int place = 0;
    for (int key = keys.first; key < keys.end; key += kKeys) {
      Rules::AwaitKeys();
      if constexpr (kIsNarrow) {
        Widen(keys, key, place);
        Rules::AwaitWidened();
      }
      if constexpr (kValuesApart) {
        AddKeysAndValues(keys, key, seen);
      } else {
        if (key + kKeys < keys.end) Load(kv_.k, keys, key + kKeys, place ^ 1);
        CommitCopies();
        FindPage(keys, key + 2 * kKeys);
        Scores(kIsNarrow ? 0 : place);
        Rules::AwaitScores();
        Weigh(key, seen);
        Rules::AwaitWeights();
        AddValues(kIsNarrow ? 0 : place);
        place ^= 1;
      }
    }
    Finish(place_of);
  }

 private:
  static constexpr bool kValuesApart = Shape::kValuesApart;
  static constexpr bool kIsNarrow = kHasKvScales<Kv>;
  static constexpr int kQueryPlace = Shape::template kPlaces<Kv> - 1;
  static constexpr int kRowTiles = Shape::kRowTiles;
  static constexpr int kKeys = Shape::kKeys;
  static constexpr int kDim = Shape::kDim;
  static constexpr int kPageKeys = static_cast<int>(kKvPageSize);
  static constexpr int kQuarters = Shape::kQuarters;
  static constexpr int kSteps = kDim / kQuarters / 16;  // of a quarter
  static constexpr int kHalfKeys = kKeys / 2;
  static constexpr int kWarpRows = kRows / Shape::kWarps;  // whose weights a warp computes
  static constexpr int kColumns = static_cast<int>(kMaxLatentDim) / Shape::kWarps;  // of a warp
  static constexpr int kColumnTiles = kColumns / kVector;
  static constexpr int kLanesOfKey = Shape::kThreads / kKeys;   // that copy a key
  static constexpr int kChunks = kDim / kVector / kLanesOfKey;  // of a lane
  static_assert(kQuarters * 2 == Shape::kWarps && kKeys == kWarp);
  static_assert(sizeof(Shared) <= kMostSharedBytes);
  static_assert(kRows <= kKeys, "queries fit where keys do");

  // A step of keys that are there, at place 0, with its values, at place 1. Narrow values are
  // widened to where the keys were.
  template <typename Seen>
  __device__ void AddKeysAndValues(const LatentKeys& keys, int key, const Seen& seen) {
    Load(kv_.v, keys, key, 1);
    CommitCopies();
    FindPage(keys, key + kKeys);
    Scores(0);
    Rules::AwaitScores();
    if (key + kKeys < keys.end) Load(kv_.k, keys, key + kKeys, 0);
    CommitCopies();
    Weigh(key, seen);
    Rules::AwaitValues();
    if constexpr (kIsNarrow) Widen(keys, key, 1);
    Rules::AwaitWeights();
    AddValues(kIsNarrow ? 0 : 1);
  }

  // ---- Copies ----

  __device__ static int KeyOfThread() { return static_cast<int>(threadIdx.x) / kLanesOfKey; }
  __device__ static int LaneOfKey() { return static_cast<int>(threadIdx.x) % kLanesOfKey; }
  // The first element of the lane's chunk i of a key.
  __device__ static int ColumnOf(int i) { return (LaneOfKey() + i * kLanesOfKey) * kVector; }

  // Of the key that the thread copies in the step from `first` on; behind the last page, the last.
  __device__ void FindPage(const LatentKeys& keys, int first) {
    int position = min(first + KeyOfThread(), keys.end - 1);
    if constexpr (!kValuesApart) {
      if (keys.chosen != nullptr) position = keys.chosen[position];
      of_page_ = position % kPageKeys;
    }
    page_ = keys.table[position / kPageKeys];
  }
  // Of the same key in its page.
  __device__ int KeyOfPage() const { return kValuesApart ? KeyOfThread() % kPageKeys : of_page_; }

  // Zeros where there is no row, and behind the last element, as behind those of keys.
  template <typename Query>
  __device__ void CopyQueries(const Query& query) const {
    const int row = KeyOfThread();
    if (row >= kRows) return;
    const T* const from = query(row);
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const int at = ColumnOf(i);
      const bool valid = from != nullptr && at < dim_;
      const void* any = kv_.k;
      CopyAsync16(&shared_.keys[kQueryPlace][row][at],
                  valid ? static_cast<const void*>(from + at) : any, valid);
    }
  }

  // Of the page page_ of keys or values. Zeros behind the last key: what lies there may be
  // anything.
  __device__ void Load(const void* pages, const LatentKeys& keys, int first, int place) const {
    const int own = KeyOfThread();
    const bool exists = first + own < keys.end;
    const int rows_bytes = kPageKeys * static_cast<int>(sizeof(Kv)) * dim_;
    int64_t head = page_;
    if constexpr (kValuesApart) head = head * kv_.kv_heads + kv_head_;
    const unsigned char* page =
        static_cast<const unsigned char*>(pages) + head * (rows_bytes + kKvScaleBytes<Kv>);
    const Kv* const from = reinterpret_cast<const Kv*>(page) + KeyOfPage() * dim_;
    if constexpr (kIsNarrow) {
      if (LaneOfKey() == 0) {
        const float* scales = reinterpret_cast<const float*>(page + rows_bytes);
        CopyAsyncFew<4>(&shared_.narrow.scales[place][own], scales + KeyOfPage(), true);
      }
    }
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const int at = ColumnOf(i);
      const bool valid = exists && at < dim_;
      if constexpr (kIsNarrow) {
        CopyAsyncFew<8>(&shared_.narrow.keys[place][own][at], from + (valid ? at : 0), valid);
      } else {
        CopyAsync16(&shared_.keys[place][own][at], from + (valid ? at : 0), valid);
      }
    }
  }

  // What the thread has copied becomes what is multiplied.
  __device__ void Widen(const LatentKeys& keys, int first, int place) const {
    const int own = KeyOfThread();
    const float scale = first + own < keys.end ? shared_.narrow.scales[place][own] : 0.0f;
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      float x[kVector];
      LoadFloats(&shared_.narrow.keys[place][own][ColumnOf(i)], x);
#pragma unroll
      for (float& element : x) element *= scale;
      StoreFloats(&shared_.keys[0][own][ColumnOf(i)], x);
    }
  }

  // ---- Scores ----

  __device__ int Quarter() const { return warp_ % kQuarters; }
  __device__ int FirstKey() const { return warp_ / kQuarters * kHalfKeys; }
  __device__ int FirstElement() const { return Quarter() * kSteps * 16; }

  __device__ void HoldQueries() {
    const int matrix = lane_ / 8;
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
      const T* from = &shared_.keys[kQueryPlace][16 * tile + matrix % 2 * 8 + lane_ % 8]
                                   [FirstElement() + matrix / 2 * kVector];
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        LoadMatrices(queries_[tile][step], from + 16 * step);
      }
    }
  }

  __device__ void Clear() {
#pragma unroll
    for (int i = 0; i < kWarpRows; ++i) {
      max_[i] = -INFINITY;
      total_[i] = 0.0f;
    }
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums_[tile][j][i] = 0.0f;
      }
    }
  }

  __device__ void Scores(int place) {
    float scores[kRowTiles][2][4] = {};
    const int matrix = lane_ / 8;
    const T* from = &shared_.keys[place][FirstKey() + matrix / 2 * 8 + lane_ % 8]
                                 [FirstElement() + matrix % 2 * kVector];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      uint32_t k[4];
      LoadMatrices(k, from + 16 * step);
#pragma unroll
      for (int tile = 0; tile < kRowTiles; ++tile) {
        Mma<T>(scores[tile][0], queries_[tile][step], k[0], k[1]);
        Mma<T>(scores[tile][1], queries_[tile][step], k[2], k[3]);
      }
    }
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float* to = &shared_.scores[Quarter()][16 * tile + 8 * half + lane_ / 4]
                                     [FirstKey() + 8 * j + lane_ % 4 * 2];
          *reinterpret_cast<float2*>(to) =
              float2{scores[tile][j][2 * half], scores[tile][j][2 * half + 1]};
        }
      }
    }
  }

  // ---- Weights ----

  // Scores of keys from `key` on become weights.
  template <typename Seen>
  __device__ void Weigh(int key, const Seen& seen) {
#pragma unroll
    for (int i = 0; i < kWarpRows; ++i) {
      const int row = warp_ * kWarpRows + i;
      float score = 0.0f;
#pragma unroll
      for (int quarter = 0; quarter < kQuarters; ++quarter) {
        score += shared_.scores[quarter][row][lane_];
      }
      score = Rules::IsSeen(key + lane_, seen(row)) ? scale_ * score : -INFINITY;
      const float max = fmaxf(max_[i], ReduceWarp(score, Max()));
      const float base = max == -INFINITY ? 0.0f : max;  // the row has seen no key so far
      const float factor = Exp2(max_[i] - base);
      const float weight = Exp2(score - base);
      max_[i] = max;
      total_[i] = total_[i] * factor + weight;
      shared_.weights[row][lane_] = FromFloat<T>(weight);
      if (lane_ == 0) shared_.factors[row] = factor;
    }
  }

  // ---- Values ----

  __device__ int FirstColumn() const { return warp_ * kColumns; }

  __device__ void AddValues(int place) {
    if (FirstColumn() >= value_dim_) return;
    float factors[kRowTiles][2];
    bool has_other_maximum = false;
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        factors[tile][half] = shared_.factors[16 * tile + 8 * half + lane_ / 4];
        has_other_maximum |= factors[tile][half] != 1.0f;
      }
    }
    if (Rules::HasOtherMaximum(has_other_maximum)) ScaleSums(factors);
    const int matrix = lane_ / 8;
    const int line = matrix % 2 * 8 + lane_ % 8;
    const int column = matrix / 2 * kVector;
    const T* const values = &shared_.keys[place][line][dim_ - value_dim_ + FirstColumn() + column];
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      uint32_t weights[kRowTiles][4];
#pragma unroll
      for (int tile = 0; tile < kRowTiles; ++tile) {
        LoadMatrices(weights[tile], &shared_.weights[16 * tile + line][16 * step + column]);
      }
#pragma unroll
      for (int j = 0; j < kColumnTiles; j += 2) {
        uint32_t v[4];
        LoadMatricesTransposed(v, values + 16 * step * (kDim + 8) + j * kVector);
#pragma unroll
        for (int tile = 0; tile < kRowTiles; ++tile) {
          Mma<T>(sums_[tile][j], weights[tile], v[0], v[1]);
          Mma<T>(sums_[tile][j + 1], weights[tile], v[2], v[3]);
        }
      }
    }
  }

  __device__ void ScaleSums(const float (&factors)[kRowTiles][2]) {
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums_[tile][j][i] *= factors[tile][i / 2];
      }
    }
  }

  template <typename Place>
  __device__ void Finish(const Place& place_of) {
#pragma unroll
    for (int i = 0; i < kWarpRows; ++i) {
      const float total = ReduceWarp(total_[i], Plus());
      if (lane_ == 0) shared_.softmax[warp_ * kWarpRows + i] = {max_[i], total};
    }
    Rules::AwaitSoftmax();
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = 16 * tile + 8 * half + lane_ / 4;
        const bool is_first = warp_ == 0 && lane_ % 4 == 0;
        const auto place = place_of(row, shared_.softmax[row], is_first);
#pragma unroll
        for (int j = 0; j < kColumnTiles; ++j) {
          const int column = FirstColumn() + 8 * j + lane_ % 4 * 2;
          if (column >= value_dim_) break;
          place.Store(column, sums_[tile][j][2 * half], sums_[tile][j][2 * half + 1]);
        }
      }
    }
  }

  const KvPages& kv_;
  const int kv_head_;
  const float scale_;  // of scores, to base 2
  Shared& shared_;
  const int dim_;
  const int value_dim_;
  const int warp_;
  const int lane_;
  int page_;  // of the key that the thread copies next
  int of_page_;
  uint32_t queries_[kRowTiles][kSteps][4];
  float max_[kWarpRows];
  float total_[kWarpRows];  // of the lane's keys
  float sums_[kRowTiles][kColumnTiles][4];
};

}  // namespace mlc_native::kernels::cuda
