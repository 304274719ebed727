// The steps of residual streams: one block per row. A step reads and writes all streams once, and
// reads twice what it takes sums of. The sums are in the order of the threads of a block.
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/residual_streams.h"

namespace mlc_native::kernels::cuda {
inline namespace residual_streams_cu {

constexpr int kStreamThreads = 256;
constexpr int kStreamWarps = kStreamThreads / kWarp;
constexpr int kMaxFactors = static_cast<int>(kMaxStreams * kMaxStreams);

// Calls f(column) for the columns of the thread, each the first one of a vector.
template <typename F>
__device__ inline void ForColumns(int64_t dim, const F& f) {
  for (int64_t column = threadIdx.x * kVector; column < dim; column += kStreamThreads * kVector) {
    f(column);
  }
}

// Of a whole row. `shared` as in ReduceBlock.
template <typename T>
__device__ inline float MeanSquare(const T* row, int64_t dim, float* shared) {
  float squares = 0.0f;
  ForColumns(dim, [&](int64_t column) {
    float values[kVector];
    LoadFloats(row + column, values);
#pragma unroll
    for (int j = 0; j < kVector; ++j) squares = fmaf(values[j], values[j], squares);
  });
  return ReduceBlock<kStreamWarps>(squares, Plus(), shared) / static_cast<float>(dim);
}

__device__ inline float ToMagnitude(float wanted, float mean_square) {
  return sqrtf(wanted / fmaxf(mean_square, kLeastMeanSquare));
}

// Puts what the coefficients make of the routed row into `factors`, which all threads may read
// then.
template <typename T>
__device__ inline void RouteRow(const StreamArgs& args, const float* row, int num_factors,
                                float* factors) {
  __shared__ float shared[kMaxStreams + 1][kStreamWarps];
  const auto count = static_cast<int>(args.streams.count);
  float squares = 0.0f;
  float routed[kMaxStreams] = {};
  ForColumns(args.dim, [&](int64_t column) {
    float x[kVector], norm[kVector];
    LoadFloats(row + column, x);
    LoadFloats(static_cast<const T*>(args.norm) + column, norm);
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      squares = fmaf(x[j], x[j], squares);
      norm[j] *= x[j];
    }
#pragma unroll
    for (int i = 0; i < kMaxStreams; ++i) {
      if (i >= count) continue;
      float weight[kVector];
      LoadFloats(args.router + i * args.dim + column, weight);
#pragma unroll
      for (int j = 0; j < kVector; ++j) routed[i] = fmaf(norm[j], weight[j], routed[i]);
    }
  });
  squares = ReduceBlock<kStreamWarps>(squares, Plus(), shared[kMaxStreams]);
  const float inverse = ReciprocalSqrt(squares / static_cast<float>(args.dim) + args.eps);
  float factor = 0.0f;
  const auto index = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int i = 0; i < kMaxStreams; ++i) {
    if (i >= count) continue;
    const float sum = ReduceBlock<kStreamWarps>(routed[i], Plus(), shared[i]);
    if (index < num_factors) {
      factor = fmaf(args.coefficients[index * count + i], tanhf(sum * inverse), factor);
    }
  }
  if (index < num_factors) factors[index] = factor;
  __syncthreads();
}

__device__ inline float* StreamOf(const StreamsView& streams, int64_t row, int64_t i) {
  return streams.data + row * streams.ld + i * streams.step;
}

__global__ void __launch_bounds__(kStreamThreads)
    SpreadStreamsKernel(const __grid_constant__ StreamArgs args) {
  __shared__ float shared[kMaxStreams][kStreamWarps];
  WaitForPrevious();
  const int64_t row = blockIdx.x;
  const float* x = args.x + row * args.dim;
  const float wanted = MeanSquare(x, args.dim, shared[0]);
  float* first = StreamOf(args.streams, row, 0);
  ForColumns(args.dim, [&](int64_t column) {
    float values[kVector];
    LoadFloats(x + column, values);
    StoreFloats(first + column, values);
  });
  for (int64_t i = 1; i < args.streams.count; ++i) {
    float* stream = StreamOf(args.streams, row, i);
    const float scale = ToMagnitude(wanted, MeanSquare(stream, args.dim, shared[i]));
    ForColumns(args.dim, [&](int64_t column) {
      float values[kVector];
      LoadFloats(stream + column, values);
#pragma unroll
      for (int j = 0; j < kVector; ++j) values[j] *= scale;
      StoreFloats(stream + column, values);
    });
  }
}

template <typename T>
__global__ void __launch_bounds__(kStreamThreads)
    PredictStreamsKernel(const __grid_constant__ StreamArgs args) {
  __shared__ float factors[kMaxFactors];
  WaitForPrevious();
  const int64_t row = blockIdx.x;
  const auto count = static_cast<int>(args.streams.count);
  RouteRow<T>(args, StreamOf(args.streams, row, args.streams.active), count * count, factors);
  ForColumns(args.dim, [&](int64_t column) {
    float before[kMaxStreams][kVector];
#pragma unroll
    for (int i = 0; i < kMaxStreams; ++i) {
      if (i < count) LoadFloats(StreamOf(args.streams, row, i) + column, before[i]);
    }
#pragma unroll
    for (int i = 0; i < kMaxStreams; ++i) {
      if (i >= count) continue;
      float sum[kVector];
#pragma unroll
      for (int j = 0; j < kVector; ++j) sum[j] = before[i][j];
#pragma unroll
      for (int from = 0; from < kMaxStreams; ++from) {
        if (from >= count) continue;
        const float factor = factors[i * count + from];
#pragma unroll
        for (int j = 0; j < kVector; ++j) sum[j] = fmaf(factor, before[from][j], sum[j]);
      }
      StoreFloats(StreamOf(args.streams, row, i) + column, sum);
      if (i == args.streams.active) StoreFloats(args.x + row * args.dim + column, sum);
    }
  });
}

template <typename T>
__global__ void __launch_bounds__(kStreamThreads)
    CorrectStreamsKernel(const __grid_constant__ StreamArgs args) {
  __shared__ float factors[kMaxFactors];
  WaitForPrevious();
  const int64_t row = blockIdx.x;
  float* x_row = args.x + row * args.dim;
  const auto count = static_cast<int>(args.streams.count);
  RouteRow<T>(args, x_row, count, factors);
  ForColumns(args.dim, [&](int64_t column) {
    float x[kVector], predicted[kVector];
    LoadFloats(x_row + column, x);
    LoadFloats(StreamOf(args.streams, row, args.streams.active) + column, predicted);
#pragma unroll
    for (int j = 0; j < kVector; ++j) x[j] -= predicted[j];
    for (int i = 0; i < count; ++i) {
      float* stream = StreamOf(args.streams, row, i) + column;
      const float factor = 1.0f + factors[i];
      float values[kVector];
      LoadFloats(stream, values);
#pragma unroll
      for (int j = 0; j < kVector; ++j) values[j] = fmaf(factor, x[j], values[j]);
      StoreFloats(stream, values);
      if (i != args.streams.active) continue;
      if (args.scale != nullptr) {
        float scale[kVector];
        LoadFloats(args.scale + column, scale);
#pragma unroll
        for (int j = 0; j < kVector; ++j) values[j] *= scale[j];
      }
      StoreFloats(x_row + column, values);
    }
  });
}

template <typename T>
__global__ void __launch_bounds__(kStreamThreads)
    AddToStreamsKernel(const __grid_constant__ StreamArgs args) {
  __shared__ float shared[kStreamWarps];
  WaitForPrevious();
  const int64_t row = blockIdx.x;
  const T* added = static_cast<const T*>(args.added) + row * args.dim;
  const float inverse = ReciprocalSqrt(MeanSquare(added, args.dim, shared) + args.eps);
  ForColumns(args.dim, [&](int64_t column) {
    float normed[kVector], norm[kVector];
    LoadFloats(added + column, normed);
    LoadFloats(static_cast<const T*>(args.norm) + column, norm);
#pragma unroll
    for (int j = 0; j < kVector; ++j) normed[j] *= inverse * norm[j];
    for (int64_t i = 1; i < args.streams.count; ++i) {
      float* stream = StreamOf(args.streams, row, i) + column;
      float values[kVector];
      LoadFloats(stream, values);
#pragma unroll
      for (int j = 0; j < kVector; ++j) values[j] += normed[j];
      StoreFloats(stream, values);
    }
  });
}

__global__ void __launch_bounds__(kStreamThreads)
    JoinStreamsKernel(const __grid_constant__ StreamArgs args) {
  __shared__ float shared[kMaxStreams][kStreamWarps];
  __shared__ float scales[kMaxStreams];
  WaitForPrevious();
  const int64_t row = blockIdx.x;
  const auto count = static_cast<int>(args.streams.count);
  const float* first = StreamOf(args.streams, row, 0);
  const float* parts = static_cast<const float*>(args.added) + row * args.dim;
  const float wanted = MeanSquare(first, args.dim, shared[0]);
  for (int i = 1; i < count; ++i) {
    const float* part = parts + (i - 1) * args.added_step;
    const float scale = ToMagnitude(wanted, MeanSquare(part, args.dim, shared[i]));
    if (threadIdx.x == 0) scales[i] = scale;
  }
  __syncthreads();
  const float share = 1.0f / static_cast<float>(count);
  ForColumns(args.dim, [&](int64_t column) {
    float sum[kVector];
    LoadFloats(first + column, sum);
    for (int i = 1; i < count; ++i) {
      float part[kVector];
      LoadFloats(parts + (i - 1) * args.added_step + column, part);
#pragma unroll
      for (int j = 0; j < kVector; ++j) sum[j] = fmaf(scales[i], part[j], sum[j]);
    }
#pragma unroll
    for (int j = 0; j < kVector; ++j) sum[j] *= share;
    StoreFloats(args.x + row * args.dim + column, sum);
  });
}

template <typename T>
__global__ void __launch_bounds__(kStreamThreads)
    AddLaurelKernel(const __grid_constant__ AddLaurelArgs args) {
  __shared__ float shared[kStreamWarps];
  WaitForPrevious();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * args.dim;
  const T* x_row = static_cast<const T*>(args.x) + row;
  const float inverse = ReciprocalSqrt(MeanSquare(x_row, args.dim, shared) + args.eps);
  ForColumns(args.dim, [&](int64_t column) {
    float x[kVector], norm[kVector], input[kVector], residual[kVector];
    LoadFloats(x_row + column, x);
    LoadFloats(static_cast<const T*>(args.norm) + column, norm);
    LoadFloats(static_cast<const T*>(args.input) + row + column, input);
    LoadFloats(args.residual + row + column, residual);
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      residual[j] = fmaf(x[j] * inverse, norm[j], (residual[j] + input[j]) * args.scale);
    }
    StoreFloats(args.residual + row + column, residual);
  });
}

LaunchShape StreamShape(int64_t rows) {
  return {.grid = dim3(static_cast<unsigned>(rows)), .threads = kStreamThreads};
}

}  // namespace residual_streams_cu

void RunStreams(const StreamArgs& args, Stream stream) {
  const StreamsView& streams = args.streams;
  MLC_CHECK(streams.count >= 2 && streams.count <= kMaxStreams && streams.active >= 0 &&
            streams.active < streams.count)
      << streams.active << " of " << streams.count;
  MLC_CHECK(args.dim > 0 && args.dim % kVector == 0 && streams.ld == args.dim &&
            streams.step % kVector == 0 && args.added_step % kVector == 0)
      << args.dim << ' ' << streams.ld << ' ' << streams.step;
  if (args.m == 0) return;
  const LaunchShape shape = StreamShape(args.m);
  if (args.op == StreamOp::kSpread) return Launch(SpreadStreamsKernel, shape, stream, args);
  if (args.op == StreamOp::kJoin) return Launch(JoinStreamsKernel, shape, stream, args);
  WithActivationType(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if (args.op == StreamOp::kPredict) {
      Launch(PredictStreamsKernel<T>, shape, stream, args);
    } else if (args.op == StreamOp::kCorrect) {
      Launch(CorrectStreamsKernel<T>, shape, stream, args);
    } else {
      Launch(AddToStreamsKernel<T>, shape, stream, args);
    }
  });
}

void AddLaurel(const AddLaurelArgs& args, Stream stream) {
  MLC_CHECK(args.dim > 0 && args.dim % kVector == 0) << args.dim;
  if (args.m == 0) return;
  WithActivationType(args.dtype, [&](auto tag) {
    Launch(AddLaurelKernel<typename decltype(tag)::Type>, StreamShape(args.m), stream, args);
  });
}

}  // namespace mlc_native::kernels::cuda
