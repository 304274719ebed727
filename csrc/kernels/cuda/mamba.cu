// Mamba in three launches: the convolutions, a thread per four channels of a row, and the steps of
// the heads; the recurrence, a block per 16 columns of a head of a sequence, whose part of the
// state stays in registers from row to row; and the gate and norm of what it gives, or the gate
// alone, a block per group of a row.
//
// A decode step moves each state once in and once out, in pieces of 16 bytes that all are on their
// way at the same time. What the recurrence reads of rows is copied while the rows before are
// computed.
#include "kernels/cuda/mamba.h"
#include "kernels/cuda/norm_row.cuh"
#include "kernels/cuda/recurrent.cuh"
#include "kernels/cuda/rowwise.h"

namespace mlc_native::kernels::cuda {
inline namespace mamba_cu {

constexpr int kMambaThreads = 64;
constexpr int kMambaColumns = kMambaThreads / kLanesPerColumn;  // of a block
constexpr int kMambaRows = 8;                                   // that are copied together
constexpr int kUsualMambaWidth = 4;

// The arguments with the parts of the workspace.
struct MambaKernelArgs {
  MambaArgs a;
  float* rows;   // [m, channels]: v, k and q; then what the recurrence gives in place of v
  float* steps;  // [m, value_heads, 2]: decay and step
};

// What a head's state decays by, and how much of a key it gets.
template <typename T>
__device__ inline void WriteStep(const MambaKernelArgs& args, int64_t row, int64_t head) {
  const MambaArgs& a = args.a;
  const T* const t =
      static_cast<const T*>(a.inputs) + row * a.ld_inputs + a.shape.values() + a.shape.channels();
  const float step = fminf(fmaxf(SoftplusOf(ToFloat(t[head]) + a.step_bias[head]), a.shortest_step),
                           a.longest_step);
  float* const to = args.steps + (row * a.shape.value_heads + head) * 2;
  to[0] = expf(-expf(a.decay[head]) * step);
  to[1] = step;
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kMambaThreads)
    MambaPrepareKernel(const __grid_constant__ MambaKernelArgs args) {
  const MambaArgs& a = args.a;
  const int64_t channels = a.shape.channels();
  const int64_t item = static_cast<int64_t>(blockIdx.y) * kMambaThreads + threadIdx.x;
  const int64_t channel = item * kFew;
  const ConvolutionWeights<kWidth> weights(a.convolution, channels, a.shape.conv_width, channel);
  RawFew<float> bias{};
  if (a.conv_bias != nullptr && channel < channels) bias = LoadFew(a.conv_bias + channel);
  WaitForPrevious();
  const int64_t row = blockIdx.x;
  const int32_t index = a.slice_of_row[row];
  if (index < 0) return;
  if (channel >= channels) {
    const int64_t head = item - channels / kFew;
    if (head < a.shape.value_heads) WriteStep<T>(args, row, head);
    return;
  }
  const T* const inputs = static_cast<const T*>(a.inputs) + a.shape.values() + channel;
  const RawFew<T> own = LoadFew(inputs + row * a.ld_inputs);
  const DeltaSlice slice = a.slices[index];
  const int64_t in_slice = row - slice.row_begin;
  float x[kWidth][kFew];
  LoadRowsBefore<kWidth>(
      slice, in_slice, weights.width(), a.states + channel, a.slot_floats, channels,
      [&](int64_t before) { return LoadFew(inputs + (slice.row_begin + before) * a.ld_inputs); },
      x);
  own.ToFloats(x[0]);
  float sum[kFew];
  bias.ToFloats(sum);
  weights.AddProducts(x, sum);
#pragma unroll
  for (int i = 0; i < kFew; ++i) sum[i] *= Sigmoid(sum[i]);
  StoreFew(args.rows + row * channels + channel, sum);
  LeaveRows(slice, a.writes, in_slice, x, weights.width(), a.states + channel, a.slot_floats,
            channels);
}

// What a block reads of some rows, in shared memory. Behind the last key are zeros.
template <int kKeys>
struct MambaRows {
  alignas(16) float keys[2][kMambaRows][kKeys];  // and queries
  alignas(16) float values[kMambaRows][kMambaColumns];
  alignas(16) float steps[kMambaRows][2];
};

// Which part of a head of a slice a block computes.
struct MambaPart {
  int slice;
  int head;
  int first_column;

  __device__ explicit MambaPart(const DeltaShape& shape) {
    const auto blocks = static_cast<unsigned>(CeilDiv(shape.value_dim, kMambaColumns));
    const auto heads = static_cast<unsigned>(shape.value_heads);
    slice = static_cast<int>(blockIdx.x / (heads * blocks));
    const unsigned part = blockIdx.x % (heads * blocks);
    head = static_cast<int>(part / blocks);
    first_column = static_cast<int>(part % blocks) * kMambaColumns;
  }
};

// The pieces of 16 bytes of rows that a thread copies to MambaRows: of the group's keys and queries
// one, or a few, of each row, and of one row a piece of the columns or the step.
template <int kKeys>
class MambaCopies {
 public:
  __device__ MambaCopies(const MambaKernelArgs& args, const MambaPart& part, int64_t first_row)
      : row_floats_(args.a.shape.channels()),
        key_dim_(static_cast<int>(args.a.shape.key_dim)),
        has_column_(part.first_column + Column() < args.a.shape.value_dim) {
    const DeltaShape& shape = args.a.shape;
    const int heads = static_cast<int>(shape.value_heads);
    const int group = part.head / (heads / static_cast<int>(shape.key_heads));
    const float* const row = args.rows + first_row * row_floats_;
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      const int64_t of_queries = IsQuery(piece) ? shape.keys() : 0;
      keys_[piece] = row + shape.values() + of_queries + group * shape.key_dim + Key(piece);
    }
    values_ = row + part.head * shape.value_dim + part.first_column + Column();
    steps_ = args.steps + (first_row * heads + part.head) * 2;
    step_floats_ = 2 * heads;
  }

  // Of `count` rows from `row` on, which is counted from the first one.
  __device__ void Start(int row, int count, MambaRows<kKeys>* to) const {
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      const float* from = keys_[piece] + row * row_floats_;
      for (int r = 0; r < count; ++r, from += row_floats_) {
        CopyAsync16(&to->keys[IsQuery(piece)][r][Key(piece)], from, Key(piece) < key_dim_);
      }
    }
    const int of_values = static_cast<int>(threadIdx.x) / kValuePieces;
    if (of_values < count) {
      CopyAsync16(&to->values[of_values][Column()], values_ + (row + of_values) * row_floats_,
                  has_column_);
    }
    const int of_steps = static_cast<int>(threadIdx.x) - kMambaRows * kValuePieces;
    if (of_steps >= 0 && of_steps < count) {
      CopyAsyncFew<8>(to->steps[of_steps], steps_ + (row + of_steps) * step_floats_, true);
    }
  }

 private:
  static constexpr int kPieces = 2 * kKeys / kFew / kMambaThreads;
  static constexpr int kValuePieces = kMambaColumns / kFew;
  static_assert(kPieces * kMambaThreads * kFew == 2 * kKeys);
  static_assert(kMambaRows * (kValuePieces + 1) <= kMambaThreads);
  __device__ static int Column() { return static_cast<int>(threadIdx.x) % kValuePieces * kFew; }
  __device__ static int IsQuery(int piece) { return Index(piece) / (kKeys / kFew); }
  __device__ static int Key(int piece) { return Index(piece) % (kKeys / kFew) * kFew; }
  __device__ static int Index(int piece) {
    return piece * kMambaThreads + static_cast<int>(threadIdx.x);
  }

  const int64_t row_floats_;
  const int key_dim_;
  const bool has_column_;
  const float* keys_[kPieces];
  const float* values_;
  const float* steps_;
  int64_t step_floats_;
};

// As many blocks as have about 64 KB of states on their way for each multiprocessor.
template <int kKeys>
__global__ void __launch_bounds__(kMambaThreads, kKeys > 128 ? 4 : 8)
    MambaRecurrenceKernel(const __grid_constant__ MambaKernelArgs args) {
  __shared__ MambaRows<kKeys> copied[2];
  WaitForPrevious();
  const MambaArgs& a = args.a;
  const DeltaShape& shape = a.shape;
  const MambaPart part(shape);
  const DeltaSlice slice = a.slices[part.slice];
  if (slice.num_rows == 0) return;
  const int in_block = static_cast<int>(threadIdx.x) / kLanesPerColumn;
  const int lane = static_cast<int>(threadIdx.x) % kLanesPerColumn;
  const int64_t column = part.first_column + in_block;
  const bool is_used = column < shape.value_dim;
  const int64_t at = DeltaHeadsAt(shape) + (part.head * shape.value_dim + column) * shape.key_dim;
  ColumnPart<kKeys> state(shape.key_dim, lane);
  if (is_used && slice.slot >= 0) state.Load(a.states + slice.slot * a.slot_floats + at);
  const MambaCopies<kKeys> copies(args, part, slice.row_begin);
  copies.Start(0, min(kMambaRows, slice.num_rows), &copied[0]);
  CommitCopies();
  const float skip = a.skip[part.head];
  const DeltaWrite* next = a.writes + slice.first_write;
  DeltaWrite write = *next;
  float* out =
      args.rows + slice.row_begin * shape.channels() + part.head * shape.value_dim + column;
  for (int begin = 0; begin < slice.num_rows; begin += kMambaRows) {
    const int end = min(begin + kMambaRows, slice.num_rows);
    MambaRows<kKeys>* const others = &copied[begin / kMambaRows % 2 ^ 1];
    copies.Start(end, min(kMambaRows, slice.num_rows - end), others);
    CommitCopies();
    WaitForCopies<1>();
    __syncthreads();  // the rows are there for all threads
    const MambaRows<kKeys>& rows = copied[begin / kMambaRows % 2];
    for (int row = begin; row < end; ++row, out += shape.channels()) {
      const int r = row % kMambaRows;
      const float v = rows.values[r][in_block];
      state.Update(rows.steps[r][0], rows.keys[0][r], rows.steps[r][1] * v);
      const float product = state.Product(rows.keys[1][r]);
      if (is_used && lane == 0) *out = fmaf(skip, v, product);
      if (write.num_rows != row + 1) continue;
      if (is_used) state.Store(a.states + write.slot * a.slot_floats + at);
      if (row + 1 < slice.num_rows) write = *++next;
    }
    __syncthreads();  // they are not read any more
  }
}

// What a launch does behind the recurrence.
enum class MambaEnd {
  kAll,
  kSquareSums,  // the gate alone, and the sums of squares
  kNorm,        // the norm alone, with the sums of all devices
  kGate,        // the gate alone: there is no norm
};

template <typename T, int kVectors, MambaEnd kEnd>
__global__ void __launch_bounds__(kThreadsOfRow<kVectors>)
    MambaFinishKernel(const __grid_constant__ MambaKernelArgs args) {
  __shared__ float sums[kThreadsOfRow<kVectors> / kWarp];
  const MambaArgs& a = args.a;
  const DeltaShape& shape = a.shape;
  const int64_t size = shape.values() / shape.key_heads;
  const int64_t first = blockIdx.y * size;
  const Parameter<float, kVectors> weight(kEnd == MambaEnd::kGate ? nullptr : a.norm + first, size);
  WaitForPrevious();
  const int64_t row = blockIdx.x;
  if (a.slice_of_row[row] < 0) return;
  float* const values = args.rows + row * shape.channels() + first;
  RowPart<kVectors> x{};
  x.Load(values, size);
  if constexpr (kEnd != MambaEnd::kNorm) {
    RowPart<kVectors> gates{};
    gates.Load(static_cast<const T*>(a.inputs) + row * a.ld_inputs + first, size);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
#pragma unroll
      for (int j = 0; j < kVector; ++j) {
        x.values[i][j] *= gates.values[i][j] * Sigmoid(gates.values[i][j]);
      }
      const bool is_used = RowPart<kVectors>::Column(i) < size;
      if (kEnd == MambaEnd::kSquareSums && is_used) {
        StoreFloats(values + RowPart<kVectors>::Column(i), x.values[i]);
      }
    }
  }
  if constexpr (kEnd == MambaEnd::kSquareSums) {
    const float squares = x.SquareSum(sums);
    if (threadIdx.x == 0) a.square_sums[row] = squares;
  } else {
    float scale = 1.0f;
    if constexpr (kEnd == MambaEnd::kAll) scale = x.InverseNorm(size, a.norm_eps, sums);
    if constexpr (kEnd == MambaEnd::kNorm) {
      scale = ReciprocalSqrt(a.square_sums[row] / static_cast<float>(a.whole_size) + a.norm_eps);
    }
    StoreScaled(x, weight, 0.0f, scale, size,
                static_cast<T*>(a.out) + row * shape.values() + first);
  }
}

template <typename T>
void LaunchMambaPrepare(const MambaKernelArgs& args, Stream stream) {
  const DeltaShape& shape = args.a.shape;
  const int64_t items = shape.channels() / kFew + shape.value_heads;
  const LaunchShape launch{.grid = dim3(static_cast<unsigned>(args.a.m),
                                        static_cast<unsigned>(CeilDiv(items, kMambaThreads))),
                           .threads = kMambaThreads};
  if (shape.conv_width == kUsualMambaWidth) {
    return Launch(MambaPrepareKernel<T, kUsualMambaWidth>, launch, stream, args);
  }
  Launch(MambaPrepareKernel<T, kMaxConvWidth>, launch, stream, args);
}

void LaunchMambaRecurrence(const MambaKernelArgs& args, Stream stream) {
  const DeltaShape& shape = args.a.shape;
  const int64_t blocks =
      args.a.num_slices * shape.value_heads * CeilDiv(shape.value_dim, kMambaColumns);
  const LaunchShape launch{.grid = dim3(static_cast<unsigned>(blocks)), .threads = kMambaThreads};
  if (shape.key_dim <= kMaxDeltaDim / 2) {
    return Launch(MambaRecurrenceKernel<kMaxDeltaDim / 2>, launch, stream, args);
  }
  Launch(MambaRecurrenceKernel<kMaxDeltaDim>, launch, stream, args);
}

template <typename T, MambaEnd kEnd>
void LaunchMambaFinish(const MambaKernelArgs& args, Stream stream) {
  const DeltaShape& shape = args.a.shape;
  const int64_t vectors = shape.values() / shape.key_heads / kVector;
  const auto launch = [&](auto of_thread) {
    constexpr unsigned kThreads = kThreadsOfRow<of_thread()>;
    const auto whole_warps = static_cast<unsigned>(CeilDiv(vectors, kWarp) * kWarp);
    Launch(MambaFinishKernel<T, of_thread(), kEnd>,
           {.grid = dim3(static_cast<unsigned>(args.a.m), static_cast<unsigned>(shape.key_heads)),
            .threads = std::min(whole_warps, kThreads)},
           stream, args);
  };
  if (vectors <= kNormThreads) return launch(std::integral_constant<int, 1>());
  if (vectors <= 2 * kNormThreads) return launch(std::integral_constant<int, 2>());
  launch(std::integral_constant<int, 4>());
}

MambaKernelArgs WithParts(const MambaArgs& args) {
  return {
      .a = args, .rows = args.workspace, .steps = args.workspace + args.m * args.shape.channels()};
}

}  // namespace mamba_cu

void Mamba(const MambaArgs& args, Stream stream) {
  const DeltaShape& shape = args.shape;
  MLC_CHECK(shape.key_heads > 0 && shape.value_heads % shape.key_heads == 0)
      << shape.value_heads << " heads of " << shape.key_heads << " groups";
  const int64_t size = shape.values() / shape.key_heads;  // of a group
  MLC_CHECK(shape.key_dim % kFew == 0 && shape.key_dim <= kMaxDeltaDim &&
            shape.value_dim % kFew == 0 && size % kVector == 0 && size <= kMaxNormDim)
      << shape.value_heads << " heads of " << shape.key_dim << " x " << shape.value_dim;
  MLC_CHECK(shape.conv_width > 1 && shape.conv_width <= kMaxConvWidth &&
            args.ld_inputs % kVector == 0 && args.slot_floats % kFew == 0)
      << shape.conv_width << " " << args.ld_inputs;
  MLC_CHECK(args.square_sums == nullptr || (shape.key_heads == 1 && args.norm != nullptr))
      << shape.key_heads;
  if (args.m == 0) return;
  const MambaKernelArgs kernel = WithParts(args);
  WithActivationType(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    LaunchMambaPrepare<T>(kernel, stream);
    LaunchMambaRecurrence(kernel, stream);
    if (args.norm == nullptr) return LaunchMambaFinish<T, MambaEnd::kGate>(kernel, stream);
    if (args.square_sums == nullptr) return LaunchMambaFinish<T, MambaEnd::kAll>(kernel, stream);
    LaunchMambaFinish<T, MambaEnd::kSquareSums>(kernel, stream);
  });
}

void MambaNorm(const MambaArgs& args, Stream stream) {
  if (args.m == 0) return;
  WithActivationType(args.dtype, [&](auto tag) {
    LaunchMambaFinish<typename decltype(tag)::Type, MambaEnd::kNorm>(WithParts(args), stream);
  });
}

}  // namespace mlc_native::kernels::cuda
