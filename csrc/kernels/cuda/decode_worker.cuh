// DecodeWorker: decode attention of 16-bit activations, on tensor cores.
//
// A block takes items (decode_items.cuh) from a queue, and its warps take the pages of an item's
// split in turn. A warp works alone until the end of the item (decode_sums.cuh). Then the warps'
// sums are added in their order, through shared memory.
//
// The last warp looks up the next item meanwhile: its split, then the numbers of its pages and its
// queries. Its first pages come while the sums of this one are finished.
#pragma once

#include "kernels/cuda/decode_sums.cuh"

namespace mlc_native::kernels::cuda {

// What tests replace in order to see that it matters.
struct DecodeRules {
  // Of what the warp looks up, before it or other warps read it.
  __device__ static void WaitForLookups() {
    CommitCopies();
    WaitForCopies<0>();
    __syncwarp();
  }
  // The place of the next item, of the two in shared memory.
  __device__ static int OtherPlace(int place) { return place ^ 1; }
  // Before the sums of the next item go where those of this one were.
  __device__ static void WaitForReaders() { __syncthreads(); }
  // The items that blocks begin with are not in the queue.
  __device__ static int ItemOfQueue(int taken, int blocks) { return 2 * blocks + taken; }
};

template <typename T, typename Kv, typename Shape, typename Rules>
class DecodeWorker {
 public:
  using Shared = typename Shape::Shared;

  __device__ DecodeWorker(const DecodeKernelArgs& args, void* shared)
      : args_(args), shared_(*static_cast<Shared*>(shared)), sums_(args, shared_) {}

  __device__ void Run() {
    WaitForPrevious();
    const auto blocks = static_cast<int>(gridDim.x);
    const bool looks_up = static_cast<int>(threadIdx.x) / kWarp == kWarps - 1;
    auto index = static_cast<int>(blockIdx.x);
    int next = index + blocks;
    const int num_items = LookUpFirst(index, looks_up);
    if (index >= num_items) return;
    const bool has_queue = num_items > blocks;  // else each block has one item at most
    int place = 0;
    sums_.LoadFirst(index, place);
    while (true) {
      const int next_place = Rules::OtherPlace(place);
      const bool goes_on = next < num_items;
      int taken = 0;
      if (goes_on && looks_up) {
        CopySplit(SplitIndexAt(args_, next), next_place);
        taken = TakeFromQueue();
      }
      if (has_queue && !goes_on) LeaveQueue();
      sums_.AddPages(index, place);
      if (goes_on && looks_up) {
        Rules::WaitForLookups();
        CopyPagesAndQueries(next, next_place);
      }
      const Item item = ItemAt(args_, index, shared_.splits[place]);
      sums_.Leave(item);
      if (goes_on && looks_up) {
        Rules::WaitForLookups();
        if (threadIdx.x % kWarp == 0) shared_.after_next = Rules::ItemOfQueue(taken, blocks);
      }
      __syncthreads();
      const int after_next = shared_.after_next;
      if (goes_on) sums_.LoadFirst(next, next_place);
      Finish(item);
      if (!goes_on) return;
      Rules::WaitForReaders();
      index = next;
      next = after_next;
      place = next_place;
    }
  }

 private:
  static constexpr int kDim = Shape::kDim;
  static constexpr int kWarps = Shape::kWarps;

  // ---- Items ----

  // The number of items. The split comes with it, whether there is one or not.
  __device__ int LookUpFirst(int index, bool looks_up) {
    const int size = *args_.splits.size;
    if (looks_up) {
      CopySplit(min(SplitIndexAt(args_, index), args_.splits.capacity - 1), 0);
      Rules::WaitForLookups();
    }
    const int num_items = size * args_.items_per_split.divisor;
    if (index < num_items && looks_up) {
      CopyPagesAndQueries(index, 0);
      Rules::WaitForLookups();
    }
    __syncthreads();
    return num_items;
  }

  // By a warp.
  __device__ void CopySplit(int split_index, int place) {
    constexpr int kCopies = sizeof(DecodeSplit) / 16;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    if (lane >= kCopies) return;
    CopyAsync16(reinterpret_cast<char*>(shared_.splits + place) + 16 * lane,
                reinterpret_cast<const char*>(args_.splits.splits + split_index) + 16 * lane, true);
  }
  __device__ void CopyPagesAndQueries(int index, int place) {
    const DecodeSplit& split = shared_.splits[place];
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    if (lane < NumPages(split)) {
      const int32_t* table = args_.a.block_tables + split.table * args_.a.ld_block_tables;
      CopyAsyncFew<4>(shared_.pages[place] + lane, table + split.begin / kPageKeys + lane, true);
    }
    // Of step i: chunk 4 i + lane % 4 of head lane / 4; zeros where there is none.
    const Item item = ItemAt(args_, index, split);
    const auto dim = static_cast<int>(args_.kv.head_dim);
    const T* q = static_cast<const T*>(args_.a.q) + split.row * args_.a.ldq + item.first_head * dim;
    const int head = lane / 4;
#pragma unroll
    for (int step = 0; step < Shape::kSteps; ++step) {
      const int at = (4 * step + lane % 4) * kVector;
      const bool is_there = head < item.num_heads && at < dim;
      CopyAsync16(&shared_.queries[place][step][lane], is_there ? q + head * dim + at : q,
                  is_there);
    }
  }

  __device__ int TakeFromQueue() const {
    return threadIdx.x % kWarp == 0 ? atomicAdd(args_.workspace.queue, 1) : 0;
  }
  // This block takes nothing any more. The last one empties the queue for the next call.
  __device__ void LeaveQueue() const {
    if (threadIdx.x != 0) return;
    int32_t* const queue = args_.workspace.queue;
    if (atomicAdd(queue + 1, 1) != static_cast<int>(gridDim.x) - 1) return;
    queue[0] = 0;
    queue[1] = 0;
  }

  // Adds the warps' sums in their order.
  __device__ void Finish(const Item& item) const {
    const ItemOutput<T, kDim> output(args_, item);
    for (int i = static_cast<int>(threadIdx.x); i < output.NumPlaces(); i += Shape::kThreads) {
      const int head = output.HeadOf(i);
      float max = -INFINITY;
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) max = fmaxf(max, shared_.softmax[warp][head].x);
      float total = 0.0f;
      float4 sum{0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) {
        const SoftmaxOfHead softmax = shared_.softmax[warp][head];
        const float factor = Exp2(softmax.x - max);
        total += softmax.y * factor;
        const float* of_warp = shared_.sums[warp][head] + output.ElementOf(i);
        sum = AddScaled(sum, *reinterpret_cast<const float4*>(of_warp), factor);
      }
      output.Take(i, sum, {max, total});
    }
    output.End(shared_.parts);
  }

  const DecodeKernelArgs& args_;
  Shared& shared_;
  DecodeSums<T, Kv, Shape> sums_;
};

// Blocks are persistent: as many as run side by side.
template <typename Shape>
LaunchShape DecodeLaunchShape() {
  return {.grid = dim3(static_cast<unsigned>(NumMultiprocessors() * Shape::kBlocks)),
          .threads = Shape::kThreads,
          .shared_bytes = sizeof(typename Shape::Shared)};
}

template <typename T, typename Kv, typename Shape, typename Rules>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    DecodeAttentionKernel(const __grid_constant__ DecodeKernelArgs args) {
  DecodeWorker<T, Kv, Shape, Rules>(args, DynamicShared()).Run();
}

}  // namespace mlc_native::kernels::cuda
