// WarpgroupPrefillAttention: PrefillAttention on the tensor cores of Hopper.
//
// A block is a WarpgroupAttentionWorker. It has the tiles of prefill_attention.cu, the same steps
// and the same bits. One block has a multiprocessor for itself, because its two warpgroups that
// multiply need most of the registers.
//
// Operations and bytes are those of prefill_attention.cu.
#include "kernels/cuda/warpgroup_attention_worker.cuh"

namespace mlc_native::kernels::cuda {
inline namespace warpgroup_attention_cu {

template <typename T, int kDim>
__global__ void __launch_bounds__(WarpgroupAttentionShape<kDim>::kThreads, 1)
    WarpgroupAttentionKernel(const __grid_constant__ PrefillArgs args) {
  if constexpr (kHasWarpgroups) {
    WaitForPrevious();
    const PrefillTile tile = args.tiles[blockIdx.x];
    WarpgroupAttentionWorker<T, WarpgroupAttentionShape<kDim>>(args, tile,
                                                               static_cast<int>(blockIdx.y))
        .Run();
  }
}

template <typename T, int kDim>
void LaunchForDim(const PrefillArgs& args, int64_t num_tiles, Stream stream) {
  using Shape = WarpgroupAttentionShape<kDim>;
  Launch(WarpgroupAttentionKernel<T, kDim>,
         {.grid = dim3(static_cast<unsigned>(num_tiles), static_cast<unsigned>(args.kv.kv_heads)),
          .threads = static_cast<unsigned>(Shape::kThreads),
          .shared_bytes = WarpgroupAttentionWorker<T, Shape>::SharedBytes(),
          .is_of_90 = true},
         stream, args);
}

template <typename T>
void LaunchForType(const PrefillArgs& args, int64_t num_tiles, Stream stream) {
  if (args.kv.head_dim <= 64) return LaunchForDim<T, 64>(args, num_tiles, stream);
  LaunchForDim<T, 128>(args, num_tiles, stream);
}

}  // namespace warpgroup_attention_cu

bool HasWarpgroupPrefillAttention(const KvPages& kv, const AttentionArgs& args) {
  return args.dtype != DType::kFloat32 && kv.format == KvFormatOf(args.dtype) &&
         kv.head_dim <= 128 && HasWarpgroups();
}

void WarpgroupPrefillAttention(const KvPages& kv, const AttentionArgs& args,
                               const PrefillTile* tiles, int64_t num_tiles, Stream stream) {
  MLC_CHECK(HasWarpgroupPrefillAttention(kv, args) && kv.head_dim % kVector == 0) << kv.head_dim;
  MLC_CHECK(args.q_heads % kv.kv_heads == 0 &&
            PrefillTileRows(args.q_heads, kv.kv_heads, kv.head_dim) > 0)
      << args.q_heads << " for " << kv.kv_heads;
  if (num_tiles == 0) return;
  const PrefillArgs kernel_args = PrefillArgsOf(kv, args, tiles);
  args.dtype == DType::kBFloat16 ? LaunchForType<BFloat16>(kernel_args, num_tiles, stream)
                                 : LaunchForType<Float16>(kernel_args, num_tiles, stream);
}

}  // namespace mlc_native::kernels::cuda
