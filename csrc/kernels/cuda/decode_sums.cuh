// DecodeSums: what a warp of decode attention makes of keys and values (decode_worker.cuh).
//
// A page has 16 keys, the rows of a product of 16 x 8 x 16; its columns are the query heads that
// share the kv head, and stay empty where there are fewer than eight:
//
//   scores [16 keys, 8 heads] = keys [16, dim] queries^T      then weights, transposed in registers
//   sums [dim, 8 heads] += values^T [dim, 16 keys] weights
//
// Keys and values go from memory to the warp's registers, and maxima, weights and sums stay there
// (online softmax in base 2). Keys and values of 8 bits become numbers of 16 bits by moving bits
// (ShrunkFloat8). The scales of keys multiply their scores, those of values their weights.
//
// Lanes load 16 bytes at a time as they lie in a page. In both products the places of dim may be
// chosen freely, so that eight neighbouring elements belong to one lane.
//
// Two pages are taken at a time, so that both are on their way together. Keys of the next ones are
// loaded as soon as the scores of a pair are there, and values as soon as its sums are.
#pragma once

#include "kernels/cuda/decode_finish.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"

namespace mlc_native::kernels::cuda {

// Sizes of a block.
template <int kHeadDim>
struct DecodeShape {
  static constexpr int kDim = kHeadDim;
  static constexpr int kWarps = 4;
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kBlocks = 2;                  // of a multiprocessor
  static constexpr int kPages = kDim > 128 ? 1 : 2;  // that a warp takes at a time
  static constexpr int kSteps = kDim / 32;  // of a product over dim; a lane has a chunk in each

  struct Shared {
    union {
      float sums[kWarps][kMaxItemHeads][kDim + 4];  // heads begin in different banks
      DecodePart parts[kThreads];                   // of ItemOutput
    };
    SoftmaxOfHead softmax[kWarps][kMaxItemHeads];
    // What is looked up of an item, this one and the next.
    DecodeSplit splits[2];
    uint4 queries[2][kSteps][kWarp];  // as the lanes of a warp need them
    int32_t pages[2][kMaxSplit / kKvPageSize];
    int32_t after_next;  // index of an item
  };
};

// With keys and values of 8 bits: fewer bytes are on their way to a warp, which needs fewer
// registers for them and has more to do for each.
template <int kHeadDim>
struct DecodeShapeOf8Bits : DecodeShape<kHeadDim> {
  static constexpr int kBlocks = kHeadDim <= 128 ? 3 : 2;
};

inline constexpr int kPageKeys = static_cast<int>(kKvPageSize);
static_assert(kMaxSplit / kPageKeys <= kWarp);

__device__ inline int NumPages(const DecodeSplit& split) {
  return (split.count + kPageKeys - 1) / kPageKeys;
}

template <typename T, typename Kv, typename Shape>
class DecodeSums {
 public:
  using Shared = typename Shape::Shared;

  __device__ DecodeSums(const DecodeKernelArgs& args, Shared& shared)
      : args_(args),
        shared_(shared),
        dim_(static_cast<int>(args.kv.head_dim)),
        row_bytes_(dim_ * static_cast<int>(sizeof(Kv))),
        warp_(static_cast<int>(threadIdx.x) / kWarp),
        line_(static_cast<int>(threadIdx.x) % kWarp / 4),
        lane_(static_cast<int>(threadIdx.x) % 4) {}

  // Begins to load the warp's first pages of the item at `index`, which was looked up at `place`.
  __device__ void LoadFirst(int index, int place) {
    const int kv_head = KvHeadAt(args_, index);
    LoadKeys(warp_, kv_head, place);
    LoadValues(warp_, kv_head, place);
  }

  // Sums of the warp's pages of the item.
  __device__ void AddPages(int index, int place) {
    ClearSums();
    const int kv_head = KvHeadAt(args_, index);
    const int num_pages = NumPages(shared_.splits[place]);
    for (int i = warp_; i < num_pages; i += kPages * kWarps) {
      const int next = i + kPages * kWarps;
      float weights[kPages][4];
#pragma unroll
      for (int p = 0; p < kPages; ++p) Scores(p, shared_.queries[place], weights[p]);
      if (next < num_pages) LoadKeys(next, kv_head, place);
#pragma unroll
      for (int p = 0; p < kPages; ++p) {
        Mask(SeenOf(shared_.splits[place], i + p * kWarps), weights[p]);
      }
      Softmax(weights);
#pragma unroll
      for (int p = 0; p < kPages; ++p) AddValues(p, weights[p]);
      if (next < num_pages) LoadValues(next, kv_head, place);
    }
  }

  // The sums, to shared memory.
  __device__ void Leave(const Item& item) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int head = 2 * lane_ + i;
      float total = total_[i];
#pragma unroll
      for (int distance = 4; distance < kWarp; distance *= 2) {
        total += __shfl_xor_sync(kAllLanes, total, distance);
      }
      if (head >= item.num_heads) continue;
      if (line_ == 0) shared_.softmax[warp_][head] = {max_[i], total};
#pragma unroll
      for (int c = 0; c < kValueChunks; ++c) {
        float x[kVector];
#pragma unroll
        for (int j = 0; j < kVector; ++j) {
          const int element = c * kVector + j;
          x[j] = sums_[element % kTiles][i + element / kTiles * 2];
          if constexpr (kIsShrunk) x[j] *= Shrunk::kOfSums;
        }
        StoreFloats(shared_.sums[warp_][head] + (8 * c + line_) * kVector, x);
      }
    }
  }

 private:
  static constexpr int kDim = Shape::kDim;
  static constexpr int kWarps = Shape::kWarps;
  static constexpr int kPages = Shape::kPages;
  static constexpr int kChunkBytes = kVector * static_cast<int>(sizeof(Kv));
  static constexpr int kSteps = Shape::kSteps;
  static constexpr int kTiles = kDim / 16;  // of sums
  // Chunks of a lane: line_, line_ + 8, ... of the values; tile i has their elements i and
  // i + kTiles.
  static constexpr int kValueChunks = kDim / 64;
  static constexpr bool kIsShrunk = kHasKvScales<Kv>;
  using Shrunk = ShrunkFloat8<T>;

  // Eight neighbours, as pairs of the type of the activations.
  struct Chunk {
    uint32_t pairs[4];
  };

  // ---- Loads ----

  __device__ const unsigned char* PageOf(const void* pages, int page, int kv_head) const {
    const int64_t at = page * args_.kv.kv_heads + kv_head;
    return static_cast<const unsigned char*>(pages) +
           at * (kPageKeys * row_bytes_ + kKvScaleBytes<Kv>);
  }

  // Of a row: chunk `step` of those of a lane, which are kApart chunks apart and begin at `from`.
  // Zeros where there is none, or no page.
  template <int kApart>
  __device__ RawVector8<Kv> LoadChunk(const unsigned char* from, bool exists, int step,
                                      int first_chunk) const {
    RawVector8<Kv> raw;
    LoadStreamedIf(exists & ((step * kApart + first_chunk) * kVector < dim_),
                   from + step * kApart * kChunkBytes, raw.parts[0]);
    return raw;
  }

  // Of a key of a page, or of its value.
  __device__ float ScaleOf([[maybe_unused]] const unsigned char* page,
                           [[maybe_unused]] int key) const {
    if constexpr (kHasKvScales<Kv>) {
      return reinterpret_cast<const float*>(page + kPageKeys * row_bytes_)[key];
    } else {
      return 1.0f;
    }
  }

  // The keys of a split's page that the row sees.
  struct Seen {
    int first;
    int last;
  };
  __device__ static Seen SeenOf(const DecodeSplit& split, int page) {
    return {max(split.skipped - page * kPageKeys, 0),
            min(split.count - page * kPageKeys, kPageKeys) - 1};
  }

  // Page `first` of the split and the next ones of this warp. keys_[p][step]: of page p, chunks
  // 4 step + lane_ of keys line_ and line_ + 8.
  __device__ void LoadKeys(int first, int kv_head, int place) {
#pragma unroll
    for (int p = 0; p < kPages; ++p) {
      const int i = first + p * kWarps;
      const bool exists = i < NumPages(shared_.splits[place]);
      const unsigned char* page = PageOf(args_.kv.k, shared_.pages[place][exists ? i : 0], kv_head);
      const unsigned char* low = page + line_ * row_bytes_ + lane_ * kChunkBytes;
      const unsigned char* high = low + 8 * row_bytes_;
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        keys_[p][step][0] = LoadChunk<4>(low, exists, step, lane_);
        keys_[p][step][1] = LoadChunk<4>(high, exists, step, lane_);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) key_scales_[p][i] = ScaleOf(page, line_ + 8 * i);
    }
  }

  // values_[p][c][i]: chunk line_ + 8 c of keys 2 lane_, the next, and those 8 further. Instead of
  // values of keys that the row does not see there are those of the nearest that it sees: their
  // weights are zero, but they must be finite.
  __device__ void LoadValues(int first, int kv_head, int place) {
#pragma unroll
    for (int p = 0; p < kPages; ++p) {
      const int index = first + p * kWarps;
      const bool exists = index < NumPages(shared_.splits[place]);
      const unsigned char* page =
          PageOf(args_.kv.v, shared_.pages[place][exists ? index : 0], kv_head);
      const Seen seen = SeenOf(shared_.splits[place], exists ? index : 0);
      const unsigned char* rows[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = NearestSeen(2 * lane_ + i % 2 + i / 2 * 8, seen);
        rows[i] = page + key * row_bytes_ + line_ * kChunkBytes;
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        value_scales_[p][i] = ScaleOf(page, NearestSeen(line_ + 8 * i, seen));
      }
#pragma unroll
      for (int c = 0; c < kValueChunks; ++c) {
#pragma unroll
        for (int i = 0; i < 4; ++i) values_[p][c][i] = LoadChunk<8>(rows[i], exists, c, line_);
      }
    }
  }
  __device__ static int NearestSeen(int key, Seen seen) {
    return max(min(key, seen.last), seen.first);
  }

  // ---- Sums ----

  __device__ void ClearSums() {
#pragma unroll
    for (int head = 0; head < 2; ++head) {
      max_[head] = -INFINITY;
      total_[head] = 0.0f;
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums_[tile][i] = 0.0f;
    }
  }

  // The pairs of a chunk in the order in which keys and queries have them, so that only the order
  // within a sum depends on it.
  __device__ static Chunk ChunkOf(const RawVector8<Kv>& raw) {
    Chunk chunk;
    if constexpr (kIsShrunk) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {  // of four neighbours the first and the third, and the others
        chunk.pairs[2 * i] = Shrunk::Pair(raw.Word(i) << 8);
        chunk.pairs[2 * i + 1] = Shrunk::Pair(raw.Word(i));
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) chunk.pairs[i] = raw.Word(i);
    }
    return chunk;
  }
  __device__ static Chunk QueryChunk(const uint4& q) {
    Chunk chunk{{q.x, q.y, q.z, q.w}};
    if constexpr (kIsShrunk) {
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const uint32_t first = chunk.pairs[i];
        chunk.pairs[i] = ForKeys(__byte_perm(first, chunk.pairs[i + 1], 0x5410));
        chunk.pairs[i + 1] = ForKeys(__byte_perm(first, chunk.pairs[i + 1], 0x7632));
      }
    }
    return chunk;
  }
  __device__ static uint32_t ForKeys(uint32_t pair) {
    if constexpr (Shrunk::kOfKeys == 1.0f) return pair;
    constexpr uint32_t kMinusZeros = 0x80008000u;  // change no sign
    return FmaBFloat16x2(pair, Pack<T>(Shrunk::kOfKeys, Shrunk::kOfKeys), kMinusZeros);
  }

  // scores[i]: of key line_ (and 8 further, i >= 2) and head 2 lane_ + i % 2.
  __device__ void Scores(int p, const uint4 (&queries)[kSteps][kWarp], float (&scores)[4]) const {
    float parts[2][4] = {};  // so that products follow one another in two chains
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const Chunk low = ChunkOf(keys_[p][step][0]);
      const Chunk high = ChunkOf(keys_[p][step][1]);
      const Chunk q = QueryChunk(queries[step][threadIdx.x % kWarp]);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = 2 * i;
        Mma<T>(parts[i], {low.pairs[at], high.pairs[at], low.pairs[at + 1], high.pairs[at + 1]},
               q.pairs[at], q.pairs[at + 1]);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scores[i] = parts[0][i] + parts[1][i];
      if constexpr (kIsShrunk) scores[i] *= Shrunk::kOfScores;
      scores[i] *= key_scales_[p][i / 2];
    }
  }

  // Scores of a page become those of base 2, without the keys that the row does not see.
  __device__ void Mask(Seen seen, float (&scores)[4]) const {
    const float scale = args_.a.scale;
    const float cap = args_.a.soft_cap;
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[i] *= scale;
    if (cap > 0) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[i] = cap * FastTanh(FastDivide(scores[i], cap));
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = line_ + i / 2 * 8;
      const bool is_seen = key >= seen.first && key <= seen.last;
      scores[i] = is_seen ? kLog2E * scores[i] : -INFINITY;
    }
  }

  // Scores become weights; sums_ and total_ are scaled to the new maximum.
  __device__ void Softmax(float (&scores)[kPages][4]) {
    float highest[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int p = 0; p < kPages; ++p) {
#pragma unroll
      for (int i = 0; i < 4; ++i) highest[i % 2] = fmaxf(highest[i % 2], scores[p][i]);
    }
#pragma unroll
    for (int distance = 4; distance < kWarp; distance *= 2) {
#pragma unroll
      for (float& x : highest) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, distance));
    }
    float factors[2];
#pragma unroll
    for (int head = 0; head < 2; ++head) {
      const float max = fmaxf(max_[head], highest[head]);
      const float base = max == -INFINITY ? 0.0f : max;  // all scores are infinite
      factors[head] = Exp2(max_[head] - base);
      max_[head] = max;
      total_[head] *= factors[head];
#pragma unroll
      for (int p = 0; p < kPages; ++p) {
        scores[p][head] = Exp2(scores[p][head] - base);
        scores[p][head + 2] = Exp2(scores[p][head + 2] - base);
        total_[head] += scores[p][head] + scores[p][head + 2];
      }
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums_[tile][i] *= factors[i % 2];
    }
  }

  // sums_ += values^T weights.
  __device__ void AddValues(int p, const float (&weights)[4]) {
    uint32_t b[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float scale = kIsShrunk ? Shrunk::kOfWeights * value_scales_[p][i] : 1.0f;
      b[i] = TransposeMatrix(Pack<T>(scale * weights[2 * i], scale * weights[2 * i + 1]));
    }
    constexpr int kPairs = kValueChunks > 1 ? kValueChunks / 2 : 1;  // of chunks of a tile
#pragma unroll
    for (int c = 0; c < kPairs; ++c) {
      const auto& low = values_[p][c];
      const auto& high = values_[p][kValueChunks > 1 ? c + kValueChunks / 2 : c];
      constexpr int kOfPair = kTiles / kPairs;
#pragma unroll
      for (int i = 0; i < kOfPair; ++i) {
        const int j = kValueChunks > 1 ? i : i + kOfPair;
        const uint32_t a[4] = {Column(low[0], low[1], i), Column(high[0], high[1], j),
                               Column(low[2], low[3], i), Column(high[2], high[3], j)};
        Mma<T>(sums_[c * kOfPair + i], a, b[0], b[1]);
      }
    }
  }

  // Element i of two chunks.
  __device__ static uint32_t Column(const RawVector8<Kv>& first, const RawVector8<Kv>& second,
                                    int i) {
    if constexpr (kIsShrunk) {
      const uint32_t places = i % 4 << 4 | (4 + i % 4) << 12;
      return Shrunk::Pair(__byte_perm(first.Word(i / 4), second.Word(i / 4), places));
    } else {
      return __byte_perm(first.Word(i / 2), second.Word(i / 2), i % 2 == 0 ? 0x5410 : 0x7632);
    }
  }

  const DecodeKernelArgs& args_;
  Shared& shared_;
  const int dim_;
  const int row_bytes_;  // of a page
  const int warp_;
  const int line_;  // of a product's rows or columns, of eight
  const int lane_;  // of a line
  RawVector8<Kv> keys_[kPages][kSteps][2];
  float key_scales_[kPages][2];  // of keys line_ and line_ + 8, as those of values
  RawVector8<Kv> values_[kPages][kValueChunks][4];
  float value_scales_[kPages][2];
  float sums_[kTiles][4];  // of elements i and i + kTiles; heads as scores
  float max_[2];
  float total_[2];  // of the lane's keys
};

}  // namespace mlc_native::kernels::cuda
