// Kernels that move rows or touch each element once: embedding, gathering, gated activation, sums
// of parts, page copies. A thread handles 8 elements or 16 bytes; each byte is moved once.
#include <bit>

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/kv_pages.h"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/one_thread_each.cuh"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/rowwise.h"

namespace mlc_native::kernels::cuda {
inline namespace elementwise_cu {

template <typename T>
__global__ void EmbedKernel(const EmbedArgs args) {
  WaitForPrevious();
  const int64_t vectors = args.k / kVector;
  const int64_t i = GlobalThread();
  if (i >= args.m * vectors) return;
  const int64_t row = i / vectors;
  int64_t id = args.ids[row];
  if (id < 0) {
    id = args.sampled[-1 - id];
    if (id < 0) id = 0;  // the row could not be sampled and is being ended, so any token is fine
    if (args.sampled_ids != nullptr) id = args.sampled_ids[id];
  }
  if (args.num_rows > 0 && id >= args.num_rows) id = 0;
  const int64_t column = i % vectors * kVector;
  float x[kVector];
  LoadFloats(static_cast<const T*>(args.table) + id * args.k + column, x);
#pragma unroll
  for (int j = 0; j < kVector; ++j) x[j] *= args.scale;
  if (args.position_table != nullptr) {
    float of_position[kVector];
    const int64_t position = args.positions[row];
    LoadFloats(static_cast<const T*>(args.position_table) + position * args.k + column,
               of_position);
#pragma unroll
    for (int j = 0; j < kVector; ++j) x[j] += of_position[j];
  }
  StoreFloats(args.out + i * kVector, x);
}

struct GatherRowsArgs {
  const uint4* in;
  const int32_t* rows;
  int64_t m;
  int64_t row_vectors;  // of 16 bytes
  uint4* out;
};
__global__ void GatherRowsKernel(const GatherRowsArgs args) {
  WaitForPrevious();
  const int64_t i = GlobalThread();
  if (i >= args.m * args.row_vectors) return;
  const int64_t row = args.rows[i / args.row_vectors];
  args.out[i] = args.in[row * args.row_vectors + i % args.row_vectors];
}

__global__ void PickRowsKernel(const __grid_constant__ PickRowsArgs args) {
  WaitForPrevious();
  const int64_t i = GlobalThread();
  if (i >= args.m) return;
  const int64_t row = args.rows[i];
  args.to_positions[i] = args.positions[row];
  args.to_lengths[i] = args.lengths[row];
  args.to_tables[i] = args.tables[row];
  args.to_slots[i] = args.slots[row];
}

template <typename From, typename To>
__global__ void MoveRowsKernel(const __grid_constant__ MoveRowsArgs args) {
  WaitForPrevious();
  const int64_t vectors = args.k / kVector;
  const int64_t i = GlobalThread();
  if (i >= args.m * vectors) return;
  const int64_t row = i / vectors;
  const int64_t column = i % vectors * kVector;
  int64_t to = args.to_index != nullptr ? args.to_index[row] : row;
  if (args.to_rows != nullptr) to = args.to_rows[to];
  if (to < 0) return;
  const int64_t from = args.from_rows != nullptr ? args.from_rows[row] : row;
  float x[kVector];
  LoadFloats(static_cast<const From*>(args.from) + from * args.ld_from + column, x);
#pragma unroll
  for (int j = 0; j < kVector; ++j) x[j] *= args.scale;
  To* const place = static_cast<To*>(args.to) + to * args.ld_to + column;
  if (args.adds) {
    float sum[kVector];
    LoadFloats(place, sum);
#pragma unroll
    for (int j = 0; j < kVector; ++j) x[j] += sum[j];
  }
  StoreFloats(place, x);
}

template <typename T>
__global__ void AddPartsKernel(const __grid_constant__ AddPartsArgs args) {
  WaitForPrevious();
  const int64_t at = GlobalThread() * kVector;
  if (at >= args.count) return;
  T* own = static_cast<T*>(args.sum) + at;
  const T* parts = static_cast<const T*>(args.parts) + at;
  float sum[kVector];
  LoadFloats(args.own == 0 ? own : parts, sum);
#pragma unroll 4
  for (int p = 1; p < args.num_parts; ++p) {
    float part[kVector];
    LoadFloats(p == args.own ? own : parts + p * args.stride, part);
#pragma unroll
    for (int j = 0; j < kVector; ++j) sum[j] += part[j];
  }
  StoreFloats(own, sum);
}

__device__ float Softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }

// x^2 above zero, e^x - x below, each times a factor, and x / 2.
template <typename T>
class Xielu {
 public:
  __device__ explicit Xielu(const void* parameters) {
    using Both = std::conditional_t<sizeof(T) == 4, uint64_t, uint32_t>;  // one load
    struct Pair {
      T positive, negative;
    };
    const auto pair = std::bit_cast<Pair>(*static_cast<const Both*>(parameters));
    positive_ = Softplus(ToFloat(pair.positive));
    negative_ = 0.5f + Softplus(ToFloat(pair.negative));
  }
  __device__ float operator()(float x) const {
    if (x > 0.0f) return positive_ * x * x + 0.5f * x;
    return negative_ * (expm1f(fminf(x, -1e-6f)) - x) + 0.5f * x;
  }

 private:
  float positive_;
  float negative_;
};

template <typename T>
__global__ void ActivateKernel(const __grid_constant__ ActivateArgs args) {
  WaitForPrevious();
  const int64_t vectors = args.ffn / kVector;
  const int64_t i = GlobalThread();
  if (i >= args.m * vectors) return;
  const int64_t row = i / vectors;
  const int64_t width = args.rule.gated ? 2 * args.ffn : args.ffn;
  const T* gate = static_cast<const T*>(args.x) + row * width + i % vectors * kVector;
  float g[kVector];
  float up[kVector] = {};
  LoadFloats(gate, g);
  if (args.rule.gated) LoadFloats(gate + args.ffn, up);
  if (args.rule.activation == Activation::kXielu) {
    const Xielu<T> xielu(args.xielu);
#pragma unroll
    for (int j = 0; j < kVector; ++j) g[j] = args.rule.gated ? xielu(g[j]) * up[j] : xielu(g[j]);
  } else {
    Activated(args.rule, g, up);
  }
  StoreFloats(static_cast<T*>(args.out) + i * kVector, g);
}

template <typename T>
__global__ void GateInputsKernel(const __grid_constant__ GateInputsArgs args) {
  WaitForPrevious();
  const int64_t vectors = args.n / kVector;
  const int64_t i = GlobalThread();
  if (i >= args.m * vectors) return;
  const int64_t row = i / vectors;
  const int64_t from = args.rows != nullptr ? args.rows[row] : row;
  T* gate = static_cast<T*>(args.gate) + i * kVector;
  float g[kVector];
  float input[kVector];
  LoadFloats(gate, g);
  LoadFloats(args.inputs + from * args.ld + i % vectors * kVector, input);
  Activated({.activation = args.activation}, g, input);
  StoreFloats(gate, g);
}

struct SoftCapArgs {
  float* x;
  int64_t n;
  float cap;
};
__global__ void SoftCapKernel(const SoftCapArgs args) {
  WaitForPrevious();
  const int64_t i = GlobalThread();
  if (i < args.n) args.x[i] = args.cap * tanhf(args.x[i] / args.cap);
}

// Block (x, y, z) copies 16-byte pieces of copy y in layer z / 2: K if z is even, else V.
__global__ void CopyPagesKernel(const CopyPagesArgs args) {
  WaitForPrevious();
  const KvPages& kv = args.first;
  const int64_t page_bytes = kv.kv_heads * kv.head_bytes();
  const int64_t at = GlobalThread() * 16;
  if (at >= page_bytes) return;
  const PageCopy copy = args.copies[blockIdx.y];
  const unsigned arrays = kv.v == nullptr ? 1 : 2;  // latents are keys alone
  char* pages = static_cast<char*>(blockIdx.z % arrays == 0 ? kv.k : kv.v);
  pages += blockIdx.z / arrays * args.layer_stride + at;
  *reinterpret_cast<uint4*>(pages + copy.dst_page * page_bytes) =
      *reinterpret_cast<const uint4*>(pages + copy.src_page * page_bytes);
}

}  // namespace elementwise_cu

void Embed(const EmbedArgs& args, Stream stream) {
  MLC_CHECK(args.k % kVector == 0) << args.k;
  if (args.m == 0) return;
  WithActivationType(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    Launch(EmbedKernel<T>, OneThreadEach(args.m * args.k / kVector), stream, args);
  });
}

void GatherRows(const void* in, const int32_t* rows, int64_t m, int64_t row_bytes, void* out,
                Stream stream) {
  MLC_CHECK(row_bytes % 16 == 0) << row_bytes;
  if (m == 0) return;
  const GatherRowsArgs args{.in = static_cast<const uint4*>(in),
                            .rows = rows,
                            .m = m,
                            .row_vectors = row_bytes / 16,
                            .out = static_cast<uint4*>(out)};
  Launch(GatherRowsKernel, OneThreadEach(m * args.row_vectors), stream, args);
}

void PickRows(const PickRowsArgs& args, Stream stream) {
  if (args.m == 0) return;
  Launch(PickRowsKernel, OneThreadEach(args.m), stream, args);
}

void MoveRows(const MoveRowsArgs& args, Stream stream) {
  MLC_CHECK(args.k % kVector == 0 && args.ld_from % kVector == 0 && args.ld_to % kVector == 0)
      << args.k << ' ' << args.ld_from << ' ' << args.ld_to;
  if (args.m == 0) return;
  const LaunchShape shape = OneThreadEach(args.m * args.k / kVector);
  if (args.from_dtype == DType::kFloat32) {
    return WithActivationType(args.to_dtype, [&](auto tag) {
      using To = typename decltype(tag)::Type;
      Launch(MoveRowsKernel<float, To>, shape, stream, args);
    });
  }
  MLC_CHECK(args.to_dtype == DType::kFloat32) << "rows of two types of 16 bits";
  WithActivationType(args.from_dtype, [&](auto tag) {
    using From = typename decltype(tag)::Type;
    Launch(MoveRowsKernel<From, float>, shape, stream, args);
  });
}

void Activate(const ActivateArgs& args, Stream stream) {
  MLC_CHECK(args.ffn % kVector == 0) << args.ffn;
  MLC_CHECK((args.rule.activation == Activation::kXielu) == (args.xielu != nullptr));
  if (args.m == 0) return;
  WithActivationType(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    Launch(ActivateKernel<T>, OneThreadEach(args.m * args.ffn / kVector), stream, args);
  });
}

void GateInputs(const GateInputsArgs& args, Stream stream) {
  MLC_CHECK(args.n % kVector == 0 && args.ld % kVector == 0) << args.n << ' ' << args.ld;
  MLC_CHECK(args.activation != Activation::kXielu);
  if (args.m == 0) return;
  WithActivationType(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    Launch(GateInputsKernel<T>, OneThreadEach(args.m * args.n / kVector), stream, args);
  });
}

void AddParts(const AddPartsArgs& args, Stream stream) {
  MLC_CHECK(args.count % kVector == 0 && args.stride % kVector == 0) << args.count;
  MLC_CHECK(args.own >= 0 && args.own < args.num_parts) << args.own << " of " << args.num_parts;
  if (args.count == 0) return;
  WithActivationType(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    Launch(AddPartsKernel<T>, OneThreadEach(args.count / kVector), stream, args);
  });
}

void SoftCap(float* x, int64_t n, float cap, Stream stream) {
  if (n == 0) return;
  Launch(SoftCapKernel, OneThreadEach(n), stream, SoftCapArgs{x, n, cap});
}

void CopyPages(const CopyPagesArgs& args, Stream stream) {
  const KvPages& kv = args.first;
  const int64_t page_bytes = kv.kv_heads * kv.head_bytes();
  MLC_CHECK(kv.head_dim % kVector == 0) << kv.head_dim;
  if (args.num_copies == 0) return;
  LaunchShape shape = OneThreadEach(page_bytes / 16);
  shape.grid.y = static_cast<unsigned>(args.num_copies);
  shape.grid.z = static_cast<unsigned>((kv.v == nullptr ? 1 : 2) * args.num_layers);
  Launch(CopyPagesKernel, shape, stream, args);
}

}  // namespace mlc_native::kernels::cuda
