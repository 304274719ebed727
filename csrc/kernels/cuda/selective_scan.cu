// Mamba-1 in three launches, with products of the layer in between: the convolution, a thread per
// four channels of a row; the norms of what steps, keys and queries come from, a block per row; and
// the scan, a block per 16 channels of a sequence, whose states stay in registers from row to row.
//
// Four lanes share the state of a channel, so that 16 numbers of it are one piece of 16 bytes for
// each. What the scan reads of the next rows is on its way while some rows are computed.
#include "kernels/cuda/recurrent.cuh"
#include "kernels/cuda/rowwise.h"
#include "kernels/cuda/selective_scan.h"

namespace mlc_native::kernels::cuda {
inline namespace selective_scan_cu {

constexpr int kScanThreads = 64;
constexpr int kScanColumns = kScanThreads / kLanesPerColumn;  // channels of a block
constexpr int kScanRows = 8;                                  // that are read together
constexpr int kUsualScanWidth = 4;
constexpr int kUsualScanStates = 16;
constexpr int kScanNormThreads = 128;

template <typename T, int kWidth>
__global__ void __launch_bounds__(kScanThreads)
    ScanConvolutionKernel(const __grid_constant__ ScanArgs a) {
  const int64_t channels = a.shape.channels;
  const int64_t channel = (static_cast<int64_t>(blockIdx.y) * kScanThreads + threadIdx.x) * kFew;
  const ConvolutionWeights<kWidth> weights(a.convolution, channels, a.shape.conv_width, channel);
  RawFew<float> bias{};
  if (a.conv_bias != nullptr && channel < channels) bias = LoadFew(a.conv_bias + channel);
  WaitForPrevious();
  const int64_t row = blockIdx.x;
  const int32_t index = a.slice_of_row[row];
  if (index < 0 || channel >= channels) return;
  const T* const inputs = static_cast<const T*>(a.inputs) + channel;
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
  StoreFew(static_cast<T*>(a.convolved) + row * channels + channel, sum);
  LeaveRows(slice, a.writes, in_slice, x, weights.width(), a.states + channel, a.slot_floats,
            channels);
}

template <typename T>
__global__ void __launch_bounds__(kScanNormThreads)
    ScanNormKernel(const __grid_constant__ ScanNormArgs a) {
  __shared__ float sums[3][kScanNormThreads / kWarp];
  WaitForPrevious();
  const int64_t row = blockIdx.x;
  float* const x = a.x + row * (a.rank + 2 * a.state_dim);
  T* const ranks = static_cast<T*>(a.ranks) + row * a.rank;
  int64_t first = 0;
#pragma unroll 1
  for (int part = 0; part < 3; ++part) {
    const int64_t dim = part == 0 ? a.rank : a.state_dim;
    float scale = 1.0f;
    if (a.weight != nullptr) {
      float squares = 0.0f;
      for (int64_t i = threadIdx.x; i < dim; i += kScanNormThreads) {
        squares = fmaf(x[first + i], x[first + i], squares);
      }
      const float mean = ReduceBlock(squares, Plus(), sums[part]) / static_cast<float>(dim);
      scale = ReciprocalSqrt(mean + a.eps);
    }
    for (int64_t i = threadIdx.x; i < dim; i += kScanNormThreads) {
      const float y =
          a.weight == nullptr ? x[first + i] : x[first + i] * scale * a.weight[first + i];
      if (part == 0) {
        ranks[i] = FromFloat<T>(y);
      } else {
        x[first + i] = y;
      }
    }
    first += dim;
  }
}

// What a row does to a channel.
struct alignas(16) ScanStep {
  float step;
  float write;  // step * u
  float skipped;
  float gate;
};

// What a block reads of some rows, in shared memory. Behind the last key are zeros.
template <int kStates>
struct ScanRows {
  alignas(16) float keys[2][kScanRows][kStates];  // and queries
  ScanStep steps[kScanRows][kScanColumns];
};

// What a thread reads for the others: pieces of keys and queries, and two steps.
template <typename T, int kStates>
class ScanReads {
 public:
  __device__ ScanReads(const ScanArgs& a, int64_t first_row, int64_t first_column)
      : a_(a), first_row_(first_row), column_(first_column + Column()) {
    is_used_ = column_ < a.shape.channels;
    if (!is_used_) return;
    bias_ = a.step_bias[column_];
    skip_ = a.skip[column_];
  }

  // Of `count` rows from `row` on, which is counted from the first one.
  __device__ void Start(int row, int count) {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      keys_[i] = {};
      if (Row(i) >= count || Key(i) >= a_.shape.state_dim) continue;
      const int64_t of_query = IsQuery(i) ? a_.shape.state_dim : 0;
      keys_[i] = LoadFew(a_.keys + (first_row_ + row + Row(i)) * a_.ld_keys + of_query + Key(i));
    }
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const int of_step = StepRow(i);
      is_there_[i] = is_used_ && of_step < count;
      if (!is_there_[i]) continue;
      const int64_t at = first_row_ + row + of_step;
      t_[i] = a_.steps[at * a_.shape.channels + column_];
      u_[i] = static_cast<const T*>(a_.convolved)[at * a_.shape.channels + column_];
      z_[i] = static_cast<const T*>(a_.inputs)[at * a_.ld_inputs + a_.shape.channels + column_];
    }
  }

  __device__ void Finish(ScanRows<kStates>* to) const {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      float few[kFew];
      keys_[i].ToFloats(few);
      *reinterpret_cast<float4*>(&to->keys[IsQuery(i)][Row(i)][Key(i)]) =
          float4{few[0], few[1], few[2], few[3]};
    }
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      ScanStep step{};
      if (is_there_[i]) {
        const float u = ToFloat(u_[i]), z = ToFloat(z_[i]);
        step.step = SoftplusOf(t_[i] + bias_);
        step.write = step.step * u;
        step.skipped = skip_ * u;
        step.gate = z * Sigmoid(z);
      }
      to->steps[StepRow(i)][Column()] = step;
    }
  }

 private:
  static constexpr int kPieces = 2 * kScanRows * kStates / kFew / kScanThreads;
  static constexpr int kSteps = kScanRows * kScanColumns / kScanThreads;
  static_assert(kPieces * kScanThreads * kFew == 2 * kScanRows * kStates);
  static_assert(kSteps * kScanThreads == kScanRows * kScanColumns);
  static constexpr int kOfRow = 2 * kStates / kFew;  // pieces

  __device__ static int Index(int i) { return i * kScanThreads + static_cast<int>(threadIdx.x); }
  __device__ static int Row(int i) { return Index(i) / kOfRow; }
  __device__ static int IsQuery(int i) { return Index(i) % kOfRow / (kOfRow / 2); }
  __device__ static int Key(int i) { return Index(i) % (kOfRow / 2) * kFew; }
  __device__ static int StepRow(int i) { return Index(i) / kScanColumns; }
  __device__ static int Column() { return static_cast<int>(threadIdx.x) % kScanColumns; }

  const ScanArgs& a_;
  const int64_t first_row_;
  const int64_t column_;
  bool is_used_;
  float bias_ = 0.0f;
  float skip_ = 0.0f;
  RawFew<float> keys_[kPieces];
  bool is_there_[kSteps] = {};
  float t_[kSteps] = {};
  T u_[kSteps] = {};
  T z_[kSteps] = {};
};

template <typename T, int kStates>
__global__ void __launch_bounds__(kScanThreads)
    SelectiveScanKernel(const __grid_constant__ ScanArgs a) {
  __shared__ ScanRows<kStates> rows;
  const int64_t channels = a.shape.channels;
  const auto blocks = static_cast<unsigned>(CeilDiv(channels, kScanColumns));
  const int64_t first_column = static_cast<int64_t>(blockIdx.x % blocks) * kScanColumns;
  const int in_block = static_cast<int>(threadIdx.x) / kLanesPerColumn;
  const int lane = static_cast<int>(threadIdx.x) % kLanesPerColumn;
  const int64_t column = first_column + in_block;
  const bool is_used = column < channels;
  ColumnPart<kStates> state(a.shape.state_dim, lane), rates(a.shape.state_dim, lane);
  if (is_used) rates.LoadRates(a.decay + column, channels);
  WaitForPrevious();
  const DeltaSlice slice = a.slices[blockIdx.x / blocks];
  if (slice.num_rows == 0) return;
  const int64_t at = ScanStatesAt(a.shape) + column * a.shape.state_dim;
  if (is_used && slice.slot >= 0) state.Load(a.states + slice.slot * a.slot_floats + at);
  ScanReads<T, kStates> reads(a, slice.row_begin, first_column);
  reads.Start(0, min(kScanRows, slice.num_rows));
  const DeltaWrite* next = a.writes + slice.first_write;
  DeltaWrite write = *next;
  T* out = static_cast<T*>(a.out) + slice.row_begin * channels + column;
  for (int begin = 0; begin < slice.num_rows; begin += kScanRows) {
    const int end = min(begin + kScanRows, slice.num_rows);
    reads.Finish(&rows);
    reads.Start(end, min(kScanRows, slice.num_rows - end));
    __syncthreads();  // the rows are there for all threads
    for (int row = begin; row < end; ++row, out += channels) {
      const int r = row - begin;
      const ScanStep step = rows.steps[r][in_block];
      state.UpdateByRates(rates, step.step, rows.keys[0][r], step.write);
      const float product = state.Product(rows.keys[1][r]);
      if (is_used && lane == 0) *out = FromFloat<T>((product + step.skipped) * step.gate);
      if (write.num_rows != row + 1) continue;
      if (is_used) state.Store(a.states + write.slot * a.slot_floats + at);
      if (row + 1 < slice.num_rows) write = *++next;
    }
    __syncthreads();  // they are not read any more
  }
}

void CheckScan(const ScanArgs& args) {
  const ScanShape& shape = args.shape;
  MLC_CHECK(shape.channels > 0 && shape.channels % kFew == 0 && shape.state_dim > 0 &&
            shape.state_dim % kFew == 0 && shape.state_dim <= kMaxScanStates)
      << shape.channels << " channels of " << shape.state_dim;
  MLC_CHECK(shape.conv_width > 1 && shape.conv_width <= kMaxConvWidth &&
            args.ld_inputs % kVector == 0 && args.slot_floats % kFew == 0)
      << shape.conv_width << " " << args.ld_inputs;
}

}  // namespace selective_scan_cu

void ScanConvolution(const ScanArgs& args, Stream stream) {
  CheckScan(args);
  if (args.m == 0) return;
  const int64_t blocks = CeilDiv(args.shape.channels, kFew * kScanThreads);
  const LaunchShape launch{
      .grid = dim3(static_cast<unsigned>(args.m), static_cast<unsigned>(blocks)),
      .threads = kScanThreads};
  WithActivationType(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if (args.shape.conv_width == kUsualScanWidth) {
      return Launch(ScanConvolutionKernel<T, kUsualScanWidth>, launch, stream, args);
    }
    Launch(ScanConvolutionKernel<T, kMaxConvWidth>, launch, stream, args);
  });
}

void SelectiveScan(const ScanArgs& args, Stream stream) {
  CheckScan(args);
  MLC_CHECK(args.ld_keys % kFew == 0) << args.ld_keys;
  if (args.m == 0) return;
  const int64_t blocks = args.num_slices * CeilDiv(args.shape.channels, kScanColumns);
  const LaunchShape launch{.grid = dim3(static_cast<unsigned>(blocks)), .threads = kScanThreads};
  WithActivationType(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if (args.shape.state_dim <= kUsualScanStates) {
      return Launch(SelectiveScanKernel<T, kUsualScanStates>, launch, stream, args);
    }
    Launch(SelectiveScanKernel<T, kMaxScanStates>, launch, stream, args);
  });
}

void ScanNorm(const ScanNormArgs& args, Stream stream) {
  MLC_CHECK(args.rank > 0 && args.state_dim > 0) << args.rank << " " << args.state_dim;
  if (args.m == 0) return;
  const LaunchShape launch{.grid = dim3(static_cast<unsigned>(args.m)),
                           .threads = kScanNormThreads};
  WithActivationType(args.dtype, [&](auto tag) {
    Launch(ScanNormKernel<typename decltype(tag)::Type>, launch, stream, args);
  });
}

}  // namespace mlc_native::kernels::cuda
