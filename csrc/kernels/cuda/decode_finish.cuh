// ItemOutput: where the sums of an item of decode attention go. A row with one split is finished by
// them. Otherwise they are parts in the workspace, and the block that leaves the last part of a row
// merges all of them: groups of threads take consecutive splits, in their order, and the sums of
// the groups are then added in theirs. By all threads of a block.
#pragma once

#include "kernels/cuda/decode_items.cuh"

namespace mlc_native::kernels::cuda {

// The maximum of scores to base 2, and the sum of weights in front of which 2^-maximum is left out.
using SoftmaxOfHead = float2;

// Four neighbours of a head.
__device__ inline float4 Scaled(const float4& x, float factor) {
  return {x.x * factor, x.y * factor, x.z * factor, x.w * factor};
}
__device__ inline float4 AddScaled(const float4& sum, const float4& x, float factor) {
  return {sum.x + x.x * factor, sum.y + x.y * factor, sum.z + x.z * factor, sum.w + x.w * factor};
}

// Four sums of weighted values, of some keys.
struct DecodePart {
  __device__ void Add(const DecodePart& other) {
    const float max = fmaxf(softmax.x, other.softmax.x);
    const float old_factor = Exp2(softmax.x - max);
    const float factor = Exp2(other.softmax.x - max);
    softmax = {max, softmax.y * old_factor + other.softmax.y * factor};
    sum = AddScaled(Scaled(sum, old_factor), other.sum, factor);
  }

  SoftmaxOfHead softmax{-INFINITY, 0.0f};
  float4 sum{0.0f, 0.0f, 0.0f, 0.0f};
};

// kDim: head_dim or more. Elements of the item's heads have places, four neighbours each.
template <typename T, int kDim>
class ItemOutput {
 public:
  __device__ ItemOutput(const DecodeKernelArgs& args, const Item& item)
      : args_(args), item_(item), dim_(static_cast<int>(args.kv.head_dim)) {}

  // Of all heads; those behind head_dim have places, too.
  __device__ int NumPlaces() const { return item_.num_heads * kPlaces; }
  __device__ static int HeadOf(int place) { return place / kPlaces; }
  __device__ static int ElementOf(int place) { return place % kPlaces * 4; }

  // Takes sums of weighted values.
  __device__ void Take(int place, const float4& sum, SoftmaxOfHead softmax) const {
    if (ElementOf(place) >= dim_) return;
    if (item_.split.num_splits == 1) return StoreOutput(place, {softmax, sum});
    const int64_t part = FirstPart() + HeadOf(place);
    *reinterpret_cast<float4*>(args_.workspace.parts + part * dim_ + ElementOf(place)) = sum;
    if (ElementOf(place) == 0) args_.workspace.softmax[part] = softmax;
  }

  // Behind all sums. `shared`: a part for each thread; others may still read what is there.
  __device__ void End(DecodePart* shared) const {
    if (item_.split.num_splits > 1 && IsLastOfRow()) Merge(shared);
  }

 private:
  static constexpr int kPlaces = kDim / 4;
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

  __device__ void StoreOutput(int place, const DecodePart& part) const {
    const int head = item_.first_head + HeadOf(place);
    const float4 x = Scaled(part.sum, 1.0f / (part.softmax.y + Sink(head, part.softmax.x)));
    T* out = static_cast<T*>(args_.a.out) + item_.split.row * args_.a.ldo + head * dim_ +
             ElementOf(place);
    if constexpr (sizeof(T) == 2) {
      *reinterpret_cast<uint2*>(out) = {Pack<T>(x.x, x.y), Pack<T>(x.z, x.w)};
    } else {
      *reinterpret_cast<float4*>(out) = x;
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
  __device__ void Merge(DecodePart* parts) const {
    const auto thread = static_cast<int>(threadIdx.x);
    const int splits = item_.split.num_splits;
    const int groups = max(min(Threads() / NumPlaces(), (splits + kAtOnce - 1) / kAtOnce), 1);
    const int per_group = (splits + groups - 1) / groups;
    const int step = groups > 1 ? NumPlaces() : Threads();
    const int group = thread / step;
    for (int place = thread - group * step; place < NumPlaces(); place += step) {
      if (ElementOf(place) >= dim_ || group >= groups) continue;
      const int begin = group * per_group;
      const DecodePart part = PartOf(place, begin, min(begin + per_group, splits));
      if (groups > 1) {
        parts[thread] = part;
      } else {
        StoreOutput(place, part);
      }
    }
    if (groups == 1) return;
    __syncthreads();
    if (group > 0 || ElementOf(thread) >= dim_) return;
    DecodePart part = parts[thread];
    for (int i = 1; i < groups; ++i) part.Add(parts[i * step + thread]);
    StoreOutput(thread, part);
  }

  // Of some splits of the row.
  __device__ DecodePart PartOf(int place, int begin, int end) const {
    const int64_t q_heads = args_.a.q_heads;
    const int64_t first = FirstPart() - item_.split.of_row * q_heads + HeadOf(place);
    DecodePart part;
    for (int i = begin; i < end; i += kAtOnce) {
      DecodePart others[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int64_t at = first + min(i + j, end - 1) * q_heads;
        others[j] = {LoadOthers(args_.workspace.softmax + at),
                     LoadOthers(reinterpret_cast<const float4*>(args_.workspace.parts + at * dim_ +
                                                                ElementOf(place)))};
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (i + j < end) part.Add(others[j]);
      }
    }
    return part;
  }

  const DecodeKernelArgs& args_;
  const Item& item_;
  const int dim_;
};

}  // namespace mlc_native::kernels::cuda
