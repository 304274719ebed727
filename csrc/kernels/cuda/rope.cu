// QkRopeWriteKv: a warp per head of a row. Lanes exchange the halves of their pairs through shared
// memory. Reads q, k and v once; writes q in place, and k and v to the pages.
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"

namespace mlc_native::kernels::cuda {
namespace {

constexpr int kHeadsPerBlock = 4;
constexpr int kThreads = kHeadsPerBlock * kWarp;

struct KernelArgs {
  KvPages kv;
  QkRopeWriteKvArgs a;
};

// Normalizes the lane's part x of a head.
template <typename T>
__device__ void NormalizeHead(const KernelArgs& args, const T* weight, int column,
                              float (&x)[kVector]) {
  const auto dim = static_cast<float>(args.kv.head_dim);
  if (args.a.subtract_mean) {
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < kVector; ++j) sum += x[j];
    const float mean = ReduceWarp(sum, Plus()) / dim;
#pragma unroll
    for (int j = 0; j < kVector; ++j) x[j] -= column < args.kv.head_dim ? mean : 0.0f;
  }
  float squares = 0.0f;
#pragma unroll
  for (int j = 0; j < kVector; ++j) squares += x[j] * x[j];
  squares = ReduceWarp(squares, Plus());
  const float scale = ReciprocalSqrt(squares / dim + args.a.eps);
  if (column >= args.kv.head_dim) return;
  float w[kVector];
  LoadFloats(weight + column, w);
#pragma unroll
  for (int j = 0; j < kVector; ++j) x[j] *= scale * (w[j] + args.a.weight_offset);
}

// Rotates the lane's part of a head; `head` is the warp's shared memory.
__device__ inline void RotateHead(const KernelArgs& args, int64_t row, int column, float* head,
                                  float (&x)[kVector]) {
  if (column < args.kv.head_dim) StoreFloats(head + column, x);
  __syncwarp();
  const int half = static_cast<int>(args.a.rotary_dim) / 2;
  const int64_t angles = static_cast<int64_t>(args.a.positions[row]) * half;
#pragma unroll
  for (int j = 0; j < kVector; ++j) {
    const int i = column + j;
    if (i >= 2 * half) continue;
    const bool interleaved = args.a.interleaved;
    const bool first = interleaved ? i % 2 == 0 : i < half;
    const int distance = interleaved ? 1 : half;
    const int pair = first ? i : i - distance;
    const int64_t angle = angles + (interleaved ? pair / 2 : pair);
    const float other = head[first ? i + distance : i - distance];
    const float sin = args.a.sin[angle];
    x[j] = x[j] * args.a.cos[angle] + (first ? -other : other) * sin;
  }
}

template <typename T, typename Kv>
__global__ void __launch_bounds__(kThreads)
    QkRopeWriteKvKernel(const __grid_constant__ KernelArgs args) {
  alignas(16) __shared__ float heads[kHeadsPerBlock][kMaxHeadDim];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int column = static_cast<int>(threadIdx.x) % kWarp * kVector;
  const int64_t row = blockIdx.x;
  const int64_t head = static_cast<int64_t>(blockIdx.y) * kHeadsPerBlock + warp;
  const int64_t slot = args.a.slots[row];
  if (head >= args.a.q_heads + 2 * args.kv.kv_heads || slot < 0) return;

  const int64_t dim = args.kv.head_dim;
  T* data = static_cast<T*>(args.a.qkv) + row * args.a.ld + head * dim;
  float x[kVector] = {};
  if (column < dim) LoadFloats(data + column, x);
  const bool is_q = head < args.a.q_heads;
  const bool is_v = head >= args.a.q_heads + args.kv.kv_heads;
  if (!is_v) {
    const T* weight = static_cast<const T*>(is_q ? args.a.q_norm : args.a.k_norm);
    const bool has_norm = weight != nullptr;
    weight += (is_q ? head : head - args.a.q_heads) * args.a.ld_norm;
    if (has_norm && !args.a.rope_first) NormalizeHead(args, weight, column, x);
    RotateHead(args, row, column, heads[warp], x);
    if (has_norm && args.a.rope_first) NormalizeHead(args, weight, column, x);
  }
  if (is_q && args.a.q_scales != nullptr) {
    const float scale = args.a.q_scales[args.a.positions[row]];
#pragma unroll
    for (int j = 0; j < kVector; ++j) x[j] *= scale;
  }
  if (column >= dim) return;
  if (is_q) return StoreFloats(data + column, x);

  const float scale = is_v ? args.kv.v_scale : args.kv.k_scale;
#pragma unroll
  for (int j = 0; j < kVector; ++j) x[j] /= scale;
  const int64_t kv_head = head - args.a.q_heads - (is_v ? args.kv.kv_heads : 0);
  const int64_t page = slot / kKvPageSize;
  const int64_t at = (page * args.kv.kv_heads + kv_head) * kKvPageSize + slot % kKvPageSize;
  StoreFloats(static_cast<Kv*>(is_v ? args.kv.v : args.kv.k) + at * dim + column, x);
}

}  // namespace

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
      Launch(QkRopeWriteKvKernel<T, Kv>, {.grid = grid, .threads = kThreads}, stream,
             KernelArgs{kv, args});
    });
  });
}

}  // namespace mlc_native::kernels::cuda
