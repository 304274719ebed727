// DecodeAttention: one query row per sequence. The keys of a row are divided into splits, on which
// blocks work in parallel.
//
// An item of work is a split of a row's keys with one kv head and up to kMaxItemHeads of the query
// heads that read it, so keys and values are loaded once for all of them. Blocks are persistent and
// take items in turn from a list (decode_items.cuh), so the grid depends only on the device, and a
// captured launch fits any lengths. Rows of 16 bits are computed on tensor cores
// (decode_worker.cuh), those of float32 or with biases by distance without them
// (decode_lanes.cuh). A row with one split is
// then finished. Otherwise the parts go to the workspace, and the block that finishes the last one
// merges them, in the order of the splits (decode_finish.cuh).
//
// Bytes: keys and values once; per split 8 head_dim bytes of parts for each query head.
#include "kernels/cuda/decode_lanes.cuh"
#include "kernels/cuda/decode_worker.cuh"
#include "kernels/cuda/latent.h"

namespace mlc_native::kernels::cuda {
inline namespace decode_attention_cu {

template <typename T, typename Kv, typename Shape>
void LaunchWorkers(const DecodeKernelArgs& args, Stream stream) {
  Launch(DecodeAttentionKernel<T, Kv, Shape, DecodeRules>, DecodeLaunchShape<Shape>(), stream,
         args);
}

template <typename T, typename Kv, template <int> typename Shape>
void LaunchForDim(const DecodeKernelArgs& args, Stream stream) {
  if (args.kv.head_dim <= 64) return LaunchWorkers<T, Kv, Shape<64>>(args, stream);
  if (args.kv.head_dim <= 128) return LaunchWorkers<T, Kv, Shape<128>>(args, stream);
  LaunchWorkers<T, Kv, Shape<256>>(args, stream);
}

__global__ void __launch_bounds__(kLanesThreads, kLanesBlocks)
    FloatDecodeAttentionKernel(const __grid_constant__ DecodeKernelArgs args) {
  RunDecodeOnLanes<float>(args);
}

template <typename T>
__global__ void __launch_bounds__(kLanesThreads, kLanesBlocks)
    BiasedDecodeAttentionKernel(const __grid_constant__ DecodeKernelArgs args) {
  RunDecodeOnLanes<T>(args);
}

bool IsAligned(const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; }

}  // namespace decode_attention_cu

size_t ZeroedDecodeBytes(int64_t q_heads) {
  return static_cast<size_t>(kQueueSize + kMaxDecodeRows * q_heads) * sizeof(int32_t);
}

size_t DecodeWorkspaceBytes(int64_t max_splits, int64_t q_heads, int64_t value_dim) {
  return AlignDecodeBytes(ZeroedDecodeBytes(q_heads)) +
         AlignDecodeBytes(static_cast<size_t>(max_splits * q_heads) * sizeof(float2)) +
         static_cast<size_t>(max_splits * q_heads * value_dim) * sizeof(float);
}

void DecodeAttention(const KvPages& kv, const AttentionArgs& args, const DecodeRows& rows,
                     Stream stream) {
  if (IsLatentOrWide(kv)) return LatentDecodeAttention(kv, args, rows, stream);
  MLC_CHECK(kv.head_dim % kVector == 0 && kv.head_dim <= kMaxHeadDim) << kv.head_dim;
  MLC_CHECK(args.q_heads % kv.kv_heads == 0) << args.q_heads << " for " << kv.kv_heads;
  MLC_CHECK(IsAligned(kv.k) && IsAligned(kv.v)) << "pages begin at multiples of 16 bytes";
  MLC_CHECK(rows.m <= kMaxDecodeRows && rows.max_splits > 0) << rows.m;
  if (rows.m == 0) return;
  MLC_CHECK(rows.workspace != nullptr && rows.splits != nullptr);
  const DecodeKernelArgs kernel_args = DecodeArgsOf(kv, args, rows);
  WithActivationType(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    WithKvFormat<T>(kv.format, args.dtype, [&](auto kv_tag) {
      using Kv = typename decltype(kv_tag)::Type;
      if constexpr (sizeof(Kv) == 2) {
        if (args.bias) {
          return Launch(BiasedDecodeAttentionKernel<T>, LanesLaunchShape(kv.head_dim), stream,
                        kernel_args);
        }
      }
      if constexpr (sizeof(Kv) == 1) {
        MLC_CHECK(!args.bias) << "biases by distance beside keys of 8 bits";
        LaunchForDim<T, Kv, DecodeShapeOf8Bits>(kernel_args, stream);
      } else if constexpr (sizeof(T) == 2) {
        LaunchForDim<T, Kv, DecodeShape>(kernel_args, stream);
      } else {
        Launch(FloatDecodeAttentionKernel, LanesLaunchShape(kv.head_dim), stream, kernel_args);
      }
    });
  });
}

}  // namespace mlc_native::kernels::cuda
