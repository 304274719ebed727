// Finds the threshold of a truncation of a row, with one block and without sorting.
//
// Values are compared by their bits (OrderedBits). A radix select processes 8 bits at a time: it
// sums a measure (1 each, or weights) of the values by their next digit. All sums are integers, so
// the order in which threads add does not matter. If a lower bound is known, the few values above
// it are first gathered in shared memory, and the row is not read again.
#pragma once

#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"

namespace mlc_native::kernels::cuda {

inline constexpr int kSelectThreads = 1024;
inline constexpr int kSelectWarps = kSelectThreads / kWarp;
inline constexpr int kBins = 256;
inline constexpr int kMaxGathered = 4096;

// Bits that order like the floats do (no NaN).
__device__ inline uint32_t OrderedBits(float x) {
  const uint32_t bits = __float_as_uint(x);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ inline float FromOrderedBits(uint32_t bits) {
  return __uint_as_float((bits & 0x80000000u) != 0 ? bits & 0x7fffffffu : ~bits);
}

// Keeps the values above `bits` and, of those equal to it, the first `num_ties` by position.
struct Cut {
  uint32_t bits = 0;  // below every number: keeps all
  uint64_t num_ties = 0;
};

// What the lanes before this one have, added up.
__device__ inline uint64_t SumOfLanesBefore(uint64_t value) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  uint64_t sum = value;
#pragma unroll
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const uint64_t other = __shfl_up_sync(kAllLanes, sum, distance);
    if (lane >= distance) sum += other;
  }
  return sum - value;
}

struct SelectShared {
  unsigned long long bins[kBins];
  uint64_t warps[kSelectWarps];
  float gathered[kMaxGathered];
  int num_gathered;
  uint32_t digit;
  uint64_t above;
  float bound;
};

// All threads of a block of kSelectThreads call the same functions in the same order.
class RowSelect {
 public:
  __device__ RowSelect(const float* row, int64_t size, SelectShared& shared)
      : row_(row), size_(size), shared_(shared) {}

  // Gathers the values for which keep(value); true when they fit. Then they are all that is looked
  // at, else the whole row is.
  template <typename Keep>
  __device__ bool Gather(const Keep& keep) {
    if (threadIdx.x == 0) shared_.num_gathered = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < size_; i += kSelectThreads) {
      const float value = row_[i];
      if (!keep(value)) continue;
      const int at = atomicAdd(&shared_.num_gathered, 1);
      if (at < kMaxGathered) shared_.gathered[at] = value;
    }
    __syncthreads();
    is_gathered_ = shared_.num_gathered <= kMaxGathered;
    return is_gathered_;
  }
  __device__ void Forget() { is_gathered_ = false; }

  // Gathers what can be among the `k` largest, given the maxima of the row's chunks.
  template <typename MaxOf>
  __device__ void GatherTop(int64_t k, int64_t num_chunks, const MaxOf& max_of) {
    if (k > num_chunks || num_chunks > kSelectThreads) return Forget();
    const auto i = static_cast<int64_t>(threadIdx.x);
    if (i < num_chunks) {  // k chunks have a value of at least the k-th largest maximum
      const float mine = max_of(i);
      int64_t rank = 0;
      for (int64_t j = 0; j < num_chunks; ++j) {
        const float other = max_of(j);
        if (other > mine || (other == mine && j < i)) ++rank;
      }
      if (rank == k - 1) shared_.bound = mine;
    }
    __syncthreads();
    const float bound = shared_.bound;
    Gather([bound](float value) { return value >= bound; });
  }

  // Of what `cut` keeps.
  template <typename Measure>
  __device__ uint64_t Sum(const Cut& cut, const Measure& measure) {
    uint64_t sum = 0;
    ForEach([&](float value) {
      if (OrderedBits(value) > cut.bits) sum += measure(value);
    });
    __syncthreads();  // warps are read behind the last call's use of them
    sum = ReduceBlock(sum, Plus(), shared_.warps);
    if (cut.num_ties > 0) sum += cut.num_ties * measure(FromOrderedBits(cut.bits));
    return sum;
  }

  // The smallest set of the largest values of those that `cut` keeps with at least `goal`, which is
  // between 1 and Sum(cut, measure).
  template <typename Measure>
  __device__ Cut Select(const Cut& cut, uint64_t goal, const Measure& measure) {
    uint32_t prefix = 0;
    uint64_t above = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
      const uint32_t known = shift == 24 ? 0 : ~uint32_t{0} << (shift + 8);
      const auto add = [&](uint32_t bits, uint64_t weight) {
        if ((bits & known) != prefix) return;
        atomicAdd(&shared_.bins[bits >> shift & (kBins - 1)],
                  static_cast<unsigned long long>(weight));
      };
      if (threadIdx.x < kBins) shared_.bins[threadIdx.x] = 0;
      __syncthreads();
      ForEach([&](float value) {
        const uint32_t bits = OrderedBits(value);
        if (bits > cut.bits) add(bits, measure(value));
      });
      if (threadIdx.x == 0 && cut.num_ties > 0) {
        add(cut.bits, cut.num_ties * measure(FromOrderedBits(cut.bits)));
      }
      __syncthreads();
      if (threadIdx.x < kWarp) FindDigit(above, goal);
      __syncthreads();
      prefix |= shared_.digit << shift;
      above = shared_.above;
    }
    const uint64_t tie = measure(FromOrderedBits(prefix));
    return {prefix, tie == 0 ? 0 : (goal - above + tie - 1) / tie};
  }

 private:
  template <typename F>
  __device__ void ForEach(const F& f) const {
    const float* values = is_gathered_ ? shared_.gathered : row_;
    const int64_t size = is_gathered_ ? shared_.num_gathered : size_;
    for (int64_t i = threadIdx.x; i < size; i += kSelectThreads) f(values[i]);
  }

  // One warp: the largest digit at which the sum from the top reaches the goal.
  __device__ void FindDigit(uint64_t above, uint64_t goal) {
    constexpr int kPerLane = kBins / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int top = kBins - 1 - lane * kPerLane;
    uint64_t sum = 0;
    for (int i = 0; i < kPerLane; ++i) sum += shared_.bins[top - i];
    uint64_t before = above + SumOfLanesBefore(sum);
    if (before >= goal || before + sum < goal) return;
    int digit = top;
    while (before + shared_.bins[digit] < goal) before += shared_.bins[digit--];
    shared_.digit = static_cast<uint32_t>(digit);
    shared_.above = before;
  }

  const float* const row_;
  const int64_t size_;
  SelectShared& shared_;
  bool is_gathered_ = false;
};

}  // namespace mlc_native::kernels::cuda
