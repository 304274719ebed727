// NormGemv: Gemv's products of a row of the residual, which each block normalizes for itself, so
// that the norm takes no launch of its own. Blocks walk over tiles, so that there are few of them.
//
// Bytes: the weights once; 4 per element of the row, from cache, for each block.
#include "kernels/cuda/gemv_worker.cuh"

namespace mlc_native::kernels::cuda {
inline namespace norm_gemv_cu {

template <typename Format>
__global__ void __launch_bounds__(kGemvThreads, kGemvWalkers<Format>)
    NormGemvKernel(const __grid_constant__ GemvArgs args) {
  using Worker = GemvWorker<Format, 1, 2, false, true, NormOfRow>;
  __shared__ typename Worker::Sums shared[2];
  Worker(args).Run(shared);
}

template <typename T>
void LaunchNormGemv(const GemvArgs& args, Stream stream) {
  WithGemvFormat<T>(args.format, args.dtype, [&](auto tag) {
    using Format = typename decltype(tag)::Type;
    const int64_t tiles = GemvWorker<Format, 1, 2>::NumTiles(args);
    const int64_t walkers = kGemvWalkers<Format> * NumMultiprocessors();
    Launch(NormGemvKernel<Format>,
           {.grid = dim3(static_cast<unsigned>(tiles < walkers ? tiles : walkers)),
            .threads = kGemvThreads,
            .shared_bytes = static_cast<size_t>(args.k) * sizeof(T)},
           stream, args);
  });
}

}  // namespace norm_gemv_cu

void NormGemv(const GemvArgs& args, Stream stream) {
  MLC_CHECK(args.dtype != DType::kFloat32 && args.norm.weight != nullptr && !args.accumulate);
  MLC_CHECK(args.m == 1 && args.k <= kMaxNormGemvK) << args.m << " x " << args.k;
  args.dtype == DType::kBFloat16 ? LaunchNormGemv<BFloat16>(args, stream)
                                 : LaunchNormGemv<Float16>(args, stream);
}

}  // namespace mlc_native::kernels::cuda
