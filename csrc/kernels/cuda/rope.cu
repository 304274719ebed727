// QkRopeWriteKv: a warp per head of a row. Lanes exchange the halves of their pairs through shared
// memory. Reads q, k and v once; writes q in place, and k and v to the pages, 8 bits with a scale.
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"

namespace mlc_native::kernels::cuda {
inline namespace rope_cu {

constexpr int kHeadsPerBlock = 4;
constexpr int kThreads = kHeadsPerBlock * kWarp;

struct KernelArgs {
  KvPages kv;
  QkRopeWriteKvArgs a;
};

// Normalizes the lane's part x of a head; behind the head x is zero.
template <typename T>
__device__ void NormalizeHead(const KernelArgs& args, const RawVector8<T>& weight, int column,
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
  float w[kVector];
  ToFloats(weight, w);
#pragma unroll
  for (int j = 0; j < kVector; ++j) x[j] *= scale * (w[j] + args.a.weight_offset);
}

// Of the lane's part of a head. Element i is paired with i + sign * distance.
struct Rotation {
  __device__ Rotation(const KernelArgs& args, int64_t position, int column)
      : half(static_cast<int>(args.a.rotary_dim) / 2),
        distance(args.a.interleaved ? 1 : half),
        is_interleaved(args.a.interleaved) {
    const float* cos_of_row = args.a.cos + position * half;
    const float* sin_of_row = args.a.sin + position * half;
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      const int i = column + j;
      const int angle = is_interleaved ? i / 2 : i < half ? i : i - half;
      const int last = min(angle, half - 1);  // the rest is not rotated
      cos[j] = cos_of_row[last];
      sin[j] = sin_of_row[last];
    }
  }

  // `head` is the warp's shared memory.
  __device__ void Apply(int column, int64_t head_dim, float* head, float (&x)[kVector]) const {
    if (column < head_dim) StoreFloats(head + column, x);
    __syncwarp();
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      const int i = column + j;
      const bool is_rotated = i < 2 * half;
      const bool is_first = is_interleaved ? i % 2 == 0 : i < half;
      const int pair = is_first ? i + distance : i - distance;
      const float other = head[is_rotated ? pair : 0];
      const float rotated = x[j] * cos[j] + (is_first ? -other : other) * sin[j];
      x[j] = is_rotated ? rotated : x[j];
    }
  }

  int half;
  int distance;
  bool is_interleaved;
  float cos[kVector];
  float sin[kVector];
};

// Divides the lane's part x of a head by the head's scale, which it returns. All lanes take part,
// with zeros behind the head.
__device__ inline float ScaleHead(float (&x)[kVector]) {
  float largest = 0.0f;
#pragma unroll
  for (int j = 0; j < kVector; ++j) largest = fmaxf(largest, fabsf(x[j]));
  const float scale = ReduceWarp(largest, Max()) / kMaxFloat8;
#pragma unroll
  for (int j = 0; j < kVector; ++j) x[j] = scale > 0.0f ? x[j] / scale : 0.0f;
  return scale;
}

// Loads come first, and none of them waits for another one but the angles for the position. The
// weights of the norms do not even wait for the kernel before.
template <typename T, typename Kv>
__global__ void __launch_bounds__(kThreads)
    QkRopeWriteKvKernel(const __grid_constant__ KernelArgs args) {
  alignas(16) __shared__ float heads[kHeadsPerBlock][kMaxHeadDim];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int column = static_cast<int>(threadIdx.x) % kWarp * kVector;
  const int64_t row = blockIdx.x;
  const int64_t head = static_cast<int64_t>(blockIdx.y) * kHeadsPerBlock + warp;
  const bool is_q = head < args.a.q_heads;
  const bool is_v = head >= args.a.q_heads + args.kv.kv_heads;
  const bool is_behind = head >= args.a.q_heads + 2 * args.kv.kv_heads;  // the last one

  const int64_t dim = args.kv.head_dim;
  const int loaded_column = column < dim ? column : 0;
  const T* norm = static_cast<const T*>(is_q ? args.a.q_norm : args.a.k_norm);
  const bool has_norm = norm != nullptr && !is_v;
  RawVector8<T> weight;
  if (has_norm) {
    norm += (is_q ? head : head - args.a.q_heads) * args.a.ld_norm;
    weight = LoadRaw(norm + loaded_column);
  }
  WaitForPrevious();
  if (is_behind) return;
  const int64_t slot = args.a.slots[row];
  const int32_t position = args.a.positions[row];
  T* data = static_cast<T*>(args.a.qkv) + row * args.a.ld + head * dim;
  const RawVector8<T> loaded = LoadRaw(data + loaded_column);
  if (slot < 0) return;

  float x[kVector];
  ToFloats(loaded, x);
#pragma unroll
  for (int j = 0; j < kVector; ++j) x[j] = column < dim ? x[j] : 0.0f;
  if (!is_v) {
    if (args.a.rotary_dim > 0) {
      const Rotation rotation(args, position, column);
      if (has_norm && !args.a.rope_first) NormalizeHead(args, weight, column, x);
      rotation.Apply(column, dim, heads[warp], x);
      if (has_norm && args.a.rope_first) NormalizeHead(args, weight, column, x);
    } else if (has_norm) {
      NormalizeHead(args, weight, column, x);
    }
  }
  if (is_q && args.a.q_scales != nullptr) {
    const float scale = args.a.q_scales[position];
#pragma unroll
    for (int j = 0; j < kVector; ++j) x[j] *= scale;
  }
  if (is_q) {
    if (column < dim) StoreFloats(data + column, x);
    return;
  }

  const int64_t kv_head = head - args.a.q_heads - (is_v ? args.kv.kv_heads : 0);
  const int64_t page = slot / kKvPageSize;
  const int64_t token = slot % kKvPageSize;
  unsigned char* const rows = static_cast<unsigned char*>(is_v ? args.kv.v : args.kv.k) +
                              (page * args.kv.kv_heads + kv_head) * args.kv.head_bytes();
  Kv* const to = reinterpret_cast<Kv*>(rows) + token * dim;
  if constexpr (kHasKvScales<Kv>) {
    const float scale = ScaleHead(x);
    const int64_t row_bytes = dim * static_cast<int64_t>(sizeof(Kv));
    if (column == 0) reinterpret_cast<float*>(rows + kKvPageSize * row_bytes)[token] = scale;
  }
  if (column < dim) StoreFloats(to + column, x);
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
      Launch(QkRopeWriteKvKernel<T, Kv>, {.grid = grid, .threads = kThreads}, stream,
             KernelArgs{kv, args});
    });
  });
}

}  // namespace mlc_native::kernels::cuda
