// Gemv: products of up to 32 rows, which are bound by the bandwidth of the weights.
//
// A block owns kTileRows rows of the weight. Its warps take the steps of k in turn (a step is 128
// k) and add their sums in a fixed order. The weights are the first operand of the tensor cores and
// the rows of x the second, eight at a time, so eight rows cost as much as one, and a row's sums
// are the same in every batch. Few weight rows are divided into tiles of 8, so that all
// multiprocessors have work.
//
// Bytes: the weights once, x from cache. Each lane loads the weights of a step (64 bytes of two
// rows in 16 bits) while it computes the previous step.
#include <cstring>
#include <vector>

#include "kernels/cuda/gemv_formats.cuh"
#include "kernels/cuda/reduce.cuh"

namespace mlc_native::kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;

template <typename T>
__device__ void StoreY(const GemvArgs& args, int64_t row, int64_t column, float value) {
  if (args.bias != nullptr) value += ToFloat(static_cast<const T*>(args.bias)[column]);
  const int64_t at = row * args.ldy + column;
  if (args.float_output) {
    float* y = static_cast<float*>(args.y) + at;
    *y = args.accumulate ? *y + value : value;
  } else {
    static_cast<T*>(args.y)[at] = FromFloat<T>(value);
  }
}

// kTiles: of eight rows of x. kHalves: 8 weight rows each.
template <typename Format, int kTiles, int kHalves>
class Worker {
 public:
  using T = typename Format::Element;
  static constexpr int kTileRows = 8 * kHalves;

  __device__ explicit Worker(const GemvArgs& args)
      : args_(args),
        first_row_(static_cast<int64_t>(blockIdx.x) * kTileRows),
        line_(static_cast<int>(threadIdx.x) % kWarp / kRowLanes),
        lane_(static_cast<int>(threadIdx.x) % kRowLanes) {}

  __device__ void Run(float (*shared)[kTiles * 8][kTileRows]) {
    const int num_steps = static_cast<int>((args_.k + kGemvStep - 1) / kGemvStep);
    int step = static_cast<int>(threadIdx.x) / kWarp;
    Weights next = Load(step, num_steps);
    for (; step < num_steps; step += kWarps) {
      const Weights weights = next;
      next = Load(step + kWarps, num_steps);
      Add(step, weights);
    }
    AddUpWarps(shared);
  }

 private:
  struct Weights {
    typename Format::Step halves[kHalves];
  };

  __device__ Weights Load(int step, int num_steps) const {
    Weights weights{};
    if (step >= num_steps) return weights;
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      weights.halves[h] = Format::Load(args_, first_row_ + 8 * h + line_, step, lane_);
    }
    return weights;
  }

  __device__ Pairs LoadX(int tile, int64_t k) const {
    const int64_t row = 8 * tile + line_;
    if (row >= args_.m || k >= args_.k) return {};
    return PairsOf(
        *reinterpret_cast<const uint4*>(static_cast<const T*>(args_.x) + row * args_.ldx + k));
  }

  __device__ void Add(int step, const Weights& weights) {
    constexpr bool kScaled = Format::kGroupBlocks > 0;
    constexpr int kGroupBlocks = kScaled ? Format::kGroupBlocks : kBlocks;
#pragma unroll
    for (int group = 0; group < kBlocks / kGroupBlocks; ++group) {
      float sums[kTiles][4] = {};
#pragma unroll
      for (int i = 0; i < kGroupBlocks; ++i) {
        AddBlock(step, group * kGroupBlocks + i, weights, kScaled ? sums : sums_);
      }
      if constexpr (kScaled) AddScaled(group, weights, sums);
    }
  }

  __device__ void AddBlock(int step, int b, const Weights& weights,
                           float (&sums)[kTiles][4]) const {
    const int64_t k = static_cast<int64_t>(step) * kGemvStep + b * kBlock + lane_ * kVector;
    const Pairs low = Format::Block(weights.halves[0], b);
    Pairs high{};
    if constexpr (kHalves == 2) high = Format::Block(weights.halves[1], b);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const Pairs x = LoadX(tile, k);
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const uint32_t a[4] = {low.pair[i], high.pair[i], low.pair[i + 1], high.pair[i + 1]};
        Mma<T>(sums[tile], a, x.pair[i], x.pair[i + 1]);
      }
    }
  }

  __device__ void AddScaled(int group, const Weights& weights, const float (&sums)[kTiles][4]) {
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      const float scale = Format::Scale(weights.halves[h], group);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        sums_[tile][2 * h] += scale * sums[tile][2 * h];
        sums_[tile][2 * h + 1] += scale * sums[tile][2 * h + 1];
      }
    }
  }

  // shared[warp, row of x, row of the weight]
  __device__ void AddUpWarps(float (*shared)[kTiles * 8][kTileRows]) const {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 2 * kHalves; ++i) {
        shared[warp][8 * tile + 2 * lane_ + i % 2][line_ + 8 * (i / 2)] = sums_[tile][i];
      }
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kTiles * 8 * kTileRows; i += kThreads) {
      const int row = i / kTileRows;
      const int64_t column = first_row_ + i % kTileRows;
      if (row >= args_.m || column >= args_.n) continue;
      float sum = 0.0f;
      for (int w = 0; w < kWarps; ++w) sum += shared[w][row][i % kTileRows];
      StoreY<T>(args_, row, column, sum);
    }
  }

  const GemvArgs& args_;
  const int64_t first_row_;  // of the weight
  const int line_;           // row of the weight, and of x, within eight
  const int lane_;           // of a row
  float sums_[kTiles][4] = {};
};

template <typename Format, int kTiles, int kHalves>
__global__ void __launch_bounds__(kThreads, kTiles < 4 ? 2 : 1)
    GemvKernel(const __grid_constant__ GemvArgs args) {
  __shared__ float shared[kWarps][kTiles * 8][8 * kHalves];
  Worker<Format, kTiles, kHalves>(args).Run(shared);
}

// Without tensor cores: a warp per output.
__global__ void __launch_bounds__(kThreads) FloatGemvKernel(const __grid_constant__ GemvArgs args) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  const int64_t row = blockIdx.y;
  if (column >= args.n) return;
  const float* w = static_cast<const float*>(args.weight) + column * args.k;
  const float* x = static_cast<const float*>(args.x) + row * args.ldx;
  float sum = 0.0f;
  for (int64_t k = threadIdx.x % kWarp; k < args.k; k += kWarp) sum += w[k] * x[k];
  sum = ReduceWarp(sum, Plus());
  if (threadIdx.x % kWarp == 0) StoreY<float>(args, row, column, sum);
}

template <typename Format, int kTiles>
void LaunchForTiles(const GemvArgs& args, Stream stream) {
  const auto blocks = [&](int64_t rows) {
    return dim3(static_cast<unsigned>((args.n + rows - 1) / rows));
  };
  if (args.n < 2 * 16 * NumMultiprocessors()) {
    return Launch(GemvKernel<Format, kTiles, 1>, {.grid = blocks(8), .threads = kThreads}, stream,
                  args);
  }
  Launch(GemvKernel<Format, kTiles, 2>, {.grid = blocks(16), .threads = kThreads}, stream, args);
}

template <typename Format>
void LaunchForRows(const GemvArgs& args, Stream stream) {
  if (args.m <= 8) return LaunchForTiles<Format, 1>(args, stream);
  if (args.m <= 16) return LaunchForTiles<Format, 2>(args, stream);
  LaunchForTiles<Format, 4>(args, stream);
}

template <typename T>
void LaunchForFormat(const GemvArgs& args, Stream stream) {
  if (args.format == WeightFormat::kQ8) return LaunchForRows<Q8Format<T>>(args, stream);
  if (args.format == WeightFormat::kQ4) return LaunchForRows<Q4Format<T>>(args, stream);
  MLC_CHECK(args.format == FormatOf(args.dtype)) << "format " << static_cast<int>(args.format);
  LaunchForRows<PlainFormat<T>>(args, stream);
}

struct Packing {
  int64_t group;  // k of a scale
  int64_t bits;
  int64_t steps;
};

Packing PackingOf(WeightFormat format, int64_t k) {
  MLC_CHECK(format == WeightFormat::kQ8 || format == WeightFormat::kQ4)
      << "format " << static_cast<int>(format);
  const bool is_q8 = format == WeightFormat::kQ8;
  return {
      .group = is_q8 ? 64 : 32, .bits = is_q8 ? 8 : 4, .steps = (k + kGemvStep - 1) / kGemvStep};
}

// Returns the position of the code of k (within a step), in bits from the beginning of the row's
// step (gemv_formats.cuh).
int64_t BitOf(WeightFormat format, int64_t k) {
  const int64_t block = k / kBlock;
  const int64_t lane = k % kBlock / kVector;
  const int64_t i = k % kVector;
  if (format == WeightFormat::kQ8) {
    return 8 * ((block / 2 * kRowLanes + lane) * 16 + block % 2 * kVector + i);
  }
  return (lane * 4 + block) * 32 + i / 2 * 4 + i % 2 * 16;
}

}  // namespace

void Gemv(const GemvArgs& args, Stream stream) {
  MLC_CHECK(args.m <= kMaxGemvRows && args.k % kVector == 0) << args.m << " x " << args.k;
  MLC_CHECK(args.float_output || !args.accumulate);
  if (args.m == 0) return;
  switch (args.dtype) {
    case DType::kBFloat16:
      return LaunchForFormat<BFloat16>(args, stream);
    case DType::kFloat16:
      return LaunchForFormat<Float16>(args, stream);
    case DType::kFloat32:
      MLC_CHECK(args.format == WeightFormat::kFloat32)
          << "format " << static_cast<int>(args.format);
      return Launch(FloatGemvKernel,
                    {.grid = dim3(static_cast<unsigned>((args.n + kWarps - 1) / kWarps),
                                  static_cast<unsigned>(args.m)),
                     .threads = kThreads},
                    stream, args);
  }
}

size_t GemvWeightBytes(WeightFormat format, int64_t n, int64_t k) {
  const Packing p = PackingOf(format, k);
  const int64_t step_bytes = kGemvStep * p.bits / 8 + kGemvStep / p.group * 2;
  return static_cast<size_t>(n * p.steps * step_bytes);
}

void PackGemvWeights(WeightFormat format, int64_t n, int64_t k, const QuantizedRows& rows,
                     void* packed) {
  const Packing p = PackingOf(format, k);
  std::memset(packed, 0, GemvWeightBytes(format, n, k));
  auto* codes = static_cast<uint8_t*>(packed);
  const int64_t step_bytes = kGemvStep * p.bits / 8;
  auto* scales = reinterpret_cast<uint16_t*>(codes + n * p.steps * step_bytes);
  const int64_t groups = (k + p.group - 1) / p.group;
  const auto zero = static_cast<uint8_t>(1 << (p.bits - 1));
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t i = 0; i < p.steps * kGemvStep; ++i) {
      const uint8_t code = i < k ? rows.codes[row * k + i] : zero;
      const int64_t bit = BitOf(format, i % kGemvStep);
      uint8_t* byte = codes + (row * p.steps + i / kGemvStep) * step_bytes + bit / 8;
      *byte = static_cast<uint8_t>(*byte | code << (bit % 8));
    }
    std::memcpy(scales + row * p.steps * (kGemvStep / p.group), rows.scales + row * groups,
                static_cast<size_t>(groups) * sizeof(uint16_t));
  }
}

}  // namespace mlc_native::kernels::cuda
