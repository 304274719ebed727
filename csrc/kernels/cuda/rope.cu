// QkRopeWriteKv: a warp per head of a row. Lanes exchange the halves of their pairs through shared
// memory. Reads q, k and v once; writes q in place, and k and v to the pages, 8 bits with a scale.
#include "kernels/cuda/rope_head.cuh"

namespace mlc_native::kernels::cuda {
inline namespace rope_cu {

constexpr int kHeadsPerBlock = 4;
constexpr int kRopeThreads = kHeadsPerBlock * kWarp;

struct QkRopeKernelArgs {
  KvPages kv;
  QkRopeWriteKvArgs a;
};

// Loads come first, and none of them waits for another one but the angles for the position. The
// weights of the norms do not even wait for the kernel before.
template <typename T, typename Kv, int kVectors, bool kMakesValues, typename Place>
__device__ inline void RotateAndWrite(const QkRopeKernelArgs& args) {
  constexpr int kElements = kVectors * kWarp * kVector;
  alignas(16) __shared__ float heads[kHeadsPerBlock][kElements];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t row = blockIdx.x;
  const int64_t index = static_cast<int64_t>(blockIdx.y) * kHeadsPerBlock + warp;
  const bool is_behind = index >= args.a.q_heads + 2 * args.kv.kv_heads;  // the last one
  const RopeHead<T, kVectors, kMakesValues> head(args.a, args.kv, index);
  RawVector8<T> weights[kVectors];
  head.LoadWeights(weights);
  WaitForPrevious();
  if (is_behind) return;
  const int64_t slot = args.a.slots[row];
  const Place place(args.a, row);
  RawVector8<T> elements[kVectors];
  head.LoadElements(row, elements);
  if (slot < 0) return;

  float x[kVectors][kVector];
  head.Compute(weights, elements, place, heads[warp], x);
  if (head.IsQ()) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (head.HasColumn(v)) StoreFloats(head.RowOf(row) + head.Column(v), x[v]);
    }
    return;
  }

  const int64_t dim = args.kv.head_dim;
  const bool is_v = head.IsV();
  const int64_t kv_head = index - args.a.q_heads - (is_v ? args.kv.kv_heads : 0);
  const int64_t page = slot / kKvPageSize;
  const int64_t token = slot % kKvPageSize;
  unsigned char* const rows = static_cast<unsigned char*>(is_v ? args.kv.v : args.kv.k) +
                              (page * args.kv.kv_heads + kv_head) * args.kv.head_bytes();
  Kv* const to = reinterpret_cast<Kv*>(rows) + token * dim;
  if constexpr (kHasKvScales<Kv>) {
    const float scale = ScaleHead(x);
    const int64_t row_bytes = dim * static_cast<int64_t>(sizeof(Kv));
    if (head.Column(0) == 0) {
      reinterpret_cast<float*>(rows + kKvPageSize * row_bytes)[token] = scale;
    }
  }
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (head.HasColumn(v)) StoreFloats(to + head.Column(v), x[v]);
  }
}

template <typename T, typename Kv>
__global__ void __launch_bounds__(kRopeThreads)
    QkRopeWriteKvKernel(const __grid_constant__ QkRopeKernelArgs args) {
  RotateAndWrite<T, Kv, 1, false, RowPlace>(args);
}

// With components.
template <typename T, typename Kv>
__global__ void __launch_bounds__(kRopeThreads)
    PlacedQkRopeWriteKvKernel(const __grid_constant__ QkRopeKernelArgs args) {
  RotateAndWrite<T, Kv, 1, false, RowPlaces>(args);
}

// Of heads of any size, also with values that are normalized or made of keys, or with components.
template <typename T, typename Kv>
__global__ void __launch_bounds__(kRopeThreads)
    WideQkRopeWriteKvKernel(const __grid_constant__ QkRopeKernelArgs args) {
  RotateAndWrite<T, Kv, static_cast<int>(kMaxWideHeadDim / kMaxHeadDim), true, RowPlaces>(args);
}

}  // namespace rope_cu

void QkRopeWriteKv(const KvPages& kv, const QkRopeWriteKvArgs& args, Stream stream) {
  MLC_CHECK(kv.head_dim % kVector == 0 && kv.head_dim <= kMaxWideHeadDim) << kv.head_dim;
  MLC_CHECK(args.rotary_dim % 2 == 0 && args.rotary_dim <= kv.head_dim) << args.rotary_dim;
  MLC_CHECK((args.components == nullptr) == (args.rope_positions == nullptr));
  if (args.m == 0) return;
  QkRopeKernelArgs kernel_args{kv, args};
  if (args.parts == KvParts::kNone) kernel_args.kv.kv_heads = 0;
  const int64_t heads = args.q_heads + 2 * kernel_args.kv.kv_heads;
  const dim3 grid(static_cast<unsigned>(args.m),
                  static_cast<unsigned>((heads + kHeadsPerBlock - 1) / kHeadsPerBlock));
  const LaunchShape shape{.grid = grid, .threads = kRopeThreads};
  const bool is_usual =
      kv.head_dim <= kMaxHeadDim && args.v_norm == nullptr && args.parts != KvParts::kKeysAlone;
  WithActivationType(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    WithKvFormat<T>(kv.format, args.dtype, [&](auto kv_tag) {
      using Kv = typename decltype(kv_tag)::Type;
      if (is_usual && args.components == nullptr) {
        Launch(QkRopeWriteKvKernel<T, Kv>, shape, stream, kernel_args);
      } else if (is_usual) {
        Launch(PlacedQkRopeWriteKvKernel<T, Kv>, shape, stream, kernel_args);
      } else {
        Launch(WideQkRopeWriteKvKernel<T, Kv>, shape, stream, kernel_args);
      }
    });
  });
}

}  // namespace mlc_native::kernels::cuda
