// AddAdapters: two launches for at most kAdapterRows rows.
//
// Shrink: a block computes kElementsAtOnce elements of the inner product of a row at a time, or of
// four rows, which share what is loaded. Expand: a thread per element of y, of one row or of four.
// Rows of a block that follow one another and have the same adapter are computed together; others
// one after another. The order of a sum is the same in all of these: that of a thread's columns,
// its warp, and the warps; in Expand that of four sums of every fourth product.
#include <algorithm>

#include "kernels/cuda/adapters.h"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"

namespace mlc_native::kernels::cuda {
inline namespace adapters_cu {

constexpr int kAdapterThreads = 128;
constexpr int kAdapterWarps = kAdapterThreads / kWarp;
constexpr int64_t kAdapterRows = 256;
constexpr int64_t kFewAdapterRows = 16;  // up to which a block has one row
constexpr int kManyRowsOfBlock = 4;
constexpr int kElementsAtOnce = 4;     // that a block of Shrink computes at once
constexpr unsigned kShrinkBlocks = 8;  // of the same rows
static_assert(kVector % kElementsAtOnce == 0 &&
              kManyRowsOfBlock * kElementsAtOnce <= kAdapterThreads);

// The matrices of the adapter of a row; null: there are none.
__device__ inline const AdapterMatrices* MatricesOf(const AddAdaptersArgs& args, int64_t row) {
  const int64_t of = args.rows == nullptr ? row : args.rows[row];
  const AdapterMatrices* const adapter = args.adapters[of];
  return adapter == nullptr ? nullptr : adapter + args.linear;
}

// Calls f(matrices, first row, number of rows) for those of the block's kRows rows that have an
// adapter that changes the linear. The same calls for all threads of the block.
template <int kRows, typename F>
__device__ inline void ForRowsOfAdapters(const AddAdaptersArgs& args, const F& f) {
  int64_t row = static_cast<int64_t>(blockIdx.y) * kRows;
  const int64_t end = min(row + kRows, args.m);
  while (row < end) {
    const AdapterMatrices* const matrices = MatricesOf(args, row);
    const int64_t first = row++;
    while (row < end && MatricesOf(args, row) == matrices) ++row;
    if (matrices != nullptr && matrices->rank > 0) {
      f(*matrices, first, static_cast<int>(row - first));
    }
  }
}

// Of a matrix of an adapter, whose address the compiler does not know to be of global memory.
template <typename T>
__device__ inline RawVector8<T> LoadMatrix(const T* from) {
  RawVector8<T> raw;
#pragma unroll
  for (int i = 0; i < RawVector8<T>::kParts; ++i) {
    raw.parts[i] = LoadStreamed(reinterpret_cast<const uint4*>(from) + i);
  }
  return raw;
}

// workspace[i, r] = down[r] . x[i]
template <typename T, int kRows>
__global__ void __launch_bounds__(kAdapterThreads)
    ShrinkKernel(const __grid_constant__ AddAdaptersArgs args) {
  constexpr int kAhead = kRows == 1 ? 2 : 1;  // vectors of a thread that are loaded at once
  constexpr int64_t kStep = kAdapterThreads * kVector;
  __shared__ float shared[kAdapterWarps][kRows * kElementsAtOnce];
  WaitForPrevious();
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  ForRowsOfAdapters<kRows>(args, [&](const AdapterMatrices& matrices, int64_t first, int count) {
    const T* x = static_cast<const T*>(args.x) + first * args.ldx;
    for (int64_t element = static_cast<int64_t>(blockIdx.x) * kElementsAtOnce;
         element < matrices.rank; element += static_cast<int64_t>(gridDim.x) * kElementsAtOnce) {
      const T* down = static_cast<const T*>(matrices.down) + element * args.k;
      float sums[kRows][kElementsAtOnce] = {};
      for (int64_t begin = threadIdx.x * kVector; begin < args.k; begin += kAhead * kStep) {
        RawVector8<T> of_down[kAhead][kElementsAtOnce];
        RawVector8<T> of_x[kAhead][kRows];
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
          const int64_t column = min(begin + i * kStep, args.k - kVector);
#pragma unroll
          for (int e = 0; e < kElementsAtOnce; ++e)
            of_down[i][e] = LoadMatrix(down + e * args.k + column);
#pragma unroll
          for (int r = 0; r < kRows; ++r) {
            of_x[i][r] = LoadRaw(x + min(r, count - 1) * args.ldx + column);
          }
        }
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
          if (begin + i * kStep >= args.k) continue;
          float w[kElementsAtOnce][kVector];
#pragma unroll
          for (int e = 0; e < kElementsAtOnce; ++e) ToFloats(of_down[i][e], w[e]);
#pragma unroll
          for (int r = 0; r < kRows; ++r) {
            float values[kVector];
            ToFloats(of_x[i][r], values);
#pragma unroll
            for (int e = 0; e < kElementsAtOnce; ++e) {
#pragma unroll
              for (int j = 0; j < kVector; ++j) sums[r][e] = fmaf(w[e][j], values[j], sums[r][e]);
            }
          }
        }
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int e = 0; e < kElementsAtOnce; ++e) {
          const float sum = ReduceWarp(sums[r][e], Plus());
          if (threadIdx.x % kWarp == 0) shared[warp][r * kElementsAtOnce + e] = sum;
        }
      }
      __syncthreads();
      const int i = static_cast<int>(threadIdx.x);
      if (i < count * kElementsAtOnce) {
        float sum = shared[0][i];
#pragma unroll
        for (int other = 1; other < kAdapterWarps; ++other) sum += shared[other][i];
        args.workspace[(first + i / kElementsAtOnce) * kMaxDeviceRank + element +
                       i % kElementsAtOnce] = sum;
      }
      __syncthreads();  // shared memory goes to the next elements
    }
  });
}

// y[i] += up . workspace[i]
template <typename T, typename Y, int kRows>
__global__ void __launch_bounds__(kAdapterThreads)
    ExpandKernel(const __grid_constant__ AddAdaptersArgs args) {
  constexpr int kSums = 4;                    // that do not wait for each other
  constexpr int kAhead = kRows == 1 ? 4 : 1;  // vectors that are loaded at once
  WaitForPrevious();
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kAdapterThreads + threadIdx.x;
  if (column >= args.n) return;
  ForRowsOfAdapters<kRows>(args, [&](const AdapterMatrices& matrices, int64_t first, int count) {
    const T* up = static_cast<const T*>(matrices.up) + column * matrices.rank;
    const float* inner = args.workspace + first * kMaxDeviceRank;
    float sums[kRows][kSums] = {};
    for (int64_t begin = 0; begin < matrices.rank; begin += kAhead * kVector) {
      RawVector8<T> of_up[kAhead];
      RawVector8<float> of_inner[kAhead][kRows];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int64_t element = min(begin + i * kVector, matrices.rank - kVector);
        of_up[i] = LoadMatrix(up + element);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          of_inner[i][r] = LoadRaw(inner + min(r, count - 1) * kMaxDeviceRank + element);
        }
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (begin + i * kVector >= matrices.rank) continue;
        float w[kVector];
        ToFloats(of_up[i], w);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          float values[kVector];
          ToFloats(of_inner[i][r], values);
#pragma unroll
          for (int j = 0; j < kVector; ++j) {
            sums[r][j % kSums] = fmaf(w[j], values[j], sums[r][j % kSums]);
          }
        }
      }
    }
    Y* y = static_cast<Y*>(args.y) + first * args.ldy + column;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= count) continue;
      const float sum = (sums[r][0] + sums[r][1]) + (sums[r][2] + sums[r][3]);
      y[r * args.ldy] = FromFloat<Y>(ToFloat(y[r * args.ldy]) + sum);
    }
  });
}

template <typename T, typename Y>
void LaunchAdapters(const AddAdaptersArgs& args, Stream stream) {
  const bool is_few = args.m <= kFewAdapterRows;
  const auto groups =
      static_cast<unsigned>(is_few ? args.m : (args.m + kManyRowsOfBlock - 1) / kManyRowsOfBlock);
  const auto columns = static_cast<unsigned>((args.n + kAdapterThreads - 1) / kAdapterThreads);
  const LaunchShape shrink{.grid = dim3(kShrinkBlocks, groups), .threads = kAdapterThreads};
  const LaunchShape expand{.grid = dim3(columns, groups), .threads = kAdapterThreads};
  if (is_few) {
    Launch(ShrinkKernel<T, 1>, shrink, stream, args);
    Launch(ExpandKernel<T, Y, 1>, expand, stream, args);
  } else {
    Launch(ShrinkKernel<T, kManyRowsOfBlock>, shrink, stream, args);
    Launch(ExpandKernel<T, Y, kManyRowsOfBlock>, expand, stream, args);
  }
}

}  // namespace adapters_cu

int64_t AdapterWorkspaceFloats(int64_t max_rows) {
  return std::min(max_rows, kAdapterRows) * kMaxDeviceRank;
}

void AddAdapters(const AddAdaptersArgs& args, Stream stream) {
  MLC_CHECK(args.k > 0 && args.k % kVector == 0 && args.ldx % kVector == 0 && args.n > 0)
      << args.n << " x " << args.k << ", rows of " << args.ldx;
  WithActivationType(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    for (int64_t first = 0; first < args.m; first += kAdapterRows) {
      AddAdaptersArgs part = args;
      part.m = std::min(kAdapterRows, args.m - first);
      if (args.rows != nullptr) {
        part.rows += first;
      } else {
        part.adapters += first;
      }
      part.x = static_cast<const T*>(args.x) + first * args.ldx;
      if (args.float_output) {
        part.y = static_cast<float*>(args.y) + first * args.ldy;
        LaunchAdapters<T, float>(part, stream);
      } else {
        part.y = static_cast<T*>(args.y) + first * args.ldy;
        LaunchAdapters<T, T>(part, stream);
      }
    }
  });
}

}  // namespace mlc_native::kernels::cuda
