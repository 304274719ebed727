// PrefillWorker: a block's tile of rows of prefill attention, on tensor cores.
//
// Four warps own 32 rows each (16 of the largest heads), whose scores, weights and sums stay in
// registers (online softmax in base 2). So a fragment of keys or values that comes from shared
// memory feeds two products. There is room for the queries, for the keys and for the values of one
// step:
//
//   keys:    ... | scores(i)  |  copied: keys of i + 1      | scores(i + 1) ...
//   values:  ... | copied: of i | softmax(i), values(i)     | copied: of i + 1 ...
//                ^ AwaitKeys    ^ AwaitValues               ^ AwaitKeys
//
// What the threads await is also that all of them are done with what is overwritten next.
//
// At head_dim 128 the sums and scores are 192 of at most 255 registers. So that nothing spills,
// what all threads of the block have in common lies in shared memory, and page numbers in the
// lanes of a warp; and rows are padded, so that all places of a warp are one address and constants.
#pragma once

#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"

namespace mlc_native::kernels::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;

struct PrefillArgs {
  KvPages kv;
  AttentionArgs a;
  const PrefillTile* tiles;
  int group;  // query heads of a kv head
};

// What a block computes: rows (tokens times the query heads of a kv head) of kDim elements, and
// per warp kTilesOfRows times 16 of them.
template <int kHeadDim, int kTilesOfRows>
struct PrefillShape {
  static constexpr int kDim = kHeadDim;
  static constexpr int kRowTiles = kTilesOfRows;
  static constexpr int kWarps = 4;
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kWarpRows = 16 * kTilesOfRows;
  static constexpr int kRows = kWarps * kWarpRows;
  static constexpr int kKeys = static_cast<int>(kPrefillKeys);
  // From row to row in shared memory. Eight rows' elements of one column lie in different banks,
  // and places differ by what is known at compile time.
  static constexpr int kLd = kDim + kVector;
  static constexpr size_t kSharedBytes = 2 * (kRows + 2 * kKeys) * kLd;
  static_assert(kSharedBytes <= kMostSharedBytes);
};

// What tests replace in order to see that it matters.
struct PrefillRules {
  __device__ static void AwaitKeys() {  // and, at first, the queries
    WaitForCopies<0>();
    __syncthreads();
  }
  __device__ static void AwaitValues() {
    WaitForCopies<0>();
    __syncthreads();
  }
  // Whether a row of a tile, which sees keys from `first_seen` (the last row) up to `last_seen`
  // (the first one), does not see one of `num_keys` keys.
  __device__ static bool HasUnseen(int key, int num_keys, int first_seen, int last_seen) {
    return key < first_seen || key + num_keys > last_seen + 1;
  }
  // Whether a row of the warp has another maximum than before: else its sums keep their scale.
  __device__ static bool HasOtherMaximum(bool of_lane) {
    return __ballot_sync(kAllLanes, of_lane) != 0;
  }
  // The row of a warp to which elements 2 `half` and the next of its products belong.
  __device__ static int RowOfWarp(int lane, int tile, int half) {
    return 16 * tile + lane / 4 + 8 * half;
  }
};

template <typename T, typename Kv, typename Shape, typename Rules = PrefillRules>
class PrefillWorker {
 public:
  __device__ PrefillWorker(const PrefillArgs& args, const PrefillTile& tile, int kv_head, T* shared)
      : args_(args),
        kv_head_(kv_head),
        q_(shared),
        k_(shared + kRows * kLd),
        v_(shared + (kRows + kKeys) * kLd) {
    lane_ = static_cast<int>(threadIdx.x % kWarp);
    first_row_ = static_cast<int>(threadIdx.x / kWarp) * Shape::kWarpRows;
    if (threadIdx.x == 0) {
      Keys() = {.first = FirstSeen(tile.first_position),
                .end = tile.first_position + tile.num_rows,
                .first_position = tile.first_position,
                .table = tile.table};
    }
    __syncthreads();
    scale_ = kLog2E * (Caps() ? 1.0f : args.a.scale);
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) max_[tile][half] = -INFINITY;
    }
  }

  __device__ void Run() {
    LoadQueries();
    int key = Keys().first / kKeys * kKeys;
    FindPages(key);
    LoadKeys(key, args_.kv.k, k_);
    CommitCopies();
    for (; key < Keys().end; key += kKeys) {
      Rules::AwaitKeys();
      LoadKeys(key, args_.kv.v, v_);
      CommitCopies();
      FindPages(key + kKeys);
      Scores();
      Rules::AwaitValues();
      LoadKeys(key + kKeys, args_.kv.k, k_);
      CommitCopies();
      Softmax(key);
      AddValues();
    }
    WaitForCopies<0>();
    StoreOutput();
  }

 private:
  static constexpr int kDim = Shape::kDim;
  static constexpr int kLd = Shape::kLd;
  static constexpr int kKeys = Shape::kKeys;
  static constexpr int kRows = Shape::kRows;
  static constexpr int kRowTiles = Shape::kRowTiles;
  static constexpr int kThreads = Shape::kThreads;
  static constexpr int kKeyTiles = kKeys / 8;  // columns of scores, 8 at a time
  static constexpr int kChunks = kDim / kVector;
  static constexpr int kPages = kKeys / kKvPageSize;      // of a step
  static constexpr int kCopiedRows = kThreads / kChunks;  // at once
  // The largest heads leave no registers for what is kept across unrolled loops.
  static constexpr int kUnrolledSteps = kDim > 128 ? 2 : kChunks / 2;
  static constexpr int kUnrolledCopies = kDim > 128 ? 1 : 2;

  // The keys that any row of the tile sees. In shared memory, in the gap behind the first row,
  // because registers are full.
  struct alignas(16) TileKeys {
    int first;
    int end;
    int first_position;
    int table;
  };
  __device__ TileKeys& Keys() const { return *reinterpret_cast<TileKeys*>(q_ + kDim); }

  __device__ bool HasChunk(int chunk) const { return chunk * kVector < args_.kv.head_dim; }

  // Scores, or they are multiplied by a scale that is not positive.
  __device__ bool Caps() const { return args_.a.soft_cap > 0 || args_.a.scale <= 0; }

  // The first key that a token attends to.
  __device__ int FirstSeen(int position) const {
    const int window = static_cast<int>(args_.a.window);
    return window > 0 && position >= window ? position - window + 1 : 0;
  }

  __device__ void LoadQueries() const {
    const PrefillTile& tile = args_.tiles[blockIdx.x];
    const int64_t dim = args_.kv.head_dim;
    const T* from = static_cast<const T*>(args_.a.q) + tile.row_begin * args_.a.ldq +
                    kv_head_ * args_.group * dim;
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunks; i += kThreads) {
      const int row = i / kChunks;
      const int chunk = i % kChunks;
      const int token = row / args_.group;
      const bool valid = token < tile.num_rows && HasChunk(chunk);
      const T* q = from + token * args_.a.ldq + row % args_.group * dim + chunk * kVector;
      CopyAsync16(q_ + row * kLd + chunk * kVector, valid ? q : from, valid);
    }
  }

  // Of the keys from `first` on; for pages to which no row of the tile attends, others to which one
  // does.
  __device__ void FindPages(int first) {
    constexpr int kSize = static_cast<int>(kKvPageSize);
    const TileKeys keys = Keys();
    const int32_t* table = args_.a.block_tables + keys.table * args_.a.ld_block_tables;
    const int page = min(first / kSize + lane_ % kPages, (keys.end - 1) / kSize);
    page_ = table[max(page, keys.first / kSize)];
  }

  // Keys from `first` on, whose pages are pages_; zeros for keys that no row of the tile attends
  // to: what lies there may be anything.
  __device__ void LoadKeys(int first, const void* pages, T* to) const {
    constexpr int kSize = static_cast<int>(kKvPageSize);
    const auto dim = static_cast<int>(args_.kv.head_dim);
    const auto row = static_cast<int>(threadIdx.x / kChunks);
    const auto chunk = static_cast<int>(threadIdx.x % kChunks);
    constexpr int kScales = kKvScaleBytes<Kv> / static_cast<int>(sizeof(Kv));
    const int head_elements = kSize * dim + kScales;
    const int in_head = row * dim + (HasChunk(chunk) ? chunk * kVector : 0);
    const int offset = kv_head_ * head_elements + in_head;
    T* const place = to + row * kLd + chunk * kVector;
    const int page_elements = static_cast<int>(args_.kv.kv_heads) * head_elements;
    const TileKeys keys = Keys();
    const unsigned num_keys = HasChunk(chunk) ? keys.end - keys.first : 0;
#pragma unroll
    for (int i = 0; i < kPages; ++i) {
      const Kv* page =
          static_cast<const Kv*>(pages) +
          (static_cast<int64_t>(__shfl_sync(kAllLanes, page_, i)) * page_elements + offset);
#pragma unroll kUnrolledCopies
      for (int j = 0; j < kSize; j += kCopiedRows) {
        const int at = i * kSize + j;
        const bool valid = static_cast<unsigned>(first + at + row - keys.first) < num_keys;
        if constexpr (kHasKvScales<Kv>) {
          const auto* scales = reinterpret_cast<const float*>(page - in_head + kSize * dim);
          WidenChunk(place + at * kLd, page + j * dim, scales[j + row], valid);
        } else {
          CopyAsync16(place + at * kLd, page + j * dim, valid);
        }
      }
    }
  }

  // 8 bits become 16, times their scale; they are not copied in the background.
  __device__ static void WidenChunk(T* to, const Kv* from, float scale, bool valid) {
    float x[kVector];
    LoadFloats(from, x);
#pragma unroll
    for (int i = 0; i < kVector; ++i) x[i] = valid ? scale * x[i] : 0.0f;
    StoreFloats(to, x);
  }

  // scores_[tile][j] = q k^T of 16 rows of the warp and keys 8 j ..
  __device__ void Scores() {
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int j = 0; j < kKeyTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) scores_[tile][j][i] = 0.0f;
      }
    }
    const int matrix = lane_ / 8;
    const int row = lane_ % 8;
    const T* q_place = q_ + (first_row_ + matrix % 2 * 8 + row) * kLd + matrix / 2 * kVector;
    const T* k_place = k_ + (matrix / 2 * 8 + row) * kLd + matrix % 2 * kVector;
#pragma unroll kUnrolledSteps
    for (int step = 0; step < kChunks / 2; ++step) {  // 16 elements of head_dim
      uint32_t q[kRowTiles][4];
#pragma unroll
      for (int tile = 0; tile < kRowTiles; ++tile) {
        LoadMatrices(q[tile], q_place + 16 * (tile * kLd + step));
      }
#pragma unroll
      for (int j = 0; j < kKeyTiles; j += 2) {
        uint32_t k[4];
        LoadMatrices(k, k_place + 8 * j * kLd + 16 * step);
#pragma unroll
        for (int tile = 0; tile < kRowTiles; ++tile) {
          Mma<T>(scores_[tile][j], q[tile], k[0], k[1]);
          Mma<T>(scores_[tile][j + 1], q[tile], k[2], k[3]);
        }
      }
    }
  }

  // scores_ become weights of the keys `key`..; sums_ and total_ are scaled to the new maximum.
  __device__ void Softmax(int key) {
    if (Caps()) CapScores();
    const TileKeys keys = Keys();
    const int first_seen = args_.a.window > 0 ? keys.end - static_cast<int>(args_.a.window) : 0;
    if (Rules::HasUnseen(key, kKeys, first_seen, keys.first_position)) HideUnseen(key);
    float factors[kRowTiles][2];
    bool has_other_maximum = false;
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        factors[tile][half] = WeighKeys(tile, half);
        has_other_maximum |= factors[tile][half] != 1.0f;
      }
    }
    if (Rules::HasOtherMaximum(has_other_maximum)) ScaleSums(factors);
  }

  // Returns what the sums so far are to be multiplied by.
  __device__ float WeighKeys(int tile, int half) {
    float highest = -INFINITY;
#pragma unroll
    for (int j = 0; j < kKeyTiles; ++j) {
      const float (&score)[4] = scores_[tile][j];
      highest = fmaxf(highest, fmaxf(score[2 * half], score[2 * half + 1]));
    }
    const float max = fmaxf(max_[tile][half], ReduceWarp<4>(highest, Max()) * scale_);
    const float base = max == -INFINITY ? 0.0f : max;  // no key of this row so far
    const float factor = Exp2(max_[tile][half] - base);
    max_[tile][half] = max;
    float total = 0.0f;
#pragma unroll
    for (int j = 0; j < kKeyTiles; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& score = scores_[tile][j][2 * half + i];
        score = Exp2(fmaf(score, scale_, -base));
        total += score;
      }
    }
    total_[tile][half] = total_[tile][half] * factor + total;
    return factor;
  }

  __device__ void ScaleSums(const float (&factors)[kRowTiles][2]) {
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums_[tile][chunk][i] *= factors[tile][i / 2];
      }
    }
  }

  // The position of a row's token; below zero: the row is unused.
  __device__ int Position(int tile, int half) const {
    int row = first_row_ + Rules::RowOfWarp(lane_, tile, half);
    const int token = static_cast<int>(static_cast<unsigned>(row) / args_.group);
    const int position = Keys().first_position + token;
    return position < Keys().end ? position : -1;
  }

  __device__ void HideUnseen(int key) {
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int last = Position(tile, half);
        const int first = FirstSeen(last);
        const int column = key + lane_ % 4 * 2 - first;
        const int span = last - first;
#pragma unroll
        for (int j = 0; j < kKeyTiles; ++j) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int at = column + 8 * j + i;
            if (at < 0 || at > span) scores_[tile][j][2 * half + i] = -INFINITY;
          }
        }
      }
    }
  }

  __device__ void CapScores() {
    const float scale = args_.a.scale;
    const float cap = args_.a.soft_cap;
    const float factor = cap > 0 ? FastDivide(scale, cap) : scale;
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int j = 0; j < kKeyTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          scores_[tile][j][i] *= factor;
        }
      }
    }
    if (cap <= 0) return;
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int j = 0; j < kKeyTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) scores_[tile][j][i] = cap * FastTanh(scores_[tile][j][i]);
      }
    }
  }

  // sums_ += weights v
  __device__ void AddValues() {
    const int matrix = lane_ / 8;
    const T* place = v_ + (matrix % 2 * 8 + lane_ % 8) * kLd + matrix / 2 * kVector;
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      uint32_t weights[kRowTiles][4];
#pragma unroll
      for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float (&score)[4] = scores_[tile][2 * step + i / 2];
          weights[tile][i] = Pack<T>(score[i % 2 * 2], score[i % 2 * 2 + 1]);
        }
      }
#pragma unroll
      for (int chunk = 0; chunk < kChunks; chunk += 2) {
        uint32_t v[4];
        LoadMatricesTransposed(v, place + 16 * step * kLd + chunk * kVector);
#pragma unroll
        for (int tile = 0; tile < kRowTiles; ++tile) {
          Mma<T>(sums_[tile][chunk], weights[tile], v[0], v[1]);
          Mma<T>(sums_[tile][chunk + 1], weights[tile], v[2], v[3]);
        }
      }
    }
  }

  // What the sink of the row's head adds to a sum of weights in front of which 2^-max is left out.
  __device__ float Sink(int row, float max) const {
    if (args_.a.sinks == nullptr) return 0.0f;
    const int64_t head = kv_head_ * args_.group + row % args_.group;
    return Exp2(kLog2E * ToFloat(static_cast<const T*>(args_.a.sinks)[head]) - max);
  }

  __device__ void StoreOutput() {
    const int row_begin = args_.tiles[blockIdx.x].row_begin;
    const int64_t dim = args_.kv.head_dim;
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float total = ReduceWarp<4>(total_[tile][half], Plus());
        if (Position(tile, half) < 0) continue;
        const int row = first_row_ + Rules::RowOfWarp(lane_, tile, half);
        const float scale = 1.0f / (total + Sink(row, max_[tile][half]));
        T* out = static_cast<T*>(args_.a.out) + (row_begin + row / args_.group) * args_.a.ldo +
                 (kv_head_ * args_.group + row % args_.group) * dim + lane_ % 4 * 2;
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) {
          if (!HasChunk(chunk)) break;
          const float (&sums)[4] = sums_[tile][chunk];
          *reinterpret_cast<uint32_t*>(out + chunk * kVector) =
              Pack<T>(sums[2 * half] * scale, sums[2 * half + 1] * scale);
        }
      }
    }
  }

  const PrefillArgs& args_;
  const int kv_head_;
  T* const q_;
  T* const k_;
  T* const v_;
  int lane_;
  int first_row_;                          // of the warp
  int page_;                               // of the keys that are copied next
  float scores_[kRowTiles][kKeyTiles][4];  // then weights
  float sums_[kRowTiles][kChunks][4] = {};
  float scale_;  // of scores, to base 2; positive
  float max_[kRowTiles][2];
  float total_[kRowTiles][2] = {};  // of the lane's columns
};

}  // namespace mlc_native::kernels::cuda
