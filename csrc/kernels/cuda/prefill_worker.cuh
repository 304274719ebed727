// PrefillWorker: a block's tile of rows of prefill attention, on tensor cores.
//
// Four warps own 32 rows each (16 of the largest heads), whose scores, weights and sums stay in
// registers (prefill_rows.cuh). So a fragment of keys or values that comes from shared memory feeds
// two products. There is room for the queries, for the keys and for the values of one step:
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

#include "kernels/cuda/prefill_rows.cuh"

namespace mlc_native::kernels::cuda {

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
struct PrefillRules : PrefillRowRules {
  __device__ static void AwaitKeys() {  // and, at first, the queries
    WaitForCopies<0>();
    __syncthreads();
  }
  __device__ static void AwaitValues() {
    WaitForCopies<0>();
    __syncthreads();
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
        v_(shared + (kRows + kKeys) * kLd),
        lane_(static_cast<int>(threadIdx.x % kWarp)),
        first_row_(static_cast<int>(threadIdx.x / kWarp) * Shape::kWarpRows),
        rows_(args, Keys(), Tokens(), kv_head, first_row_) {
    if (threadIdx.x == 0) {
      Keys() = TileKeys::Of(args, tile);
      Tokens() = TileTokens::Of(tile);
    }
    __syncthreads();
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
      typename Rows::Factors factors;
      if (rows_.Weigh(key, factors)) rows_.ScaleSums(factors);
      AddValues();
    }
    WaitForCopies<0>();
    rows_.StoreOutput();
  }

 private:
  using Rows = PrefillRows<T, Shape::kDim, Shape::kRowTiles, Rules>;
  static constexpr int kDim = Shape::kDim;
  static constexpr int kLd = Shape::kLd;
  static constexpr int kKeys = Shape::kKeys;
  static constexpr int kRows = Shape::kRows;
  static constexpr int kRowTiles = Shape::kRowTiles;
  static constexpr int kThreads = Shape::kThreads;
  static constexpr int kKeyTiles = Rows::kKeyTiles;
  static constexpr int kChunks = kDim / kVector;
  static constexpr int kPages = kKeys / kKvPageSize;      // of a step
  static constexpr int kCopiedRows = kThreads / kChunks;  // at once
  // The largest heads leave no registers for what is kept across unrolled loops.
  static constexpr int kUnrolledSteps = kDim > 128 ? 2 : kChunks / 2;
  static constexpr int kUnrolledCopies = kDim > 128 ? 1 : 2;

  // In the gaps behind the first two rows.
  __device__ TileKeys& Keys() const { return *reinterpret_cast<TileKeys*>(q_ + kDim); }
  __device__ TileTokens& Tokens() const { return *reinterpret_cast<TileTokens*>(q_ + kLd + kDim); }

  __device__ bool HasChunk(int chunk) const { return chunk * kVector < args_.kv.head_dim; }

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

  // q k^T of the warp's rows.
  __device__ void Scores() {
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int j = 0; j < kKeyTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) rows_.scores[tile][j][i] = 0.0f;
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
          Mma<T>(rows_.scores[tile][j], q[tile], k[0], k[1]);
          Mma<T>(rows_.scores[tile][j + 1], q[tile], k[2], k[3]);
        }
      }
    }
  }

  // The sums += weights v
  __device__ void AddValues() {
    const int matrix = lane_ / 8;
    const T* place = v_ + (matrix % 2 * 8 + lane_ % 8) * kLd + matrix / 2 * kVector;
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      uint32_t weights[kRowTiles][4];
#pragma unroll
      for (int tile = 0; tile < kRowTiles; ++tile) rows_.PackWeights(tile, step, weights[tile]);
#pragma unroll
      for (int chunk = 0; chunk < kChunks; chunk += 2) {
        uint32_t v[4];
        LoadMatricesTransposed(v, place + 16 * step * kLd + chunk * kVector);
#pragma unroll
        for (int tile = 0; tile < kRowTiles; ++tile) {
          Mma<T>(rows_.sums[tile][chunk], weights[tile], v[0], v[1]);
          Mma<T>(rows_.sums[tile][chunk + 1], weights[tile], v[2], v[3]);
        }
      }
    }
  }

  const PrefillArgs& args_;
  const int kv_head_;
  T* const q_;
  T* const k_;
  T* const v_;
  const int lane_;
  const int first_row_;  // of the warp
  int page_;             // of the keys that are copied next
  Rows rows_;
};

}  // namespace mlc_native::kernels::cuda
