// Dequantize: turns weights in Gemv's layout into row-major numbers, for products of many rows.
//
// A thread unpacks the part that a lane of Gemv loads for a step: 32 numbers of a row, eight at a
// time. Bytes: the packed weight once, and two for each number.
#include "kernels/cuda/gemv_formats.cuh"
#include "kernels/cuda/one_thread_each.cuh"

namespace mlc_native::kernels::cuda {
inline namespace dequantize_cu {

constexpr int kDequantizeThreads = 256;

struct DequantizeKernelArgs {
  GemvArgs weight;
  int64_t first_row;
  int64_t num_rows;
  void* out;
};

__device__ __host__ inline int64_t NumSteps(int64_t k) { return (k + kGemvStep - 1) / kGemvStep; }

template <typename Format>
__global__ void __launch_bounds__(kDequantizeThreads)
    DequantizeKernel(const __grid_constant__ DequantizeKernelArgs args) {
  WaitForPrevious();
  using T = typename Format::Element;
  const int64_t k = args.weight.k;
  const int64_t part = GlobalThread();
  const int64_t row = part / kRowLanes / NumSteps(k);
  if (row >= args.num_rows) return;
  const auto step = static_cast<int>(part / kRowLanes % NumSteps(k));
  const auto lane = static_cast<int>(part % kRowLanes);
  const typename Format::Step loaded =
      typename Format::Row(args.weight, args.first_row + row, lane).Load(step);
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    const int64_t at = step * kGemvStep + b * kBlock + lane * kVector;
    if (at >= k) break;
    const Pairs codes = Format::Block(loaded, b);
    const float scale = Format::Scale(loaded, b / Format::kGroupBlocks);
    float x[kVector];
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const auto code = static_cast<uint16_t>(codes.pair[i / 2] >> (i % 2 * 16));
      x[i] = scale * ToFloat(T{code});
    }
    StoreFloats(static_cast<T*>(args.out) + row * k + at, x);
  }
}

}  // namespace dequantize_cu

void Dequantize(const DequantizeArgs& args, Stream stream) {
  MLC_CHECK(args.format != FormatOf(args.dtype)) << "format " << static_cast<int>(args.format);
  MLC_CHECK(args.k % kVector == 0 && args.first_row + args.num_rows <= args.n)
      << args.first_row << " + " << args.num_rows << " of " << args.n << " x " << args.k;
  if (args.num_rows == 0) return;
  const DequantizeKernelArgs kernel_args{
      .weight = {.weight = args.weight, .n = args.n, .k = args.k},
      .first_row = args.first_row,
      .num_rows = args.num_rows,
      .out = args.out};
  const int64_t parts = args.num_rows * NumSteps(args.k) * kRowLanes;
  const LaunchShape shape = OneThreadEach(parts, kDequantizeThreads);
  WithActivationType(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (sizeof(T) == 2) {
      WithGemvFormat<T>(args.format, args.dtype, [&](auto format) {
        using Format = typename decltype(format)::Type;
        if constexpr (Format::kGroupBlocks > 0) {
          Launch(DequantizeKernel<Format>, shape, stream, kernel_args);
        }
      });
    } else {
      MLC_CHECK(false) << "quantized weights as float32";
    }
  });
}

}  // namespace mlc_native::kernels::cuda
