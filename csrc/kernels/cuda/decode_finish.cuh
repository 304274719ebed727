// ItemOutput: where the sums of an item of decode attention go. A row with one split is finished by
// them. Otherwise they are parts in the workspace, and the block that leaves the last part of a row
// merges all of them in the order of the splits. By all threads of a block.
#pragma once

#include "kernels/cuda/decode_items.cuh"

namespace mlc_native::kernels::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;

// The maximum of scores to base 2, and the sum of weights in front of which 2^-maximum is left out.
using SoftmaxOfHead = float2;

template <typename T>
class ItemOutput {
 public:
  __device__ ItemOutput(const DecodeKernelArgs& args, const Item& item)
      : args_(args), item_(item), dim_(static_cast<int>(args.kv.head_dim)) {}

  // Takes a sum of weighted values: element i % head_dim of the item's head i / head_dim.
  __device__ void Take(int i, float sum, SoftmaxOfHead softmax) const {
    if (item_.split.num_splits == 1) {
      StoreOutput(i, sum / (softmax.y + Sink(item_.first_head + i / dim_, softmax.x)));
    } else {
      args_.workspace.parts[FirstPart() * dim_ + i] = sum;
    }
  }

  // Behind all sums. `softmax`: of the item's heads, in shared memory.
  __device__ void End(const SoftmaxOfHead* softmax) const {
    if (item_.split.num_splits == 1) return;
    for (int h = static_cast<int>(threadIdx.x); h < item_.num_heads; h += Threads()) {
      args_.workspace.softmax[FirstPart() + h] = softmax[h];
    }
    if (IsLastOfRow()) Merge();
  }

 private:
  __device__ static int Threads() { return static_cast<int>(blockDim.x); }
  __device__ int64_t FirstPart() const {
    return item_.split_index * args_.a.q_heads + item_.first_head;
  }

  // What the head's sink adds to a sum of weights in front of which 2^-max is left out.
  __device__ float Sink(int64_t head, float max) const {
    if (args_.a.sinks == nullptr) return 0.0f;
    return Exp2(kLog2E * ToFloat(static_cast<const T*>(args_.a.sinks)[head]) - max);
  }

  __device__ void StoreOutput(int i, float value) const {
    T* out = static_cast<T*>(args_.a.out) + item_.split.row * args_.a.ldo + item_.first_head * dim_;
    out[i] = FromFloat<T>(value);
  }

  // Whether all other splits have written their parts, which this block then sees.
  __device__ bool IsLastOfRow() const {
    int32_t* num_done =
        args_.workspace.num_done + item_.split.row * args_.a.q_heads + item_.first_head;
    __syncthreads();
    int is_last = 0;
    if (threadIdx.x == 0) {
      is_last = CountForOthers(num_done) == item_.split.num_splits - 1 ? 1 : 0;
      if (is_last != 0) *num_done = 0;  // for the next call
    }
    return __syncthreads_or(is_last) != 0;
  }

  __device__ void Merge() const {
    const int64_t first_split = item_.split_index - item_.split.of_row;
    for (int i = static_cast<int>(threadIdx.x); i < item_.num_heads * dim_; i += Threads()) {
      const int64_t head = item_.first_head + i / dim_;
      float max = -INFINITY;
      float sum = 0.0f;
      float value = 0.0f;
      for (int s = 0; s < item_.split.num_splits; ++s) {
        const int64_t at = (first_split + s) * args_.a.q_heads + head;
        const float2 softmax = LoadOthers(args_.workspace.softmax + at);
        const float part = LoadOthers(args_.workspace.parts + at * dim_ + i % dim_);
        const float new_max = fmaxf(max, softmax.x);
        const float old_factor = Exp2(max - new_max);
        const float factor = Exp2(softmax.x - new_max);
        sum = sum * old_factor + softmax.y * factor;
        value = value * old_factor + part * factor;
        max = new_max;
      }
      StoreOutput(i, value / (sum + Sink(head, max)));
    }
  }

  const DecodeKernelArgs& args_;
  const Item& item_;
  const int dim_;
};

}  // namespace mlc_native::kernels::cuda
