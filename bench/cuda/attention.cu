#include "kernels/cuda/decode_lanes.cuh"
#include "kernels/cuda/decode_worker.cuh"
#include "micro.h"

namespace mlc_native::kernels::cuda {
namespace {

// Types of this file, so that the library's kernels are others.
struct WayArgs {
  DecodeKernelArgs decode;
};
struct BulkRules : DecodeRules {
  template <int kSlots, int kSlotBytes, typename Rules>
  using Ring = DecodeRules::Ring<kSlots, kSlotBytes, Rules>;
};
struct GroupRules : DecodeRules {
  template <int kSlots, int kSlotBytes, typename Rules>
  using Ring = GroupRing<kSlots, kSlotBytes, Rules>;
};

constexpr int kDim = 128;

template <typename Rules>
__global__ void __launch_bounds__(DecodeShape<BFloat16, kDim>::kThreads, 2)
    RingKernel(const __grid_constant__ WayArgs args) {
  DecodeWorker<BFloat16, BFloat16, kDim, Rules>(args.decode,
                                                static_cast<unsigned char*>(DynamicShared()))
      .Run();
}

template <int kHeads>
__global__ void __launch_bounds__(kLanesThreads, LanesBlocks(kHeads))
    LanesKernel(const __grid_constant__ WayArgs args) {
  RunDecodeOnLanes<BFloat16, BFloat16, kHeads, kDim / kVector>(args.decode);
}

template <int kHeads>
void LaunchLanes(const WayArgs& args, Stream stream) {
  Launch(LanesKernel<kHeads>, LanesLaunchShape<kHeads>(kDim), stream, args);
}

}  // namespace

void LaunchAttention(AttentionWay way, const KvPages& kv, const AttentionArgs& args,
                     const DecodeRows& rows, Stream stream) {
  MLC_CHECK(kv.head_dim == kDim && args.dtype == DType::kBFloat16) << kv.head_dim;
  const WayArgs way_args{DecodeArgsOf(kv, args, rows)};
  MLC_CHECK(way_args.decode.group <= 4) << way_args.decode.group;
  const LaunchShape rings = DecodeLaunchShape<BFloat16, kDim>();
  switch (way) {
    case AttentionWay::kBulkCopies:
      return Launch(RingKernel<BulkRules>, rings, stream, way_args);
    case AttentionWay::kGroupCopies:
      return Launch(RingKernel<GroupRules>, rings, stream, way_args);
    case AttentionWay::kLanes:
      return way_args.decode.group <= 2 ? LaunchLanes<2>(way_args, stream)
                                        : LaunchLanes<4>(way_args, stream);
  }
}

}  // namespace mlc_native::kernels::cuda
