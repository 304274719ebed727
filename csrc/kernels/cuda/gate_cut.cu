// CutGates, SumGates: one block per row, which is read up to three times, from the caches mostly.
#include "kernels/cuda/gate_cut.h"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"

namespace mlc_native::kernels::cuda {
inline namespace gate_cut_cu {

constexpr int kCutThreads = 256;
constexpr int kCutWarps = kCutThreads / kWarp;

// The sum of f(x) over a whole row. `shared` as in ReduceBlock.
template <typename T, typename F>
__device__ inline float SumOfRow(const T* row, int64_t n, float* shared, const F& f) {
  float sum = 0.0f;
  for (int64_t column = threadIdx.x * kVector; column < n; column += kCutThreads * kVector) {
    float x[kVector];
    LoadFloats(row + column, x);
#pragma unroll
    for (int j = 0; j < kVector; ++j) sum += f(x[j]);
  }
  return ReduceBlock<kCutWarps>(sum, Plus(), shared);
}

template <typename T>
__global__ void __launch_bounds__(kCutThreads)
    CutGatesKernel(const __grid_constant__ CutGatesArgs args) {
  __shared__ float sums[kCutWarps];
  __shared__ float squares[kCutWarps];
  WaitForPrevious();
  const int64_t row = blockIdx.x;
  T* x = static_cast<T*>(args.x) + row * args.ld;
  float mean, variance;
  if (args.sums == nullptr) {
    const auto n = static_cast<float>(args.n);
    mean = SumOfRow(x, args.n, sums, [](float value) { return value; }) / n;
    variance = SumOfRow(x, args.n, squares,
                        [mean](float value) { return (value - mean) * (value - mean); }) /
               n;
  } else {
    const auto n = static_cast<float>(args.whole_n);
    mean = args.sums[2 * row] / n;
    variance = fmaxf(args.sums[2 * row + 1] / n - mean * mean, 0.0f);
  }
  const float cut = fmaf(args.deviations, sqrtf(variance), mean);
  for (int64_t column = threadIdx.x * kVector; column < args.n; column += kCutThreads * kVector) {
    float values[kVector];
    LoadFloats(x + column, values);
#pragma unroll
    for (int j = 0; j < kVector; ++j) values[j] = fmaxf(values[j] - cut, 0.0f);
    StoreFloats(x + column, values);
  }
}

struct SumGatesArgs {
  const void* x;
  int64_t ld;
  int64_t n;
  float* sums;
};
template <typename T>
__global__ void __launch_bounds__(kCutThreads)
    SumGatesKernel(const __grid_constant__ SumGatesArgs args) {
  __shared__ float shared[2][kCutWarps];
  WaitForPrevious();
  const int64_t row = blockIdx.x;
  const T* x = static_cast<const T*>(args.x) + row * args.ld;
  const float sum = SumOfRow(x, args.n, shared[0], [](float value) { return value; });
  const float squares = SumOfRow(x, args.n, shared[1], [](float value) { return value * value; });
  if (threadIdx.x != 0) return;
  args.sums[2 * row] = sum;
  args.sums[2 * row + 1] = squares;
}

void CheckCut(const CutGatesArgs& args) {
  MLC_CHECK(args.n > 0 && args.n % kVector == 0 && args.ld % kVector == 0 && args.ld >= args.n)
      << args.n << ' ' << args.ld;
}

LaunchShape CutShape(int64_t rows) {
  return {.grid = dim3(static_cast<unsigned>(rows)), .threads = kCutThreads};
}

}  // namespace gate_cut_cu

void CutGates(const CutGatesArgs& args, Stream stream) {
  CheckCut(args);
  if (args.m == 0) return;
  WithActivationType(args.dtype, [&](auto tag) {
    Launch(CutGatesKernel<typename decltype(tag)::Type>, CutShape(args.m), stream, args);
  });
}

void SumGates(const CutGatesArgs& args, float* sums, Stream stream) {
  CheckCut(args);
  if (args.m == 0) return;
  WithActivationType(args.dtype, [&](auto tag) {
    Launch(SumGatesKernel<typename decltype(tag)::Type>, CutShape(args.m), stream,
           SumGatesArgs{args.x, args.ld, args.n, sums});
  });
}

}  // namespace mlc_native::kernels::cuda
