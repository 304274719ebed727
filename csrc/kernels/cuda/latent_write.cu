// WriteLatents: a warp per head of a row for the parts of the queries with rope, and one for its
// key. Lanes exchange the halves of their pairs through shared memory. Reads each element once.
#include "kernels/cuda/latent.h"
#include "kernels/cuda/rope_head.cuh"

namespace mlc_native::kernels::cuda {
inline namespace latent_write_cu {

constexpr int kUnitsPerBlock = 4;  // heads, or the key
constexpr int kWriteThreads = kUnitsPerBlock * kWarp;
constexpr int kKeyVectors =
    static_cast<int>(kMaxLatentDim + kMaxLatentRopeDim + kWarp * kVector - 1) / (kWarp * kVector);

struct WriteLatentsKernelArgs {
  KvPages kv;
  WriteLatentsArgs a;
};

template <typename T>
__device__ inline void StoreScaled(T* to, float scale, float (&x)[kVector]) {
#pragma unroll
  for (float& element : x) element *= scale;
  StoreFloats(to, x);
}

// The latent of a key: the elements from column `rope` on.
template <typename T>
__device__ inline void NormalizeLatent(const WriteLatentsArgs& args, int rope, int dim,
                                       float (&x)[kKeyVectors][kVector]) {
  float squares = 0.0f;
#pragma unroll
  for (int v = 0; v < kKeyVectors; ++v) {
#pragma unroll
    for (int j = 0; j < kVector; ++j) squares += x[v][j] * x[v][j];
  }
  squares = ReduceWarp(squares, Plus());
  const float scale = ReciprocalSqrt(squares / static_cast<float>(dim - rope) + args.eps);
#pragma unroll
  for (int v = 0; v < kKeyVectors; ++v) {
    const int column = (v * kWarp + static_cast<int>(threadIdx.x) % kWarp) * kVector;
    if (column < rope || column >= dim) continue;
    float weight[kVector];
    LoadFloats(static_cast<const T*>(args.norm) + column - rope, weight);
#pragma unroll
    for (int j = 0; j < kVector; ++j) x[v][j] *= scale * (weight[j] + args.weight_offset);
  }
}

// rotated: the lane's elements of the part with rope.
template <typename T, typename Kv>
__device__ inline void WriteKey(const KvPages& kv, const WriteLatentsArgs& args, int64_t row,
                                int64_t slot, const float (&rotated)[kVector]) {
  const auto dim = static_cast<int>(kv.head_dim);
  const auto latent = static_cast<int>(kv.latent_dim);
  const int rope = dim - latent;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const T* const from = static_cast<const T*>(args.latents) + row * args.ld_latents;
  float x[kKeyVectors][kVector] = {};
#pragma unroll
  for (int v = 0; v < kKeyVectors; ++v) {
    const int column = (v * kWarp + lane) * kVector;
    if (column >= rope && column < dim) LoadFloats(from + column - rope, x[v]);
  }
  NormalizeLatent<T>(args, rope, dim, x);
#pragma unroll
  for (int j = 0; j < kVector; ++j) x[0][j] = lane * kVector < rope ? rotated[j] : x[0][j];
  unsigned char* const page =
      static_cast<unsigned char*>(kv.k) + slot / kKvPageSize * kv.head_bytes();
  const int64_t token = slot % kKvPageSize;
  if constexpr (kHasKvScales<Kv>) {
    const float scale = ScaleHead(x);
    if (lane == 0) {
      const int64_t rows_bytes = kKvPageSize * dim * static_cast<int64_t>(sizeof(Kv));
      reinterpret_cast<float*>(page + rows_bytes)[token] = scale;
    }
  }
  Kv* const to = reinterpret_cast<Kv*>(page) + token * dim;
#pragma unroll
  for (int v = 0; v < kKeyVectors; ++v) {
    const int at = (v * kWarp + lane) * kVector;
    if (at < dim) StoreFloats(to + at, x[v]);
  }
}

template <typename T, typename Kv>
__global__ void __launch_bounds__(kWriteThreads)
    WriteLatentsKernel(const __grid_constant__ WriteLatentsKernelArgs args) {
  WaitForPrevious();
  alignas(16) __shared__ float heads[kUnitsPerBlock][kMaxLatentRopeDim];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t row = blockIdx.x;
  const int64_t unit = static_cast<int64_t>(blockIdx.y) * kUnitsPerBlock + warp;
  const int64_t slot = args.a.slots[row];
  if (unit > args.a.q_heads || slot < 0) return;
  const bool is_key = unit == args.a.q_heads;
  const void* const source = is_key ? args.a.latents : args.a.queries;
  const int64_t offset = is_key ? row * args.a.ld_latents + args.kv.latent_dim
                                : row * args.a.ld_queries + unit * args.a.query_step;
  const int column = static_cast<int>(threadIdx.x) % kWarp * kVector;
  const auto rope = static_cast<int>(args.kv.head_dim - args.kv.latent_dim);
  const int32_t position = args.a.positions[row];
  float x[kVector];
  LoadFloats(static_cast<const T*>(source) + offset + (column < rope ? column : 0), x);
  if (args.a.rotary_dim > 0) {
    Rotation(args.a, RowPlace(position), column).Apply(column, rope, heads[warp], x);
  }
  if (is_key) return WriteKey<T, Kv>(args.kv, args.a, row, slot, x);
  const float scale = args.a.q_scales != nullptr ? args.a.q_scales[position] : 1.0f;
  T* const to = static_cast<T*>(args.a.q) + row * args.a.ldq + unit * args.kv.head_dim;
  if (column < rope) StoreScaled(to + column, scale, x);
  if (scale == 1.0f) return;
  for (int at = rope + column; at < args.kv.head_dim; at += kWarp * kVector) {
    LoadFloats(to + at, x);
    StoreScaled(to + at, scale, x);
  }
}

}  // namespace latent_write_cu

void WriteLatents(const KvPages& kv, const WriteLatentsArgs& args, Stream stream) {
  CheckLatents(kv);
  const int64_t rope = kv.head_dim - kv.latent_dim;
  MLC_CHECK(args.norm != nullptr);
  MLC_CHECK(args.rotary_dim % 2 == 0 && args.rotary_dim <= rope) << args.rotary_dim;
  if (args.m == 0) return;
  const int64_t units = args.q_heads + 1;
  const dim3 grid(static_cast<unsigned>(args.m),
                  static_cast<unsigned>((units + kUnitsPerBlock - 1) / kUnitsPerBlock));
  WithActivationType(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    WithKvFormat<T>(kv.format, args.dtype, [&](auto kv_tag) {
      using Kv = typename decltype(kv_tag)::Type;
      Launch(WriteLatentsKernel<T, Kv>, {.grid = grid, .threads = kWriteThreads}, stream,
             WriteLatentsKernelArgs{kv, args});
    });
  });
}

}  // namespace mlc_native::kernels::cuda
