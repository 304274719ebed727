// DeltaRule in three launches: what a row's queries, keys, values, gates and decays are (a warp per
// head of a row), the recurrence (a block per 32 columns of a head of a sequence, whose part of the
// state stays in registers from row to row), and the norm and gate of what it gives (a warp per
// head of a row; those of a first row also write what the next slice's convolutions read). Gate: a
// thread per 8 elements.
#include "kernels/cuda/delta_rule.h"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/one_thread_each.cuh"
#include "kernels/cuda/recurrent.cuh"

namespace mlc_native::kernels::cuda {
inline namespace delta_rule_cu {

constexpr int kWarpsPerBlock = 4;
constexpr int kDeltaThreads = kWarpsPerBlock * kWarp;
constexpr int kColumns = kDeltaThreads / kLanesPerColumn;
constexpr int kRowsAtOnce = 8;  // whose queries and keys are in shared memory
constexpr int kDimsPerLane = static_cast<int>(kMaxDeltaDim) / kWarp;

// The arguments with the parts of the workspace.
struct DeltaKernelArgs {
  DeltaRuleArgs a;
  float* q;      // [m, keys]
  float* k;      // [m, keys]
  float* v;      // [m, values]; then what the recurrence gives
  float* decay;  // [m, shape.decays()]
  float* beta;   // [m, value_heads]
};

__device__ inline int Lane() { return static_cast<int>(threadIdx.x) % kWarp; }

// What the convolution reads of a channel `row` rows behind the first one of the slice.
template <typename T>
__device__ inline float InputAt(const DeltaRuleArgs& a, const DeltaSlice& slice, int64_t row,
                                int64_t channel) {
  const int64_t channels = a.shape.channels();
  if (row >= 0) {
    const int64_t at = (slice.row_begin + row) * a.ld_inputs + channel;
    return ToFloat(static_cast<const T*>(a.inputs)[at]);
  }
  if (slice.slot < 0) return 0.0f;
  return a.states[slice.slot * a.slot_floats + (a.shape.conv_width - 1 + row) * channels + channel];
}

template <typename T>
__device__ inline float Convolved(const DeltaRuleArgs& a, const DeltaSlice& slice, int64_t row,
                                  int64_t channel) {
  float sum = 0.0f;
  for (int64_t i = 0; i < a.shape.conv_width; ++i) {
    const int64_t from = row - (a.shape.conv_width - 1) + i;
    sum = fmaf(InputAt<T>(a, slice, from, channel), a.convolution[i * a.shape.channels() + channel],
               sum);
  }
  return sum * Sigmoid(sum);
}

// How much a value head writes, and what its state, or each row of it, is multiplied with.
__device__ inline void PrepareGates(const DeltaKernelArgs& args, int64_t row, int64_t head) {
  const DeltaRuleArgs& a = args.a;
  const DeltaShape& shape = a.shape;
  const float* const gates = a.gates + row * shape.gates() + head;
  if (Lane() == 0) args.beta[row * shape.value_heads + head] = a.beta_scale * Sigmoid(gates[0]);
  const float rate = -expf(a.decay[head]);
  const int64_t count = shape.decays_channels ? shape.key_dim : 1;
  const float* const x = shape.decays_channels
                             ? a.channel_decays + row * shape.decays() + head * count
                             : gates + shape.value_heads;
  for (int64_t i = Lane(); i < count; i += kWarp) {
    args.decay[row * shape.decays() + head * count + i] =
        expf(rate * SoftplusOf(x[i] + a.decay_bias[head * count + i]));
  }
}

// A head of the queries, of the keys or of the values, in this order.
template <typename T>
__global__ void __launch_bounds__(kDeltaThreads)
    DeltaPrepareKernel(const __grid_constant__ DeltaKernelArgs args) {
  WaitForPrevious();
  const DeltaRuleArgs& a = args.a;
  const DeltaShape& shape = a.shape;
  const int64_t row = blockIdx.x;
  const int64_t item = static_cast<int64_t>(blockIdx.y) * kWarpsPerBlock + threadIdx.x / kWarp;
  const int32_t index = a.slice_of_row[row];
  if (index < 0 || item >= 2 * shape.key_heads + shape.value_heads) return;
  const DeltaSlice slice = a.slices[index];
  const int64_t in_slice = row - slice.row_begin;
  const bool is_value = item >= 2 * shape.key_heads;
  const int64_t dim = is_value ? shape.value_dim : shape.key_dim;
  const int64_t head = is_value ? item - 2 * shape.key_heads : item % shape.key_heads;
  const bool is_key = !is_value && item >= shape.key_heads;
  const int64_t first = is_value ? 2 * shape.keys() : is_key ? shape.keys() : 0;
  float x[kDimsPerLane];
  float squares = 0.0f;
#pragma unroll
  for (int j = 0; j < kDimsPerLane; ++j) {
    const int64_t d = j * kWarp + Lane();
    x[j] = d < dim ? Convolved<T>(a, slice, in_slice, first + head * dim + d) : 0.0f;
    squares += x[j] * x[j];
  }
  squares = ReduceWarp(squares, Plus());
  float factor = 1.0f;
  if (!is_value) factor = 1.0f / sqrtf(squares + 1e-6f);
  if (!is_value && !is_key) factor /= sqrtf(static_cast<float>(dim));
  float* const to =
      is_value ? args.v + row * shape.values() : (is_key ? args.k : args.q) + row * shape.keys();
#pragma unroll
  for (int j = 0; j < kDimsPerLane; ++j) {
    const int64_t d = j * kWarp + Lane();
    if (d < dim) to[head * dim + d] = x[j] * factor;
  }
  if (is_value) PrepareGates(args, row, head);
}

// The last rows of the convolution's inputs in front of each write. The blocks of a slice's first
// row share the channels.
template <typename T>
__device__ inline void WriteChannels(const DeltaRuleArgs& a, const DeltaSlice& slice) {
  const int64_t channels = a.shape.channels();
  const int64_t step = static_cast<int64_t>(gridDim.y) * kDeltaThreads;
  for (int32_t w = 0; w < slice.num_writes; ++w) {
    const DeltaWrite write = a.writes[slice.first_write + w];
    float* const to = a.states + write.slot * a.slot_floats;
    for (int64_t i = 0; i < a.shape.conv_width - 1; ++i) {
      const int64_t row = write.num_rows - (a.shape.conv_width - 1) + i;
      for (int64_t c = static_cast<int64_t>(blockIdx.y) * kDeltaThreads + threadIdx.x; c < channels;
           c += step) {
        to[i * channels + c] = InputAt<T>(a, slice, row, c);
      }
    }
  }
}

// kOfChannels: each channel of the keys has a decay of its own.
template <int kKeys, bool kOfChannels>
__global__ void __launch_bounds__(kDeltaThreads)
    DeltaRecurrenceKernel(const __grid_constant__ DeltaKernelArgs args) {
  alignas(16) __shared__ float queries[kRowsAtOnce][kKeys];
  alignas(16) __shared__ float keys[kRowsAtOnce][kKeys];
  alignas(16) __shared__ float decays[kOfChannels ? kRowsAtOnce : 1][kKeys];
  WaitForPrevious();
  const DeltaRuleArgs& a = args.a;
  const DeltaShape& shape = a.shape;
  const DeltaSlice slice = a.slices[blockIdx.x];
  if (slice.num_rows == 0) return;
  const int64_t blocks = CeilDiv(shape.value_dim, kColumns);  // of a head
  const int64_t head = blockIdx.y / blocks;
  const int64_t key_head = head / (shape.value_heads / shape.key_heads);
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kLanesPerColumn;
  const int64_t column = blockIdx.y % blocks * kColumns + thread / kLanesPerColumn;
  const bool is_used = column < shape.value_dim;
  const int64_t at = DeltaHeadsAt(shape) + (head * shape.value_dim + column) * shape.key_dim;
  ColumnPart<kKeys> state(shape.key_dim, lane);
  if (is_used && slice.slot >= 0) state.Load(a.states + slice.slot * a.slot_floats + at);
  const DeltaWrite* write = a.writes + slice.first_write;
  for (int32_t begin = 0; begin < slice.num_rows; begin += kRowsAtOnce) {
    const int32_t rows = min(kRowsAtOnce, slice.num_rows - begin);
    const int64_t first_row = slice.row_begin + begin;
    __syncthreads();  // the rows before are not read any more
    for (int i = thread; i < rows * kKeys; i += kDeltaThreads) {
      const int r = i / kKeys;
      const int key = i % kKeys;
      const int64_t from = (first_row + r) * shape.keys() + key_head * shape.key_dim + key;
      queries[r][key] = key < shape.key_dim ? args.q[from] : 0.0f;
      keys[r][key] = key < shape.key_dim ? args.k[from] : 0.0f;
      if constexpr (kOfChannels) {
        const int64_t of_head = (first_row + r) * shape.decays() + head * shape.key_dim + key;
        decays[r][key] = key < shape.key_dim ? args.decay[of_head] : 0.0f;
      }
    }
    __syncthreads();
    for (int32_t r = 0; r < rows; ++r) {
      const int64_t row = first_row + r;
      const float decay = kOfChannels ? 1.0f : args.decay[row * shape.value_heads + head];
      const float beta = args.beta[row * shape.value_heads + head];
      float* const value = args.v + row * shape.values() + head * shape.value_dim + column;
      const float v = is_used ? *value : 0.0f;
      const float recalled =
          kOfChannels ? state.DecayedProduct(decays[r], keys[r]) : state.Product(keys[r]);
      state.Update(decay, keys[r], (v - decay * recalled) * beta);
      const float out = state.Product(queries[r]);
      if (is_used && lane == 0) *value = out;
      if (write->num_rows != begin + r + 1) continue;
      if (is_used) state.Store(a.states + write->slot * a.slot_floats + at);
      if (begin + r + 1 < slice.num_rows) ++write;
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kDeltaThreads)
    DeltaFinishKernel(const __grid_constant__ DeltaKernelArgs args) {
  WaitForPrevious();
  const DeltaRuleArgs& a = args.a;
  const DeltaShape& shape = a.shape;
  const int64_t row = blockIdx.x;
  const int64_t head = static_cast<int64_t>(blockIdx.y) * kWarpsPerBlock + threadIdx.x / kWarp;
  const int32_t index = a.slice_of_row[row];
  if (index < 0) return;
  const DeltaSlice slice = a.slices[index];
  if (row == slice.row_begin) WriteChannels<T>(a, slice);
  if (head >= shape.value_heads) return;
  const float* const x = args.v + row * shape.values() + head * shape.value_dim;
  const T* const z =
      static_cast<const T*>(a.out_gates) + row * a.ld_out_gates + head * shape.value_dim;
  T* const out = static_cast<T*>(a.out) + row * shape.values() + head * shape.value_dim;
  float squares = 0.0f;
#pragma unroll
  for (int j = 0; j < kDimsPerLane; ++j) {
    const int64_t d = j * kWarp + Lane();
    if (d < shape.value_dim) squares += x[d] * x[d];
  }
  squares = ReduceWarp(squares, Plus());
  const float inverse = 1.0f / sqrtf(squares / static_cast<float>(shape.value_dim) + a.norm_eps);
#pragma unroll
  for (int j = 0; j < kDimsPerLane; ++j) {
    const int64_t d = j * kWarp + Lane();
    if (d >= shape.value_dim) continue;
    const float gate = ToFloat(z[d]);
    const float factor = a.sigmoid_out_gates ? 1.0f : gate;
    out[d] = FromFloat<T>(x[d] * inverse * a.norm[d] * factor * Sigmoid(gate));
  }
}

template <typename T>
__global__ void GateKernel(const __grid_constant__ GateArgs args) {
  WaitForPrevious();
  const int64_t vectors = args.n / kVector;
  const int64_t i = GlobalThread();
  if (i >= args.m * vectors) return;
  const int64_t row = i / vectors;
  const int64_t column = i % vectors * kVector;
  float gate[kVector];
  float x[kVector];
  const T* const gates = static_cast<const T*>(args.gate) + row * args.ld_gate;
  if (args.per_gate == 1) {
    LoadFloats(gates + column, gate);
  } else {
    const float of_vector = ToFloat(gates[column / args.per_gate]);
#pragma unroll
    for (float& x : gate) x = of_vector;
  }
  T* const to = static_cast<T*>(args.x) + row * args.ldx + column;
  LoadFloats(to, x);
#pragma unroll
  for (int j = 0; j < kVector; ++j) {
    x[j] *= args.softplus ? SoftplusOf(gate[j]) : Sigmoid(gate[j]);
  }
  StoreFloats(to, x);
}

template <bool kOfChannels>
void LaunchRecurrence(const DeltaKernelArgs& args, const LaunchShape& shape, Stream stream) {
  if (args.a.shape.key_dim <= kMaxDeltaDim / 2) {
    Launch(DeltaRecurrenceKernel<kMaxDeltaDim / 2, kOfChannels>, shape, stream, args);
  } else {
    Launch(DeltaRecurrenceKernel<kMaxDeltaDim, kOfChannels>, shape, stream, args);
  }
}

dim3 RowsAndHeads(int64_t rows, int64_t heads) {
  return dim3(static_cast<unsigned>(rows), static_cast<unsigned>(CeilDiv(heads, kWarpsPerBlock)));
}

}  // namespace delta_rule_cu

void DeltaRule(const DeltaRuleArgs& args, Stream stream) {
  const DeltaShape& shape = args.shape;
  MLC_CHECK(shape.key_heads > 0 && shape.value_heads % shape.key_heads == 0 &&
            shape.key_dim % 4 == 0 && shape.key_dim <= kMaxDeltaDim &&
            shape.value_dim <= kMaxDeltaDim && shape.conv_width <= kMaxConvWidth)
      << shape.key_dim << " by " << shape.value_dim;
  MLC_CHECK(args.ld_inputs >= shape.channels() && args.ld_out_gates >= shape.values() &&
            (args.channel_decays != nullptr) == shape.decays_channels);
  MLC_CHECK(args.slot_floats % 4 == 0 && args.slot_floats >= DeltaStateFloats(shape));
  if (args.m == 0) return;
  DeltaKernelArgs kernel{.a = args,
                         .q = args.workspace,
                         .k = nullptr,
                         .v = nullptr,
                         .decay = nullptr,
                         .beta = nullptr};
  kernel.k = kernel.q + args.m * shape.keys();
  kernel.v = kernel.k + args.m * shape.keys();
  kernel.decay = kernel.v + args.m * shape.values();
  kernel.beta = kernel.decay + args.m * shape.decays();
  const int64_t columns = shape.value_heads * CeilDiv(shape.value_dim, kColumns);
  const dim3 blocks(static_cast<unsigned>(args.num_slices), static_cast<unsigned>(columns));
  WithActivationType(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    Launch(DeltaPrepareKernel<T>,
           {.grid = RowsAndHeads(args.m, 2 * shape.key_heads + shape.value_heads),
            .threads = kDeltaThreads},
           stream, kernel);
    const LaunchShape recurrence{.grid = blocks, .threads = kDeltaThreads};
    if (shape.decays_channels) {
      LaunchRecurrence<true>(kernel, recurrence, stream);
    } else {
      LaunchRecurrence<false>(kernel, recurrence, stream);
    }
    Launch(DeltaFinishKernel<T>,
           {.grid = RowsAndHeads(args.m, shape.value_heads), .threads = kDeltaThreads}, stream,
           kernel);
  });
}

void Gate(const GateArgs& args, Stream stream) {
  MLC_CHECK(args.n % kVector == 0 && args.ldx % kVector == 0 && args.ld_gate % kVector == 0 &&
            (args.per_gate == 1 || args.per_gate % kVector == 0))
      << args.n;
  if (args.m == 0) return;
  WithActivationType(args.dtype, [&](auto tag) {
    Launch(GateKernel<typename decltype(tag)::Type>, OneThreadEach(args.m * (args.n / kVector)),
           stream, args);
  });
}

}  // namespace mlc_native::kernels::cuda
