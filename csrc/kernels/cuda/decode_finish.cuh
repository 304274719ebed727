// ItemOutput: where the sums of an item of decode attention go. A row with one split is finished by
// them. Otherwise they are parts in the workspace, and the block that leaves the last part of a row
// merges all of them: groups of threads take consecutive splits, in their order, and the sums of the
// groups are then added in theirs. By all threads of a block.
#pragma once

#include "kernels/cuda/decode_items.cuh"

namespace mlc_native::kernels::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;

// The maximum of scores to base 2, and the sum of weights in front of which 2^-maximum is left out.
using SoftmaxOfHead = float2;

// Four neighbours of a head.
__device__ inline float4 Scaled(const float4& x, float factor) {
  return {x.x * factor, x.y * factor, x.z * factor, x.w * factor};
}
__device__ inline float4 AddScaled(const float4& sum, const float4& x, float factor) {
  return {sum.x + x.x * factor, sum.y + x.y * factor, sum.z + x.z * factor, sum.w + x.w * factor};
}

// Weighted values of some keys.
struct DecodePart {
  __device__ void Add(SoftmaxOfHead other, const float4& values) {
    const float max = fmaxf(softmax.x, other.x);
    const float old_factor = Exp2(softmax.x - max);
    const float factor = Exp2(other.x - max);
    softmax = {max, softmax.y * old_factor + other.y * factor};
    sum = AddScaled(Scaled(sum, old_factor), values, factor);
  }

  SoftmaxOfHead softmax{-INFINITY, 0.0f};
  float4 sum{0.0f, 0.0f, 0.0f, 0.0f};
};

template <typename T>
class ItemOutput {
 public:
  __device__ ItemOutput(const DecodeKernelArgs& args, const Item& item)
      : args_(args), item_(item), dim_(static_cast<int>(args.kv.head_dim)) {}

  // Takes sums of weighted values: elements i % head_dim.. of the item's head i / head_dim.
  __device__ void Take(int i, const float4& sum, SoftmaxOfHead softmax) const {
    if (item_.split.num_splits == 1) return StoreOutput(i, sum, softmax);
    *reinterpret_cast<float4*>(args_.workspace.parts + FirstPart() * dim_ + i) = sum;
    if (i % dim_ == 0) args_.workspace.softmax[FirstPart() + i / dim_] = softmax;
  }

  // Behind all sums. `shared`: MergeBytes of shared memory, which threads may still read.
  __device__ void End(void* shared) const {
    if (item_.split.num_splits > 1 && IsLastOfRow()) Merge(shared);
  }

  // Every thread leaves the part of its group.
  static constexpr size_t MergeBytes(int threads) { return threads * sizeof(DecodePart); }

 private:
  static constexpr int kAtOnce = 8;  // splits whose parts a thread loads together

  __device__ static int Threads() { return static_cast<int>(blockDim.x); }
  __device__ int64_t FirstPart() const {
    return item_.split_index * args_.a.q_heads + item_.first_head;
  }

  // What the head's sink adds to a sum of weights in front of which 2^-max is left out.
  __device__ float Sink(int64_t head, float max) const {
    if (args_.a.sinks == nullptr) return 0.0f;
    return Exp2(kLog2E * ToFloat(static_cast<const T*>(args_.a.sinks)[head]) - max);
  }

  __device__ void StoreOutput(int i, const float4& sum, SoftmaxOfHead softmax) const {
    T* out = static_cast<T*>(args_.a.out) + item_.split.row * args_.a.ldo + item_.first_head * dim_;
    const float total = softmax.y + Sink(item_.first_head + i / dim_, softmax.x);
    const float4 x{sum.x / total, sum.y / total, sum.z / total, sum.w / total};
    if constexpr (sizeof(T) == 2) {
      *reinterpret_cast<uint2*>(out + i) = {Pack<T>(x.x, x.y), Pack<T>(x.z, x.w)};
    } else {
      *reinterpret_cast<float4*>(out + i) = x;
    }
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

  // Loads of several splits are in flight together: for a short row this is most of the time.
  __device__ void Merge(void* shared) const {
    auto* const parts = static_cast<DecodePart*>(shared);
    const auto thread = static_cast<int>(threadIdx.x);
    const int splits = item_.split.num_splits;
    const int size = item_.num_heads * dim_ / 4;
    const int groups = max(1, min(Threads() / size, (splits + kAtOnce - 1) / kAtOnce));
    if (groups == 1) {
      for (int i = thread; i < size; i += Threads()) {
        const DecodePart part = PartOf(4 * i, 0, splits);
        StoreOutput(4 * i, part.sum, part.softmax);
      }
      return;
    }
    const int group = thread / size;
    const int per_group = (splits + groups - 1) / groups;
    if (group < groups) {
      const int begin = group * per_group;
      parts[thread] = PartOf(thread % size * 4, begin, min(begin + per_group, splits));
    }
    __syncthreads();
    if (group > 0) return;
    DecodePart part = parts[thread];
    for (int i = 1; i < groups; ++i) {
      const DecodePart& other = parts[i * size + thread];
      part.Add(other.softmax, other.sum);
    }
    StoreOutput(4 * thread, part.sum, part.softmax);
  }

  // Of some splits of the row, and of elements i.. as in Take.
  __device__ DecodePart PartOf(int i, int begin, int end) const {
    const int64_t first_split = item_.split_index - item_.split.of_row;
    const int64_t head = item_.first_head + i / dim_;
    DecodePart part;
    for (int first = begin; first < end; first += kAtOnce) {
      SoftmaxOfHead softmax[kAtOnce];
      float4 sums[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int64_t at = (first_split + min(first + j, end - 1)) * args_.a.q_heads + head;
        softmax[j] = LoadOthers(args_.workspace.softmax + at);
        sums[j] = LoadOthers(
            reinterpret_cast<const float4*>(args_.workspace.parts + at * dim_ + i % dim_));
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (first + j < end) part.Add(softmax[j], sums[j]);
      }
    }
    return part;
  }

  const DecodeKernelArgs& args_;
  const Item& item_;
  const int dim_;
};

}  // namespace mlc_native::kernels::cuda
