// PrefillAttention on tensor cores: many rows of a sequence against its pages.
//
// A block computes a tile of 128 rows (64 of the largest heads) of one kv head: tokens times the
// query heads that share it, so each key is loaded once for all of them. Keys and values are copied
// asynchronously to shared memory, kPrefillKeys at a time: the values of a step while its scores
// are computed, and then the keys of the next step (prefill_worker.cuh). Two blocks share a
// multiprocessor, so that one computes while the other one waits.
//
// Steps start at multiples of kPrefillKeys, and keys that a row may not attend to add exact zeros,
// so a row's result does not depend on its tile.
//
// Operations: 4 head_dim per query head and key, with head_dim padded to 64, 128 or 256; half of
// the steps at the causal edge are wasted. Bytes: the keys and values before a tile, mostly from
// L2.
#include <cstdlib>
#include <string_view>

#include "kernels/cuda/latent.h"
#include "kernels/cuda/prefill_worker.cuh"

namespace mlc_native::kernels::cuda {
inline namespace prefill_attention_cu {

// The sums of 32 rows of the largest heads would fill all registers.
template <int kDim>
using ShapeOf = PrefillShape<kDim, kDim <= 128 ? 2 : 1>;

template <typename T, typename Kv, int kDim>
__global__ void __launch_bounds__(ShapeOf<kDim>::kThreads, 2)
    PrefillAttentionKernel(const __grid_constant__ PrefillArgs args) {
  WaitForPrevious();
  const PrefillTile tile = args.tiles[blockIdx.x];
  PrefillWorker<T, Kv, ShapeOf<kDim>>(args, tile, static_cast<int>(blockIdx.y),
                                      static_cast<T*>(DynamicShared()))
      .Run();
}

template <typename T, typename Kv, int kDim>
void LaunchForDim(const PrefillArgs& args, int64_t num_tiles, Stream stream) {
  using Shape = ShapeOf<kDim>;
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(num_tiles), static_cast<unsigned>(args.kv.kv_heads)),
      .threads = static_cast<unsigned>(Shape::kThreads),
      .shared_bytes = Shape::kSharedBytes};
  Launch(PrefillAttentionKernel<T, Kv, kDim>, shape, stream, args);
}

// Calls f with the head_dim to which this one is padded.
template <typename F>
auto WithPaddedDim(int64_t head_dim, const F& f) {
  if (head_dim <= 64) return f(std::integral_constant<int, 64>());
  if (head_dim <= 128) return f(std::integral_constant<int, 128>());
  return f(std::integral_constant<int, 256>());
}

// What is not measured yet is off.
bool PrefersWarpgroups() {
  const char* chosen = std::getenv("MLC_NATIVE_CUDA_WARPGROUP_ATTENTION");
  return chosen != nullptr && std::string_view(chosen) == "1";
}

}  // namespace prefill_attention_cu

int64_t PrefillTileRows(int64_t q_heads, int64_t kv_heads, int64_t head_dim) {
  if (head_dim > kMaxHeadDim) return kWideTileRows;
  const int64_t rows =
      WithPaddedDim(head_dim, [](auto dim) -> int64_t { return ShapeOf<dim()>::kRows; });
  return rows * kv_heads / q_heads;
}

void PrefillAttention(const KvPages& kv, const AttentionArgs& args, const PrefillTile* tiles,
                      int64_t num_tiles, Stream stream) {
  if (IsLatentOrWide(kv)) return LatentPrefillAttention(kv, args, tiles, num_tiles, stream);
  MLC_CHECK(kv.head_dim % kVector == 0 && kv.head_dim <= kMaxHeadDim) << kv.head_dim;
  MLC_CHECK(args.q_heads % kv.kv_heads == 0 &&
            PrefillTileRows(args.q_heads, kv.kv_heads, kv.head_dim) > 0)
      << args.q_heads << " for " << kv.kv_heads;
  MLC_CHECK(!args.bias) << "DecodeAttention has biases by distance";
  if (num_tiles == 0) return;
  if (PrefersWarpgroups() && HasWarpgroupPrefillAttention(kv, args)) {
    return WarpgroupPrefillAttention(kv, args, tiles, num_tiles, stream);
  }
  const PrefillArgs kernel_args = PrefillArgsOf(kv, args, tiles);
  WithActivationType(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (sizeof(T) == 2) {
      WithKvFormat<T>(kv.format, args.dtype, [&](auto kv_tag) {
        using Kv = typename decltype(kv_tag)::Type;
        WithPaddedDim(kv.head_dim, [&](auto dim) {
          LaunchForDim<T, Kv, dim()>(kernel_args, num_tiles, stream);
        });
      });
    } else {
      MLC_CHECK(false) << "no tensor cores for float32: DecodeAttention computes such rows";
    }
  });
}

}  // namespace mlc_native::kernels::cuda
