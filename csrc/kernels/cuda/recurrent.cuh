// What the kernels of layers with states share: what a convolution reads of a row and of the rows
// before it, and the columns of a head's state.
#pragma once

#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/states.h"

namespace mlc_native::kernels::cuda {

__device__ inline float Sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ inline float SoftplusOf(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }
__host__ __device__ inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// ---- Convolutions ----

inline constexpr int kFew = 4;  // channels of a thread: 16 bytes of a state

// Neighbours as they lie in memory: nothing waits for them before they are numbers.
template <typename T>
struct RawFew {
  std::conditional_t<sizeof(T) == 4, uint4, uint2> words;

  __device__ void ToFloats(float (&x)[kFew]) const {
    if constexpr (sizeof(T) == 4) {
      x[0] = __uint_as_float(words.x), x[1] = __uint_as_float(words.y);
      x[2] = __uint_as_float(words.z), x[3] = __uint_as_float(words.w);
    } else {
      x[0] = ToFloat(T{static_cast<uint16_t>(words.x)});
      x[1] = ToFloat(T{static_cast<uint16_t>(words.x >> 16)});
      x[2] = ToFloat(T{static_cast<uint16_t>(words.y)});
      x[3] = ToFloat(T{static_cast<uint16_t>(words.y >> 16)});
    }
  }
};
template <typename T>
__device__ inline RawFew<T> LoadFew(const T* from) {
  RawFew<T> raw;
  LoadStreamedIf(true, from, raw.words);  // which the compiler leaves where it stands
  return raw;
}

__device__ inline void StoreFew(float* to, const float (&x)[kFew]) {
  StoreAtOnce(to, uint4{__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]),
                        __float_as_uint(x[3])});
}
template <typename T>
__device__ inline void StoreFew(T* to, const float (&x)[kFew]) {
  StoreAtOnce(to, uint2{Pack<T>(x[0], x[1]), Pack<T>(x[2], x[3])});
}

// The weights of a convolution for the channels of a thread, the newest row first. kWidth: exactly
// so many rows, or kMaxConvWidth for any number.
template <int kWidth>
class ConvolutionWeights {
 public:
  // Channels behind the last one get the weights of others.
  __device__ ConvolutionWeights(const float* weights, int64_t channels, int64_t width,
                                int64_t channel)
      : width_(kWidth < kMaxConvWidth ? kWidth : static_cast<int>(width)) {
    const float* const from = weights + min(channel, channels - kFew);
#pragma unroll
    for (int back = 0; back < kWidth; ++back) {
      rows_[back] = LoadFew(from + max(width_ - 1 - back, 0) * channels);
    }
  }
  __device__ int width() const { return width_; }
  // sum += the products with x[back] of each row, the oldest first.
  __device__ void AddProducts(const float (&x)[kWidth][kFew], float (&sum)[kFew]) const {
#pragma unroll
    for (int back = kWidth - 1; back >= 0; --back) {
      if (back >= width_) continue;
      float weights[kFew];
      rows_[back].ToFloats(weights);
#pragma unroll
      for (int i = 0; i < kFew; ++i) sum[i] = fmaf(x[back][i], weights[i], sum[i]);
    }
  }

 private:
  const int width_;
  RawFew<float> rows_[kWidth];
};

// Sets x[1], x[2], ...: what the convolution of `row` reads of the row before it, of the one before
// that, and so on. Rows are counted from the slice's first one; load(row) is what there is of one.
// `state`: of these channels in slot 0. All loads are issued before one of them is waited for;
// those of rows that do not exist read their neighbours.
template <int kWidth, typename Load>
__device__ inline void LoadRowsBefore(const DeltaSlice& slice, int64_t row, int width,
                                      const float* state, int64_t slot_floats, int64_t channels,
                                      const Load& load, float (&x)[kWidth][kFew]) {
  decltype(load(row)) here[kWidth];
  RawFew<float> earlier[kWidth] = {};
  const bool reads_state = row < width - 1;  // the same for all threads of the row
  if (reads_state) {
    const float* const from = state + max(slice.slot, 0) * slot_floats;
#pragma unroll
    for (int back = 1; back < kWidth; ++back) {
      const int64_t of_state = width - 1 + row - back;
      earlier[back] = LoadFew(from + max(min(of_state, int64_t{width} - 2), int64_t{0}) * channels);
    }
  }
#pragma unroll
  for (int back = 1; back < kWidth; ++back) here[back] = load(max(row - back, int64_t{0}));
#pragma unroll
  for (int back = 1; back < kWidth; ++back) {
    here[back].ToFloats(x[back]);
    if (back <= row) continue;
    earlier[back].ToFloats(x[back]);
#pragma unroll
    for (int i = 0; i < kFew; ++i) x[back][i] = slice.slot < 0 ? 0.0f : x[back][i];
  }
}

// Leaves what the convolution will read of `row`, counted from the slice's first one, and of the
// rows before it in the states that are behind `row`. x[back]: of the rows, by how far they lie
// back. `state`: of these channels in slot 0.
template <int kWidth>
__device__ inline void LeaveRows(const DeltaSlice& slice, const DeltaWrite* writes, int64_t row,
                                 const float (&x)[kWidth][kFew], int width, float* state,
                                 int64_t slot_floats, int64_t channels) {
#pragma unroll 1
  for (int32_t w = 0; w < slice.num_writes; ++w) {
    const DeltaWrite write = writes[slice.first_write + w];
    if (write.num_rows != row + 1) continue;
    float* const to = state + write.slot * slot_floats;
#pragma unroll
    for (int back = 0; back < kWidth - 1; ++back) {
      if (back < width - 1) StoreFew(to + (width - 2 - back) * channels, x[back]);
    }
  }
}

// ---- States of heads ----

inline constexpr int kLanesPerColumn = 4;  // each has a quarter of the keys

// The lane's part of a column of the state: kKeys / 4 runs of four keys, every fourth run. Behind
// the last key are zeros, and so there are in the vectors of kKeys floats in shared memory that it
// meets.
template <int kKeys>
class ColumnPart {
 public:
  static constexpr int kRuns = kKeys / kLanesPerColumn / kFew;

  __device__ ColumnPart(int64_t key_dim, int lane)
      : dim_(static_cast<int>(key_dim)), first_(lane * kFew) {
#pragma unroll
    for (int i = 0; i < kRuns * kFew; ++i) s_[i] = 0.0f;
  }
  __device__ void Load(const float* column) {
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      if (Key(run) >= dim_) continue;
      const uint4 v = LoadStreamed(column + Key(run));
      s_[run * 4] = __uint_as_float(v.x), s_[run * 4 + 1] = __uint_as_float(v.y);
      s_[run * 4 + 2] = __uint_as_float(v.z), s_[run * 4 + 3] = __uint_as_float(v.w);
    }
  }
  __device__ void Store(float* column) const {
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      const float few[kFew] = {s_[run * 4], s_[run * 4 + 1], s_[run * 4 + 2], s_[run * 4 + 3]};
      if (Key(run) < dim_) StoreFew(column + Key(run), few);
    }
  }
  // The product of the column with a vector; all its lanes get it.
  __device__ float Product(const float* x) const {
    float sums[4] = {};
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      const float4 v = *reinterpret_cast<const float4*>(x + Key(run));
      sums[0] = fmaf(s_[run * 4], v.x, sums[0]);
      sums[1] = fmaf(s_[run * 4 + 1], v.y, sums[1]);
      sums[2] = fmaf(s_[run * 4 + 2], v.z, sums[2]);
      sums[3] = fmaf(s_[run * 4 + 3], v.w, sums[3]);
    }
    return Sum(sums);
  }
  // Multiplies each key's part with its decay; then as Product.
  __device__ float DecayedProduct(const float* decays, const float* x) {
    float sums[4] = {};
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      const float4 d = *reinterpret_cast<const float4*>(decays + Key(run));
      const float4 v = *reinterpret_cast<const float4*>(x + Key(run));
      s_[run * 4] *= d.x, s_[run * 4 + 1] *= d.y, s_[run * 4 + 2] *= d.z, s_[run * 4 + 3] *= d.w;
      sums[0] = fmaf(s_[run * 4], v.x, sums[0]);
      sums[1] = fmaf(s_[run * 4 + 1], v.y, sums[1]);
      sums[2] = fmaf(s_[run * 4 + 2], v.z, sums[2]);
      sums[3] = fmaf(s_[run * 4 + 3], v.w, sums[3]);
    }
    return Sum(sums);
  }
  // Sets all to -e^x of what lies so far apart.
  __device__ void LoadRates(const float* x, int64_t stride) {
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      if (Key(run) >= dim_) continue;
#pragma unroll
      for (int i = 0; i < kFew; ++i) s_[run * kFew + i] = -expf(x[(Key(run) + i) * stride]);
    }
  }
  // Each key's part decays by e^(its rate * step).
  __device__ void UpdateByRates(const ColumnPart& rates, float step, const float* k, float write) {
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      const float4 v = *reinterpret_cast<const float4*>(k + Key(run));
      const float keys[kFew] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int i = 0; i < kFew; ++i) {
        float& s = s_[run * kFew + i];
        s = fmaf(keys[i], write, expf(rates.s_[run * kFew + i] * step) * s);
      }
    }
  }
  __device__ void Update(float decay, const float* k, float write) {
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      const float4 v = *reinterpret_cast<const float4*>(k + Key(run));
      s_[run * 4] = fmaf(v.x, write, decay * s_[run * 4]);
      s_[run * 4 + 1] = fmaf(v.y, write, decay * s_[run * 4 + 1]);
      s_[run * 4 + 2] = fmaf(v.z, write, decay * s_[run * 4 + 2]);
      s_[run * 4 + 3] = fmaf(v.w, write, decay * s_[run * 4 + 3]);
    }
  }

 private:
  __device__ static float Sum(const float (&sums)[4]) {
    return ReduceWarp<kLanesPerColumn>((sums[0] + sums[1]) + (sums[2] + sums[3]), Plus());
  }
  __device__ int Key(int run) const { return run * kLanesPerColumn * kFew + first_; }

  const int dim_;
  const int first_;  // key
  float s_[kRuns * kFew];
};

}  // namespace mlc_native::kernels::cuda
