// The kernels of Mamba-1: against the recurrence in double, and what must not change a bit.
#include "cuda/state_slices.h"
#include "kernels/cuda/selective_scan.h"
#include "kernels/reference_scan.h"

namespace mlc_native::kernels::cuda {
namespace {

using reference::ScanInputs;

// The states of a real model with few channels, sizes that no block divides, the most states, and
// the longest convolution.
constexpr ScanShape kCudaScanShapes[] = {
    {.channels = 64, .state_dim = 16, .conv_width = 4},
    {.channels = 36, .state_dim = 12, .conv_width = 3},
    {.channels = 20, .state_dim = 64, .conv_width = 2},
    {.channels = 300, .state_dim = 20, .conv_width = 8},
};

// The inputs of all rows, and slots of states, on the device. Rows have some more columns.
struct ScanKernel {
  static constexpr int64_t kVector = 8;

  const ScanInputs& in;
  DType dtype;
  int64_t ld;
  DeviceBytes inputs;
  DeviceArray<float> steps, keys, convolution, conv_bias, decay, step_bias, skip, states;
  DeviceBytes convolved, out;

  ScanKernel(const ScanInputs& of, DType type)
      : in(of),
        dtype(type),
        ld((2 * of.shape.channels + kVector - 1) / kVector * kVector + kVector),
        inputs(Encode(type, Padded())),
        steps(of.steps),
        keys(of.keys),
        convolution(of.convolution),
        conv_bias(of.conv_bias),
        decay(of.decay),
        step_bias(of.step_bias),
        skip(of.skip),
        states(static_cast<size_t>(kNumTestSlots * slot_floats())),
        convolved(static_cast<size_t>(of.rows * of.shape.channels) * DTypeSize(type)),
        out(static_cast<size_t>(of.rows * of.shape.channels) * DTypeSize(type)) {}

  int64_t state_floats() const { return ScanStateFloats(in.shape); }
  int64_t slot_floats() const { return (state_floats() + 3) / 4 * 4 + 8; }

  std::vector<float> Padded() const {
    const int64_t width = 2 * in.shape.channels;
    std::vector<float> rows(static_cast<size_t>(in.rows * ld), NAN);
    for (int64_t row = 0; row < in.rows; ++row) {
      std::copy_n(in.inputs.begin() + row * width, width, rows.begin() + row * ld);
    }
    return rows;
  }

  void Run(const DeviceSlices& of, int64_t first) {
    const auto element = static_cast<int64_t>(DTypeSize(dtype));
    const int64_t channels = in.shape.channels;
    const ScanArgs args{.dtype = dtype,
                        .shape = in.shape,
                        .inputs = inputs.data() + first * ld * element,
                        .ld_inputs = ld,
                        .convolution = convolution.data(),
                        .conv_bias = in.conv_bias.empty() ? nullptr : conv_bias.data(),
                        .convolved = convolved.data() + first * channels * element,
                        .steps = steps.data() + first * channels,
                        .keys = keys.data() + first * 2 * in.shape.state_dim,
                        .ld_keys = 2 * in.shape.state_dim,
                        .decay = decay.data(),
                        .step_bias = step_bias.data(),
                        .skip = skip.data(),
                        .out = out.data() + first * channels * element,
                        .m = of.m,
                        .slices = of.slices.data(),
                        .num_slices = of.m,
                        .slice_of_row = of.slice_of_row.data(),
                        .writes = of.writes.data(),
                        .states = states.data(),
                        .slot_floats = slot_floats()};
    ScanConvolution(args, nullptr);
    SelectiveScan(args, nullptr);
  }
};

class ScanTest : public CudaKernelTest {
 protected:
  ScanInputs MakeInputs(const ScanShape& shape, DType dtype) {
    ScanInputs in(shape, 21, random_);
    RoundTo(dtype, &in.inputs);
    return in;
  }

  // What the convolution gives is rounded to the type, too.
  static void CheckAgainstReference(const ScanInputs& in, DType dtype) {
    ExpectClose(Decode(dtype, InSlices<ScanKernel>(in, dtype, {21})), reference::Scan(in),
                4 * Epsilon(dtype) + 2e-4);
  }
};

TEST_F(ScanTest, MatchesTheRecurrence) {
  for (const ScanShape& shape : kCudaScanShapes) {
    for (const DType dtype : kDTypes) CheckAgainstReference(MakeInputs(shape, dtype), dtype);
  }
}

TEST_F(ScanTest, ConvolutionsMayLackABias) {
  ScanInputs in = MakeInputs(kCudaScanShapes[1], DType::kFloat32);
  in.conv_bias.clear();
  CheckAgainstReference(in, DType::kFloat32);
}

TEST_F(ScanTest, BitsDoNotDependOnSlices) {
  const DType dtype = DType::kBFloat16;
  for (const ScanShape& shape : {kCudaScanShapes[1], kCudaScanShapes[2]}) {
    CheckThatBitsDoNotDependOnSlices<ScanKernel>(MakeInputs(shape, dtype), dtype);
  }
}

TEST_F(ScanTest, SequencesOfALaunchAreIndependent) {
  const DType dtype = DType::kFloat16;
  CheckThatSequencesAreIndependent<ScanKernel>(MakeInputs(kCudaScanShapes[1], dtype), dtype);
}

TEST_F(ScanTest, StatesWithinASliceAreThoseOfShorterOnes) {
  for (const ScanShape& shape : {kCudaScanShapes[1], kCudaScanShapes[3]}) {
    CheckStatesWithinASlice<ScanKernel>(MakeInputs(shape, DType::kFloat32));
  }
}

// Each part of a row by itself, in float; what steps come from in the type.
TEST_F(ScanTest, NormalizesThePartsOfARow) {
  constexpr int64_t kRank = 136, kStates = 12, kRows = 3;
  constexpr int64_t kSizes[] = {kRank, kStates, kStates};
  constexpr int64_t kWidth = kRank + 2 * kStates;
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> x(kRows * kWidth), weight(kWidth);
  for (float& value : x) value = uniform(random_);
  for (float& value : weight) value = uniform(random_);
  for (const bool has_norms : {true, false}) {
    DeviceArray<float> rows(x), weights(weight);
    DeviceBytes ranks(kRows * kRank * sizeof(float));
    ScanNorm({.dtype = DType::kFloat32,
              .rank = kRank,
              .state_dim = kStates,
              .x = rows.data(),
              .ranks = ranks.data(),
              .weight = has_norms ? weights.data() : nullptr,
              .eps = 1e-3f,
              .m = kRows},
             nullptr);
    const std::vector<float> of_ranks = Decode(DType::kFloat32, ranks.Download());
    const std::vector<float> found = rows.Download();
    for (int64_t row = 0; row < kRows; ++row) {
      int64_t first = 0;
      for (const int64_t size : kSizes) {
        const auto at = [&](int64_t i) { return static_cast<size_t>(row * kWidth + first + i); };
        double squares = 0;
        for (int64_t i = 0; i < size; ++i) squares += double{x[at(i)]} * x[at(i)];
        const double scale =
            has_norms ? 1 / std::sqrt(squares / static_cast<double>(size) + 1e-3) : 1;
        for (int64_t i = 0; i < size; ++i) {
          const double by = has_norms ? weight[static_cast<size_t>(first + i)] : 1;
          const float got =
              first == 0 ? of_ranks[static_cast<size_t>(row * kRank + i)] : found[at(i)];
          EXPECT_NEAR(got, x[at(i)] * scale * by, 1e-5) << row << " " << first + i;
        }
        first += size;
      }
    }
  }
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
