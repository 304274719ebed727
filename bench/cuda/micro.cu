#include "kernels/cuda/device.cuh"
#include "micro.h"
#include "support/check.h"

namespace mlc_native::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerMultiprocessor = 4;

struct StepArgs {
  int32_t* counter;
};

__global__ void StepKernel(const StepArgs args) {
  WaitForPrevious();
  if (blockIdx.x == 0 && threadIdx.x == 0) *args.counter += 1;
}

struct BarrierArgs {
  int32_t* counter;
  int blocks;
  int rounds;
};

__global__ void BarrierKernel(const BarrierArgs args) {
  WaitForPrevious();
  for (int round = 1; round <= args.rounds; ++round) {
    __syncthreads();
    if (threadIdx.x == 0) {
      CountForOthers(args.counter);
      while (atomicAdd(args.counter, 0) < args.blocks * round) {
      }
    }
    __syncthreads();
  }
}

struct ReadArgs {
  const uint4* data;
  int64_t size;
  int rounds;
  int32_t* out;
};

template <int kLoads>
__global__ void __launch_bounds__(kThreads) ReadKernel(const ReadArgs args) {
  WaitForPrevious();
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  unsigned sum = 0;
  for (int round = 0; round < args.rounds; ++round) {
    for (int64_t i = first; i < args.size; i += kLoads * stride) {
      uint4 loaded[kLoads];
#pragma unroll
      for (int j = 0; j < kLoads; ++j) {
        const int64_t at = i + j * stride;
        loaded[j] = LoadStreamed(args.data + (at < args.size ? at : i));
      }
#pragma unroll
      for (int j = 0; j < kLoads; ++j) {
        sum +=
            i + j * stride < args.size ? loaded[j].x ^ loaded[j].y ^ loaded[j].z ^ loaded[j].w : 0u;
      }
    }
  }
  atomicAdd(args.out + blockIdx.x, static_cast<int32_t>(sum));
}

}  // namespace

void LaunchStep(int32_t* counter, int blocks, Stream stream) {
  Launch(StepKernel, {.grid = dim3(static_cast<unsigned>(blocks)), .threads = kThreads}, stream,
         StepArgs{counter});
}

void LaunchBarriers(int32_t* counter, int blocks, int rounds, Stream stream) {
  MLC_CHECK(blocks > 0 && blocks <= NumMultiprocessors()) << blocks;
  Launch(BarrierKernel, {.grid = dim3(static_cast<unsigned>(blocks)), .threads = kThreads}, stream,
         BarrierArgs{counter, blocks, rounds});
}

int NumReadBlocks() { return kBlocksPerMultiprocessor * NumMultiprocessors(); }

void LaunchRead(const void* data, int64_t bytes, int rounds, int loads, int32_t* out,
                Stream stream) {
  const ReadArgs args{static_cast<const uint4*>(data), bytes / 16, rounds, out};
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(NumReadBlocks())),
                          .threads = kThreads};
  switch (loads) {
    case 1:
      return Launch(ReadKernel<1>, shape, stream, args);
    case 2:
      return Launch(ReadKernel<2>, shape, stream, args);
    case 4:
      return Launch(ReadKernel<4>, shape, stream, args);
    case 8:
      return Launch(ReadKernel<8>, shape, stream, args);
    default:
      MLC_CHECK(false) << loads << " loads";
  }
}

}  // namespace mlc_native::kernels::cuda
