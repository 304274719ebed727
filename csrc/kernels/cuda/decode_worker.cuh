// DecodeWorker: decode attention of 16-bit activations, on tensor cores.
//
// A block walks through a list of items (decode_items.cuh), and its warps take the pages of an
// item's split in turn. A warp works alone until the end of the item: keys and values come through
// a ring of its own (decode_ring.cuh), and maxima, weights and sums stay in its registers (online
// softmax in base 2). At the end the warps' sums are added in their order, through shared memory.
//
// A page has 16 keys, the rows of a product of 16 x 8 x 16; its columns are the query heads that
// share the kv head, and stay empty where there are fewer than eight:
//
//   scores [16 keys, 8 heads] = keys [16, dim] queries^T      then weights, transposed in registers
//   sums [dim, 8 heads] += values^T [dim, 16 keys] weights
//
// Of 8 bits, scores are multiplied by the scales of their keys, and values become numbers of 16
// bits with theirs.
//
// Lanes read 16 bytes at a time as they lie in a page. In both products the places of dim may be
// chosen freely, so that eight neighbouring elements belong to one lane.
#pragma once

#include "kernels/cuda/decode_finish.cuh"
#include "kernels/cuda/decode_ring.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"

namespace mlc_native::kernels::cuda {

// What tests replace in order to see that it matters.
struct DecodeRules {
  template <int kSlots, int kSlotBytes, typename Rules>
  using Ring = std::conditional_t<kHasBulkCopies, BulkRing<kSlots, kSlotBytes, Rules>,
                                  GroupRing<kSlots, kSlotBytes, Rules>>;
  __device__ static void WaitForBytes(uint64_t* barrier, uint32_t parity) {
    WaitForPhase(barrier, parity);
  }
  template <int kLeft>
  __device__ static void WaitForGroups() {
    WaitForCopies<kLeft>();
    __syncwarp();
  }
  // The slot that is filled again when `slot` has been read.
  __device__ static int FreeSlot(int slot) { return slot; }
  // The item whose pages are looked up, `distance` behind another one.
  __device__ static int ItemAhead(int item, int distance) { return item + distance; }
};

// Sizes of a block. What it takes of shared memory leaves room for two of them in 164 KB.
template <typename Kv, int kDim>
struct DecodeShape {
  static constexpr int kWarps = kDim > 128 ? 2 : 4;
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kPageBytes =
      static_cast<int>(kKvPageSize * sizeof(Kv)) * kDim + kKvScaleBytes<Kv>;
  static constexpr int kSlots = kWarps * kPageBytes >= 16 * 1024 ? 4 : 6;  // of a warp
  static constexpr int kRingBytes = kWarps * kSlots * kPageBytes;
  static constexpr int kBarrierBytes = kWarps * kSlots * static_cast<int>(sizeof(uint64_t));
  static constexpr int kLdSums = kDim + 4;  // heads begin in different banks
  static constexpr int kSumBytes =
      kWarps * kMaxItemHeads * kLdSums * static_cast<int>(sizeof(float));
  // Of the warps, and then of all of them.
  static constexpr int kSoftmaxBytes =
      (kWarps + 1) * kMaxItemHeads * static_cast<int>(sizeof(SoftmaxOfHead));
  static constexpr size_t kSharedBytes = kRingBytes + kBarrierBytes + kSumBytes + kSoftmaxBytes;
  static_assert(kSharedBytes <= (164 / 2 - 1) * 1024);
};

template <typename T, typename Kv, int kDim, typename Rules>
class DecodeWorker {
 public:
  using Shape = DecodeShape<Kv, kDim>;

  __device__ DecodeWorker(const DecodeKernelArgs& args, unsigned char* shared)
      : args_(args),
        dim_(static_cast<int>(args.kv.head_dim)),
        row_bytes_(dim_ * static_cast<int>(sizeof(Kv))),
        warp_(static_cast<int>(threadIdx.x) / kWarp),
        line_(static_cast<int>(threadIdx.x) % kWarp / 4),
        lane_(static_cast<int>(threadIdx.x) % 4),
        sums_of_warps_(reinterpret_cast<float*>(shared + Shape::kRingBytes)),
        softmax_of_warps_(
            reinterpret_cast<SoftmaxOfHead*>(shared + Shape::kRingBytes + Shape::kSumBytes)),
        ring_(shared + warp_ * kSlots * Shape::kPageBytes,
              reinterpret_cast<uint64_t*>(shared + Shape::kRingBytes + Shape::kSumBytes +
                                          Shape::kSoftmaxBytes) +
                  warp_ * kSlots) {}

  __device__ void Run() {
    WaitForPrevious();
    const int num_items = *args_.splits.size * static_cast<int>(args_.kv.kv_heads) * args_.pieces;
    Pages pages(args_, num_items, PageBytes());
    int index = static_cast<int>(blockIdx.x);
    if (index >= num_items) return;
    for (int slot = 0; slot < kSlots; ++slot) Fill(pages, slot);
    Item item = FindItem(args_, index);
    LoadQueries(item);
    int slot = 0;
    while (true) {
      index += static_cast<int>(gridDim.x);
      const Item next = FindItem(args_, index);  // arrives meanwhile
      AddPages(item.split, pages, slot);
      LeaveSums(item);
      if (index < num_items) LoadQueries(next);
      __syncthreads();
      Finish(item);
      if (index >= num_items) return;
      __syncthreads();  // the warps' sums have been read
      item = next;
    }
  }

 private:
  static constexpr int kWarps = Shape::kWarps;
  static constexpr int kSlots = Shape::kSlots;
  static constexpr int kPageKeys = static_cast<int>(kKvPageSize);
  static constexpr int kChunkBytes = kVector * static_cast<int>(sizeof(Kv));
  static constexpr int kSteps = kDim / 32;  // of a product over dim; a lane has a chunk in each
  static constexpr int kTiles = kDim / 16;  // of sums
  // Elements of a lane: those of chunks line_, line_ + 8, ... Tile i has elements i and i + kTiles.
  static constexpr int kTileChunks = kDim < 128 ? 1 : kDim / 64;
  using Pages = PageSequence<kWarps, Rules>;
  using Ring = typename Rules::template Ring<kSlots, Shape::kPageBytes, Rules>;

  // Eight neighbours, as pairs of the type of the activations.
  struct Chunk {
    uint32_t pairs[4];
  };

  // Times the scale, of 8 bits.
  __device__ static Chunk LoadChunk(const unsigned char* from, [[maybe_unused]] float scale) {
    const RawVector8<Kv> raw = LoadRaw(reinterpret_cast<const Kv*>(from));
    Chunk chunk;
    if constexpr (sizeof(Kv) == sizeof(T)) {
#pragma unroll
      for (int i = 0; i < 4; ++i) chunk.pairs[i] = raw.Word(i);
    } else {
      float x[kVector];
      ToFloats(raw, x);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        chunk.pairs[i] = Pack<T>(scale * x[2 * i], scale * x[2 * i + 1]);
      }
    }
    return chunk;
  }

  __device__ int PageBytes() const { return kPageKeys * row_bytes_ + kKvScaleBytes<Kv>; }

  // Of a key of a page, or of its value.
  __device__ float ScaleOf([[maybe_unused]] const unsigned char* page,
                           [[maybe_unused]] int key) const {
    if constexpr (kHasKvScales<Kv>) {
      return reinterpret_cast<const float*>(page + kPageKeys * row_bytes_)[key];
    } else {
      return 1.0f;
    }
  }

  // Where there is no chunk there is the last one: it meets zeros, or is not stored.
  __device__ int ChunkOffset(int chunk) const {
    return min(chunk * kChunkBytes, row_bytes_ - kChunkBytes);
  }

  __device__ void Fill(Pages& pages, int slot) { ring_.Fill(slot, pages.Next(), PageBytes()); }

  // queries_[step]: chunk 4 step + lane_ of head line_; zeros where there is none.
  __device__ void LoadQueries(const Item& item) {
    const T* q = static_cast<const T*>(args_.a.q) + item.split.row * args_.a.ldq +
                 (item.first_head + line_) * dim_;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int at = (4 * step + lane_) * kVector;
      uint4 loaded{};
      if (line_ < item.num_heads && at < dim_) loaded = *reinterpret_cast<const uint4*>(q + at);
      queries_[step] = {{loaded.x, loaded.y, loaded.z, loaded.w}};
    }
  }

  // The pages of this warp, of an item.
  __device__ void AddPages(const DecodeSplit& split, Pages& pages, int& slot) {
    ClearSums();
    const int num_pages = Pages::NumPages(split);
    for (int i = 0; i < num_pages; ++i) {
      const int first_key = (warp_ + i * kWarps) * kPageKeys;
      float weights[4];
      Scores(ring_.Await(slot), weights);
      Refill(pages, slot);
      Softmax(split, first_key, weights);
      AddValues(split, first_key, ring_.Await(slot), weights);
      Refill(pages, slot);
    }
  }

  __device__ void Refill(Pages& pages, int& slot) {
    __syncwarp();  // all lanes have read it
    Fill(pages, Rules::FreeSlot(slot));
    slot = (slot + 1) % kSlots;
  }

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

  // scores[i]: of key line_ (and 8 further, i >= 2) and head 2 lane_ + i % 2.
  __device__ void Scores(const unsigned char* keys, float (&scores)[4]) const {
    float parts[2][4] = {};  // so that products follow one another in two chains
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const unsigned char* from = keys + line_ * row_bytes_ + ChunkOffset(4 * step + lane_);
      const Chunk low = LoadChunk(from, 1.0f);
      const Chunk high = LoadChunk(from + 8 * row_bytes_, 1.0f);
      const Chunk& q = queries_[step];
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const uint32_t a[4] = {low.pairs[i], high.pairs[i], low.pairs[i + 1], high.pairs[i + 1]};
        Mma<T>(parts[i / 2], a, q.pairs[i], q.pairs[i + 1]);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scores[i] = ScaleOf(keys, line_ + i / 2 * 8) * (parts[0][i] + parts[1][i]);
    }
  }

  // Scores of the keys `first_key`.. of the split become weights; sums_ and total_ are scaled to
  // the new maximum.
  __device__ void Softmax(const DecodeSplit& split, int first_key, float (&scores)[4]) {
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
      const int key = first_key + line_ + i / 2 * 8;
      const bool is_seen = key >= split.skipped && key < split.count;
      scores[i] = is_seen ? kLog2E * scores[i] : -INFINITY;
    }
#pragma unroll
    for (int head = 0; head < 2; ++head) {
      float highest = fmaxf(scores[head], scores[head + 2]);
#pragma unroll
      for (int distance = 4; distance < kWarp; distance *= 2) {
        highest = fmaxf(highest, __shfl_xor_sync(kAllLanes, highest, distance));
      }
      const float max = fmaxf(max_[head], highest);
      const float base = max == -INFINITY ? 0.0f : max;  // all scores are infinite
      const float factor = Exp2(max_[head] - base);
      max_[head] = max;
      scores[head] = Exp2(scores[head] - base);
      scores[head + 2] = Exp2(scores[head + 2] - base);
      total_[head] = total_[head] * factor + (scores[head] + scores[head + 2]);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        sums_[tile][head] *= factor;
        sums_[tile][head + 2] *= factor;
      }
    }
  }

  // sums_ += values^T weights. Instead of values of keys that the row does not see there are those
  // of the nearest that it sees: their weights are zero, but they must be finite.
  __device__ void AddValues(const DecodeSplit& split, int first_key, const unsigned char* values,
                            const float (&weights)[4]) {
    const uint32_t b0 = TransposeMatrix(Pack<T>(weights[0], weights[1]));
    const uint32_t b1 = TransposeMatrix(Pack<T>(weights[2], weights[3]));
    const int first_seen = max(split.skipped - first_key, 0);
    const int last_seen = min(split.count - first_key, kPageKeys) - 1;
    const unsigned char* of_key[4];  // 2 lane_, the next, and those 8 further
    float scales[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = max(min(2 * lane_ + i % 2 + i / 2 * 8, last_seen), first_seen);
      of_key[i] = values + key * row_bytes_;
      scales[i] = ScaleOf(values, key);
    }
    constexpr int kApart = kTileChunks > 1 ? kTileChunks / 2 : 1;
#pragma unroll
    for (int c = 0; c < kApart; ++c) {
      Columns low, high;
      LoadColumns(of_key, scales, line_ + 8 * c, low);
      if constexpr (kTileChunks > 1) LoadColumns(of_key, scales, line_ + 8 * (c + kApart), high);
      constexpr int kOfChunk = kTiles / kApart;
#pragma unroll
      for (int i = 0; i < kOfChunk; ++i) {
        const Columns& second = kTileChunks > 1 ? high : low;
        const int j = kTileChunks > 1 ? i : i + kOfChunk;
        const uint32_t a[4] = {low.pairs[0][i], second.pairs[0][j], low.pairs[1][i],
                               second.pairs[1][j]};
        Mma<T>(sums_[c * kOfChunk + i], a, b0, b1);
      }
    }
  }

  // Eight columns of values: pairs of the first two and of the other two of the lane's keys.
  struct Columns {
    uint32_t pairs[2][kVector];
  };
  __device__ void LoadColumns(const unsigned char* const (&of_key)[4], const float (&scales)[4],
                              int chunk, Columns& columns) const {
    const int offset = ChunkOffset(chunk);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Chunk first = LoadChunk(of_key[2 * half] + offset, scales[2 * half]);
      const Chunk second = LoadChunk(of_key[2 * half + 1] + offset, scales[2 * half + 1]);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        columns.pairs[half][2 * i] = __byte_perm(first.pairs[i], second.pairs[i], 0x5410);
        columns.pairs[half][2 * i + 1] = __byte_perm(first.pairs[i], second.pairs[i], 0x7632);
      }
    }
  }

  // Of this warp, to shared memory.
  __device__ void LeaveSums(const Item& item) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int head = 2 * lane_ + i;
      float total = total_[i];
#pragma unroll
      for (int distance = 4; distance < kWarp; distance *= 2) {
        total += __shfl_xor_sync(kAllLanes, total, distance);
      }
      if (head >= item.num_heads) continue;
      if (line_ == 0) softmax_of_warps_[warp_ * kMaxItemHeads + head] = {max_[i], total};
      float* to = sums_of_warps_ + (warp_ * kMaxItemHeads + head) * Shape::kLdSums;
#pragma unroll
      for (int c = 0; c < kDim / 64; ++c) {
        float x[kVector];
#pragma unroll
        for (int j = 0; j < kVector; ++j) {
          const int element = c * kVector + j;
          x[j] = sums_[element % kTiles][i + element / kTiles * 2];
        }
        StoreFloats(to + (8 * c + line_) * kVector, x);
      }
    }
  }

  // Adds the warps' sums in their order.
  __device__ void Finish(const Item& item) const {
    const ItemOutput<T> output(args_, item);
    SoftmaxOfHead* const of_all = softmax_of_warps_ + kWarps * kMaxItemHeads;
    for (int i = static_cast<int>(threadIdx.x); i < item.num_heads * dim_; i += Shape::kThreads) {
      const int head = i / dim_;
      float max = -INFINITY;
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) {
        max = fmaxf(max, softmax_of_warps_[warp * kMaxItemHeads + head].x);
      }
      float total = 0.0f;
      float sum = 0.0f;
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) {
        const int of_warp = warp * kMaxItemHeads + head;
        const SoftmaxOfHead softmax = softmax_of_warps_[of_warp];
        const float factor = Exp2(softmax.x - max);
        total += softmax.y * factor;
        sum += sums_of_warps_[of_warp * Shape::kLdSums + i % dim_] * factor;
      }
      if (i % dim_ == 0) of_all[head] = {max, total};
      output.Take(i, sum, {max, total});
    }
    if (item.split.num_splits > 1) __syncthreads();
    output.End(of_all);
  }

  const DecodeKernelArgs& args_;
  const int dim_;
  const int row_bytes_;  // of a page
  const int warp_;
  const int line_;                         // of a product's rows or columns, of eight
  const int lane_;                         // of a line
  float* const sums_of_warps_;             // [kWarps, kMaxItemHeads, kLdSums]
  SoftmaxOfHead* const softmax_of_warps_;  // [kWarps + 1, kMaxItemHeads]
  Ring ring_;
  Chunk queries_[kSteps];
  float sums_[kTiles][4];  // of elements i and i + kTiles; heads as scores
  float max_[2];
  float total_[2];  // of the lane's keys
};

// Blocks are persistent: as many as run side by side.
template <typename Kv, int kDim>
LaunchShape DecodeLaunchShape() {
  using Shape = DecodeShape<Kv, kDim>;
  const bool two = SharedBytesOfMultiprocessor() >= 2 * (Shape::kSharedBytes + 1024);
  return {.grid = dim3(static_cast<unsigned>(NumMultiprocessors() * (two ? 2 : 1))),
          .threads = Shape::kThreads,
          .shared_bytes = Shape::kSharedBytes};
}

template <typename T, typename Kv, int kDim, typename Rules>
__global__ void __launch_bounds__(DecodeShape<Kv, kDim>::kThreads, 2)
    DecodeAttentionKernel(const __grid_constant__ DecodeKernelArgs args) {
  DecodeWorker<T, Kv, kDim, Rules>(args, static_cast<unsigned char*>(DynamicShared())).Run();
}

}  // namespace mlc_native::kernels::cuda
