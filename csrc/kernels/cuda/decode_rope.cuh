// RowRope: QkRopeWriteKv within decode attention, so that a step of one row has a kernel less per
// layer. The warps of a block rotate the query heads of an item, a head each, while the first keys
// and values are on their way. In the item with the row's last keys they also rotate the key of the
// row itself: it is written to its page, together with the value, but read from shared memory.
//
// The splits of a row repeat what is done to its queries. A row may not see keys of other rows of
// the same call: no block waits for what another one writes.
#pragma once

#include "kernels/cuda/decode_items.cuh"
#include "kernels/cuda/rope_head.cuh"

namespace mlc_native::kernels::cuda {

// Queries come from memory as they are needed.
template <typename T, typename Shape>
struct NoRope {
  using KernelArgs = DecodeKernelArgs;
  using Shared = typename Shape::Shared;
  static constexpr bool kRotates = false;

  __device__ static const DecodeKernelArgs& DecodeArgs(const KernelArgs& args) { return args; }
  __device__ NoRope(const KernelArgs& /*args*/, Shared& /*shared*/) {}
};

struct RopeDecodeKernelArgs {
  DecodeKernelArgs decode;
  QkRopeWriteKvArgs rope;
};

template <typename T, typename Shape>
class RowRope {
 public:
  using KernelArgs = RopeDecodeKernelArgs;
  static constexpr bool kRotates = true;
  static constexpr int kChunks = Shape::kDim / kVector;  // of a head

  struct Shared : Shape::Shared {
    uint4 own[2][kChunks];                    // key and value of the row
    float heads[Shape::kWarps][Shape::kDim];  // that warps rotate
  };

  __device__ static const DecodeKernelArgs& DecodeArgs(const KernelArgs& args) {
    return args.decode;
  }
  __device__ RowRope(const KernelArgs& args, Shared& shared)
      : args_(args.decode),
        rope_(args.rope),
        shared_(shared),
        warp_(static_cast<int>(threadIdx.x) / kWarp) {}

  // The page of a split that has the row's own key; -1: it is not in this split.
  __device__ static int OwnPage(const DecodeSplit& split) {
    return split.of_row == split.num_splits - 1 ? (split.count - 1) / kPageKeys : -1;
  }
  // The row's own key of that page.
  __device__ static int OwnKey(const DecodeSplit& split) { return (split.count - 1) % kPageKeys; }
  __device__ uint4 KeyChunk(int chunk) const { return shared_.own[0][chunk]; }
  __device__ uint4 ValueChunk(int chunk) const { return shared_.own[1][chunk]; }

  // Of the first head of this warp.
  __device__ void LoadFirst(const Item& item) {
    if (warp_ >= NumHeads(item)) return;
    const RopeHead<T> head(rope_, args_.kv, HeadAt(item, warp_));
    weights_ = head.LoadWeights();
    elements_ = head.LoadElements(item.split.row);
  }

  // Behind LoadFirst. The queries go to `place`, whose pages have been looked up. Other warps see
  // them, and the row's own key and value, behind a barrier.
  __device__ void Rotate(const Item& item, int place) {
    for (int i = warp_; i < NumHeads(item); i += Shape::kWarps) {
      const RopeHead<T> head(rope_, args_.kv, HeadAt(item, i));
      if (i != warp_) {
        weights_ = head.LoadWeights();
        elements_ = head.LoadElements(item.split.row);
      }
      float x[kVector];
      head.Compute(weights_, elements_, item.split.position, shared_.heads[warp_], x);
      const uint4 packed{Pack<T>(x[0], x[1]), Pack<T>(x[2], x[3]), Pack<T>(x[4], x[5]),
                         Pack<T>(x[6], x[7])};
      const int chunk = head.Column() / kVector;
      if (head.IsQ()) {
        StoreQuery(place, i, chunk, packed);
      } else {
        if (chunk < kChunks) shared_.own[head.IsV() ? 1 : 0][chunk] = packed;
        if (head.HasColumn() && IsFirstOfKvHead(item)) WriteKv(item, place, head, packed);
      }
      __syncwarp();  // before the next head goes where this one was
    }
  }

 private:
  static constexpr int kPageKeys = static_cast<int>(kKvPageSize);

  // Of q, and where the row's own key is, k and v.
  __device__ static int NumHeads(const Item& item) {
    return item.num_heads + (OwnPage(item.split) >= 0 ? 2 : 0);
  }
  // Among all heads of q, k and v.
  __device__ int64_t HeadAt(const Item& item, int i) const {
    if (i < item.num_heads) return item.first_head + i;
    return args_.a.q_heads + item.kv_head + (i == item.num_heads ? 0 : args_.kv.kv_heads);
  }
  // Of the items of a kv head, one writes.
  __device__ bool IsFirstOfKvHead(const Item& item) const {
    return item.first_head == item.kv_head * args_.group;
  }

  // As the lanes of a product need it. What is there for heads that the item lacks does not matter:
  // each head has sums of its own.
  __device__ void StoreQuery(int place, int head, int chunk, uint4 packed) const {
    if (chunk < kChunks) shared_.queries[place][chunk / 4][4 * head + chunk % 4] = packed;
  }

  __device__ void WriteKv(const Item& item, int place, const RopeHead<T>& head,
                          uint4 packed) const {
    const int64_t page = shared_.pages[place][OwnPage(item.split)];
    T* const rows = static_cast<T*>(head.IsV() ? args_.kv.v : args_.kv.k) +
                    (page * args_.kv.kv_heads + item.kv_head) * kPageKeys * args_.kv.head_dim;
    T* const to = rows + OwnKey(item.split) * args_.kv.head_dim + head.Column();
    *reinterpret_cast<uint4*>(to) = packed;
  }

  const DecodeKernelArgs& args_;
  const QkRopeWriteKvArgs& rope_;
  Shared& shared_;
  const int warp_;
  RawVector8<T> weights_;
  RawVector8<T> elements_;
};

}  // namespace mlc_native::kernels::cuda
