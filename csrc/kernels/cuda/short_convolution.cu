// ShortConvolution in one launch: a thread per four channels of a row. The thread of a row behind
// which a state is left has all that goes into it.
//
// Moves, for each row of a slice, 6 bytes per channel in and 2 out; a row of a decode step also 4
// for each row of the states that it reads and writes.
#include "kernels/cuda/recurrent.cuh"
#include "kernels/cuda/short_convolution.h"

namespace mlc_native::kernels::cuda {
inline namespace short_convolution_cu {

constexpr int kConvolutionThreads = 64;  // few, so that a single row has several blocks
constexpr int kUsualWidth = 3;           // of LFM2

// b * x of a row of the slice.
template <typename T>
struct RawProduct {
  RawFew<T> b;
  RawFew<T> x;

  __device__ void ToFloats(float (&products)[kFew]) const {
    float factors[kFew];
    b.ToFloats(factors);
    x.ToFloats(products);
#pragma unroll
    for (int i = 0; i < kFew; ++i) products[i] *= factors[i];
  }
};

template <typename T, int kWidth>
__global__ void __launch_bounds__(kConvolutionThreads)
    ShortConvolutionKernel(const __grid_constant__ ShortConvolutionArgs a) {
  const int64_t channel =
      (static_cast<int64_t>(blockIdx.y) * kConvolutionThreads + threadIdx.x) * kFew;
  const ConvolutionWeights<kWidth> weights(a.weights, a.channels, a.width, channel);
  WaitForPrevious();
  if (channel >= a.channels) return;
  const int64_t row = blockIdx.x;
  const T* const inputs = static_cast<const T*>(a.inputs) + channel;
  const auto product_of = [&](int64_t of) -> RawProduct<T> {
    const T* const from = inputs + of * 3 * a.channels;
    return {LoadFew(from), LoadFew(from + 2 * a.channels)};
  };
  const RawProduct<T> own = product_of(row);
  const RawFew<T> gates = LoadFew(inputs + (3 * row + 1) * a.channels);
  const int32_t index = a.slice_of_row[row];
  if (index < 0) return;
  const DeltaSlice slice = a.slices[index];
  const int64_t in_slice = row - slice.row_begin;
  float products[kWidth][kFew];
  LoadRowsBefore<kWidth>(
      slice, in_slice, weights.width(), a.states + channel, a.slot_floats, a.channels,
      [&](int64_t before) { return product_of(slice.row_begin + before); }, products);
  own.ToFloats(products[0]);
  float sum[kFew] = {};
  float out[kFew];
  weights.AddProducts(products, sum);
  gates.ToFloats(out);
#pragma unroll
  for (int i = 0; i < kFew; ++i) out[i] *= sum[i];
  StoreFew(static_cast<T*>(a.out) + row * a.channels + channel, out);
  LeaveRows(slice, a.writes, in_slice, products, weights.width(), a.states + channel, a.slot_floats,
            a.channels);
}

}  // namespace short_convolution_cu

void ShortConvolution(const ShortConvolutionArgs& args, Stream stream) {
  MLC_CHECK(args.channels > 0 && args.channels % kFew == 0 && args.slot_floats % kFew == 0)
      << args.channels << " channels";
  MLC_CHECK(args.width > 1 && args.width <= kMaxConvWidth) << "a width of " << args.width;
  if (args.m == 0) return;
  const int64_t blocks = CeilDiv(args.channels, kFew * kConvolutionThreads);
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(args.m), static_cast<unsigned>(blocks)),
      .threads = kConvolutionThreads};
  WithActivationType(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if (args.width == kUsualWidth) {
      return Launch(ShortConvolutionKernel<T, kUsualWidth>, shape, stream, args);
    }
    Launch(ShortConvolutionKernel<T, kMaxConvWidth>, shape, stream, args);
  });
}

}  // namespace mlc_native::kernels::cuda
