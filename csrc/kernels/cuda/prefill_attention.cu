// PrefillAttention on tensor cores: many rows of a sequence against its pages.
//
// A block computes a tile of 128 rows (64 of the largest heads) of one kv head: tokens times the
// query heads that share it, so each key is loaded once for all of them. Keys and values are copied
// asynchronously to shared memory, kPrefillKeys at a time: the values of a step while its scores
// are computed, and then the keys of the next step. A warp owns 16 rows; scores, weights and sums
// stay in its registers (online softmax in base 2).
//
// Steps start at multiples of kPrefillKeys, and keys that a row may not attend to add exact zeros,
// so a row's result does not depend on its tile.
//
// Operations: 4 head_dim per query head and key, with head_dim padded to 64, 128 or 256; half of
// the steps at the causal edge are wasted. Bytes: the keys and values before a tile, mostly from
// L2.
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"

namespace mlc_native::kernels::cuda {
namespace {

// Of a block. Queries, keys and values of the largest heads would not fit with more of them.
constexpr int Warps(int64_t head_dim) { return head_dim > 128 ? 4 : 8; }
constexpr int Rows(int64_t head_dim) { return Warps(head_dim) * 16; }
constexpr int kKeys = static_cast<int>(kPrefillKeys);
constexpr int kKeyTiles = kKeys / 8;  // columns of scores, 8 at a time
constexpr float kLog2E = 1.4426950408889634f;

struct KernelArgs {
  KvPages kv;
  AttentionArgs a;
  const PrefillTile* tiles;
  int group;  // query heads of a kv head
};

// Rows of kDim 16-bit elements in shared memory, 16-byte chunks permuted by the row, so that eight
// rows' chunks of one column lie in different banks.
template <typename T, int kDim>
struct SharedTile {
  T* data;

  // Split so that what is known of `chunk` at compile time goes into the instruction's offset.
  __device__ T* At(int row, int chunk) const {
    return data + row * kDim + chunk / 8 * 8 * kVector + ((chunk % 8) ^ (row % 8)) * kVector;
  }
};

template <typename T, typename Kv, int kDim>
class Worker {
 public:
  __device__ Worker(const KernelArgs& args, const PrefillTile& tile, int kv_head, T* shared)
      : args_(args),
        tile_(tile),
        kv_head_(kv_head),
        q_{shared},
        k_{shared + Rows(kDim) * kDim},
        v_{shared + (Rows(kDim) + kKeys) * kDim} {
    lane_ = static_cast<int>(threadIdx.x) % kWarp;
    first_row_ = static_cast<int>(threadIdx.x) / kWarp * 16;
    const int64_t window = args.a.window;
    first_key_ = window > 0 && tile.first_position >= window
                     ? tile.first_position - static_cast<int>(window) + 1
                     : 0;
    end_key_ = tile.first_position + tile.num_rows;
    const float scale = args.a.scale * args.kv.k_scale;
    caps_ = args.a.soft_cap > 0 || scale <= 0;
    scale_ = kLog2E * (caps_ ? 1.0f : scale);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int token = (first_row_ + lane_ / 4 + 8 * half) / args.group;
      last_[half] = token < tile.num_rows ? tile.first_position + token : -1;
      first_[half] = window > 0 ? last_[half] - static_cast<int>(window) + 1 : 0;
    }
  }

  __device__ void Run() {
    LoadQueries();
    int key = first_key_ / kKeys * kKeys;
    LoadKeys(key, args_.kv.k, k_);
    CommitCopies();
    for (; key < end_key_; key += kKeys) {
      LoadKeys(key, args_.kv.v, v_);
      CommitCopies();
      WaitForCopies<1>();  // queries and keys are there
      __syncthreads();
      Scores();
      __syncthreads();  // keys are not needed any more
      LoadKeys(key + kKeys, args_.kv.k, k_);
      CommitCopies();
      Softmax(key);
      WaitForCopies<1>();  // values are there
      __syncthreads();
      AddValues();
      __syncthreads();  // nor values
    }
    WaitForCopies<0>();
    StoreOutput();
  }

 private:
  static constexpr int kThreads = Warps(kDim) * kWarp;
  static constexpr int kRows = Rows(kDim);
  static constexpr int kChunks = kDim / kVector;
  // The sums of the largest heads fill the registers: addresses kept for unrolled loops would
  // spill.
  static constexpr int kUnrolledSteps = kDim > 128 ? 2 : kChunks / 2;
  static constexpr int kUnrolledLoads = kDim > 128 ? 1 : kKeys * kChunks / kThreads;

  __device__ bool HasChunk(int chunk) const { return chunk * kVector < args_.kv.head_dim; }

  __device__ void LoadQueries() const {
    const int64_t dim = args_.kv.head_dim;
    const T* from = static_cast<const T*>(args_.a.q) + tile_.row_begin * args_.a.ldq +
                    kv_head_ * args_.group * dim;
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunks; i += kThreads) {
      const int row = i / kChunks;
      const int chunk = i % kChunks;
      const int token = row / args_.group;
      const bool valid = token < tile_.num_rows && HasChunk(chunk);
      const T* q = from + token * args_.a.ldq + row % args_.group * dim + chunk * kVector;
      CopyAsync16(q_.At(row, chunk), valid ? q : from, valid);
    }
  }

  // Zeros for keys that no row of the tile attends to: they and their page numbers may be anything.
  __device__ void LoadKeys(int first, const void* pages, const SharedTile<T, kDim>& to) const {
    const int64_t dim = args_.kv.head_dim;
    const Kv* from = static_cast<const Kv*>(pages);
    const int32_t* table = args_.a.block_tables + tile_.table * args_.a.ld_block_tables;
#pragma unroll kUnrolledLoads
    for (int i = 0; i < kKeys * kChunks / kThreads; ++i) {
      const int index = i * kThreads + static_cast<int>(threadIdx.x);
      const int row = index / kChunks;
      const int chunk = index % kChunks;
      const int key = first + row;
      const bool valid = key >= first_key_ && key < end_key_ && HasChunk(chunk);
      const int64_t page = valid ? table[key / kKvPageSize] : 0;
      const int64_t at = (page * args_.kv.kv_heads + kv_head_) * kKvPageSize + key % kKvPageSize;
      LoadChunk(to.At(row, chunk), valid ? from + at * dim + chunk * kVector : from, valid);
    }
  }

  // 8 bits become 16 on the way, exactly; they are not copied in the background then.
  __device__ static void LoadChunk(T* to, const Kv* from, bool valid) {
    if constexpr (std::is_same_v<Kv, T>) {
      CopyAsync16(to, from, valid);
    } else {
      float x[kVector] = {};
      if (valid) LoadFloats(from, x);
      StoreFloats(to, x);
    }
  }

  // scores_[j] = q k^T of the warp's rows and keys 8 j ..
  __device__ void Scores() {
#pragma unroll
    for (int j = 0; j < kKeyTiles; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores_[j][i] = 0.0f;
    }
    const int matrix = lane_ / 8;
    const int row = lane_ % 8;
#pragma unroll kUnrolledSteps
    for (int step = 0; step < kChunks / 2; ++step) {  // 16 elements of head_dim
      uint32_t q[4];
      LoadMatrices(q, q_.At(first_row_ + matrix % 2 * 8 + row, 2 * step + matrix / 2));
#pragma unroll
      for (int j = 0; j < kKeyTiles; j += 2) {
        uint32_t k[4];
        LoadMatrices(k, k_.At((j + matrix / 2) * 8 + row, 2 * step + matrix % 2));
        Mma<T>(scores_[j], q, k[0], k[1]);
        Mma<T>(scores_[j + 1], q, k[2], k[3]);
      }
    }
  }

  // scores_ become weights of the keys `key`..; sums_ and total_ are scaled to the new maximum.
  __device__ void Softmax(int key) {
    if (caps_) CapScores();
    if (HasUnseen(key)) HideUnseen(key);
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // rows lane / 4 and 8 further
      float highest = -INFINITY;
#pragma unroll
      for (int j = 0; j < kKeyTiles; ++j) {
        highest = fmaxf(highest, fmaxf(scores_[j][2 * half], scores_[j][2 * half + 1]));
      }
      const float max = fmaxf(max_[half], ReduceWarp<4>(highest, Max()) * scale_);
      const float base = max == -INFINITY ? 0.0f : max;  // no key of this row so far
      const float factor = Exp2(max_[half] - base);
      max_[half] = max;
      float total = 0.0f;
#pragma unroll
      for (int j = 0; j < kKeyTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& score = scores_[j][2 * half + i];
          score = Exp2(fmaf(score, scale_, -base));
          total += score;
        }
      }
      total_[half] = total_[half] * factor + total;
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        sums_[chunk][2 * half] *= factor;
        sums_[chunk][2 * half + 1] *= factor;
      }
    }
  }

  // Whether a row of the tile does not see some of the keys `key`..: at both ends only.
  __device__ bool HasUnseen(int key) const {
    const int first_seen = args_.a.window > 0 ? end_key_ - static_cast<int>(args_.a.window) : 0;
    return key < first_seen || key + kKeys > tile_.first_position + 1;
  }

  __device__ void HideUnseen(int key) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int j = 0; j < kKeyTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int at = key + 8 * j + lane_ % 4 * 2 + i;
          const bool is_seen = at >= first_[half] && at <= last_[half];
          if (!is_seen) scores_[j][2 * half + i] = -INFINITY;
        }
      }
    }
  }

  __device__ void CapScores() {
    const float scale = args_.a.scale * args_.kv.k_scale;
    const float cap = args_.a.soft_cap;
    const float factor = cap > 0 ? FastDivide(scale, cap) : scale;
#pragma unroll
    for (int j = 0; j < kKeyTiles; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores_[j][i] *= factor;
    }
    if (cap <= 0) return;
#pragma unroll
    for (int j = 0; j < kKeyTiles; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores_[j][i] = cap * FastTanh(scores_[j][i]);
    }
  }

  // sums_ += weights v
  __device__ void AddValues() {
    const int matrix = lane_ / 8;
    const int row = lane_ % 8;
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      const float (&low)[4] = scores_[2 * step];
      const float (&high)[4] = scores_[2 * step + 1];
      const uint32_t weights[4] = {Pack<T>(low[0], low[1]), Pack<T>(low[2], low[3]),
                                   Pack<T>(high[0], high[1]), Pack<T>(high[2], high[3])};
#pragma unroll
      for (int chunk = 0; chunk < kChunks; chunk += 2) {
        uint32_t v[4];
        LoadMatricesTransposed(v, v_.At(16 * step + matrix % 2 * 8 + row, chunk + matrix / 2));
        Mma<T>(sums_[chunk], weights, v[0], v[1]);
        Mma<T>(sums_[chunk + 1], weights, v[2], v[3]);
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
    const int64_t dim = args_.kv.head_dim;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float total = ReduceWarp<4>(total_[half], Plus());
      if (last_[half] < 0) continue;
      const int row = first_row_ + lane_ / 4 + 8 * half;
      const float scale = args_.kv.v_scale / (total + Sink(row, max_[half]));
      T* out = static_cast<T*>(args_.a.out) + (tile_.row_begin + row / args_.group) * args_.a.ldo +
               (kv_head_ * args_.group + row % args_.group) * dim + lane_ % 4 * 2;
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        if (!HasChunk(chunk)) break;
        *reinterpret_cast<uint32_t*>(out + chunk * kVector) =
            Pack<T>(sums_[chunk][2 * half] * scale, sums_[chunk][2 * half + 1] * scale);
      }
    }
  }

  const KernelArgs& args_;
  const PrefillTile& tile_;
  const int kv_head_;
  const SharedTile<T, kDim> q_, k_, v_;
  int lane_;
  int first_row_;               // of the warp
  int first_key_;               // that any row of the tile sees
  int end_key_;                 // behind the last one
  int first_[2], last_[2];      // that the lane's two rows see; last_ < 0: the row is unused
  float scores_[kKeyTiles][4];  // then weights
  float sums_[kChunks][4] = {};
  bool caps_;    // scores, or they are multiplied by a scale that is not positive
  float scale_;  // of scores, to base 2; positive
  float max_[2] = {-INFINITY, -INFINITY};
  float total_[2] = {};  // of the lane's columns
};

template <typename T, typename Kv, int kDim>
__global__ void __launch_bounds__(Warps(kDim) * kWarp, 8 / Warps(kDim))
    PrefillAttentionKernel(const __grid_constant__ KernelArgs args) {
  WaitForPrevious();
  const PrefillTile tile = args.tiles[blockIdx.x];
  Worker<T, Kv, kDim>(args, tile, static_cast<int>(blockIdx.y), static_cast<T*>(DynamicShared()))
      .Run();
}

template <typename T, typename Kv, int kDim>
void LaunchForDim(const KernelArgs& args, int64_t num_tiles, Stream stream) {
  constexpr size_t kSharedBytes = (Rows(kDim) + 2 * kKeys) * kDim * sizeof(T);
  static_assert(kSharedBytes <= kMostSharedBytes);
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(num_tiles), static_cast<unsigned>(args.kv.kv_heads)),
      .threads = static_cast<unsigned>(Warps(kDim) * kWarp),
      .shared_bytes = kSharedBytes};
  Launch(PrefillAttentionKernel<T, Kv, kDim>, shape, stream, args);
}

}  // namespace

int64_t PrefillTileRows(int64_t q_heads, int64_t kv_heads, int64_t head_dim) {
  return Rows(head_dim) * kv_heads / q_heads;
}

void PrefillAttention(const KvPages& kv, const AttentionArgs& args, const PrefillTile* tiles,
                      int64_t num_tiles, Stream stream) {
  MLC_CHECK(kv.head_dim % kVector == 0 && kv.head_dim <= kMaxHeadDim) << kv.head_dim;
  MLC_CHECK(args.q_heads % kv.kv_heads == 0 &&
            PrefillTileRows(args.q_heads, kv.kv_heads, kv.head_dim) > 0)
      << args.q_heads << " for " << kv.kv_heads;
  if (num_tiles == 0) return;
  const KernelArgs kernel_args{
      .kv = kv, .a = args, .tiles = tiles, .group = static_cast<int>(args.q_heads / kv.kv_heads)};
  WithActivationType(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (sizeof(T) == 2) {
      WithKvFormat<T>(kv.format, args.dtype, [&](auto kv_tag) {
        using Kv = typename decltype(kv_tag)::Type;
        if (kv.head_dim <= 64) return LaunchForDim<T, Kv, 64>(kernel_args, num_tiles, stream);
        if (kv.head_dim <= 128) return LaunchForDim<T, Kv, 128>(kernel_args, num_tiles, stream);
        LaunchForDim<T, Kv, 256>(kernel_args, num_tiles, stream);
      });
    } else {
      MLC_CHECK(false) << "no tensor cores for float32: DecodeAttention computes such rows";
    }
  });
}

}  // namespace mlc_native::kernels::cuda
