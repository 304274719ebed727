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
template <typename T, typename Kv>
__global__ void __launch_bounds__(kRopeThreads)
    QkRopeWriteKvKernel(const __grid_constant__ QkRopeKernelArgs args) {
  alignas(16) __shared__ float heads[kHeadsPerBlock][kMaxHeadDim];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t row = blockIdx.x;
  const int64_t index = static_cast<int64_t>(blockIdx.y) * kHeadsPerBlock + warp;
  const bool is_behind = index >= args.a.q_heads + 2 * args.kv.kv_heads;  // the last one
  const RopeHead<T> head(args.a, args.kv, index);
  const RawVector8<T> weights = head.LoadWeights();
  WaitForPrevious();
  if (is_behind) return;
  const int64_t slot = args.a.slots[row];
  const int32_t position = args.a.positions[row];
  const RawVector8<T> elements = head.LoadElements(row);
  if (slot < 0) return;

  float parts[1][kVector];
  float (&x)[kVector] = parts[0];
  head.Compute(weights, elements, position, heads[warp], x);
  if (head.IsQ()) {
    if (head.HasColumn()) StoreFloats(head.RowOf(row) + head.Column(), x);
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
    const float scale = ScaleHead(parts);
    const int64_t row_bytes = dim * static_cast<int64_t>(sizeof(Kv));
    if (head.Column() == 0) reinterpret_cast<float*>(rows + kKvPageSize * row_bytes)[token] = scale;
  }
  if (head.HasColumn()) StoreFloats(to + head.Column(), x);
}

}  // namespace rope_cu

void QkRopeWriteKv(const KvPages& kv, const QkRopeWriteKvArgs& args, Stream stream) {
  MLC_CHECK(kv.head_dim % kVector == 0 && kv.head_dim <= kMaxHeadDim) << kv.head_dim;
  MLC_CHECK(args.rotary_dim % 2 == 0 && args.rotary_dim <= kv.head_dim) << args.rotary_dim;
  if (args.m == 0) return;
  const int64_t heads = args.q_heads + 2 * kv.kv_heads;
  const dim3 grid(static_cast<unsigned>(args.m),
                  static_cast<unsigned>((heads + kHeadsPerBlock - 1) / kHeadsPerBlock));
  WithActivationType(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    WithKvFormat<T>(kv.format, args.dtype, [&](auto kv_tag) {
      using Kv = typename decltype(kv_tag)::Type;
      Launch(QkRopeWriteKvKernel<T, Kv>, {.grid = grid, .threads = kRopeThreads}, stream,
             QkRopeKernelArgs{kv, args});
    });
  });
}

}  // namespace mlc_native::kernels::cuda
