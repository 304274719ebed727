// The kernels of Mamba-2: against the recurrence in double, and what must not change a bit.
#include "kernels/cuda/mamba.h"

#include "cuda/state_slices.h"
#include "kernels/reference_mamba.h"

namespace mlc_native::kernels::cuda {
namespace {

using reference::MambaInputs;

// The sizes of a real model with few heads, sizes that no block divides with heads that share keys
// and queries in several groups, the largest keys, and a norm of several vectors per thread.
constexpr DeltaShape kMambaShapes[] = {
    {.key_heads = 1, .value_heads = 3, .key_dim = 128, .value_dim = 64, .conv_width = 4},
    {.key_heads = 2, .value_heads = 6, .key_dim = 20, .value_dim = 40, .conv_width = 4},
    {.key_heads = 1, .value_heads = 2, .key_dim = 200, .value_dim = 12, .conv_width = 2},
    {.key_heads = 1, .value_heads = 1, .key_dim = 8, .value_dim = 2056, .conv_width = 8},
    {.key_heads = 1, .value_heads = 4, .key_dim = 8, .value_dim = 1032, .conv_width = 4},
};

// The inputs of all rows, and slots of states, on the device. Rows have some more columns.
struct MambaKernel {
  static constexpr int64_t kVector = 8;

  const MambaInputs& in;
  DType dtype;
  int64_t ld;
  DeviceBytes inputs;
  DeviceArray<float> convolution, conv_bias, decay, step_bias, skip, norm;
  DeviceArray<float> states, workspace, square_sums;
  DeviceBytes out;
  bool is_one_of_two = false;  // devices, which have the same

  MambaKernel(const MambaInputs& of, DType type)
      : in(of),
        dtype(type),
        ld((of.width() + kVector - 1) / kVector * kVector),
        inputs(Encode(type, Padded())),
        convolution(of.convolution),
        conv_bias(of.conv_bias),
        decay(of.decay),
        step_bias(of.step_bias),
        skip(of.skip),
        norm(of.norm),
        states(static_cast<size_t>(kNumTestSlots * slot_floats())),
        workspace(static_cast<size_t>(MambaWorkspaceFloats(of.shape, of.rows))),
        square_sums(static_cast<size_t>(of.rows)),
        out(static_cast<size_t>(of.rows * of.shape.values()) * DTypeSize(type)) {}

  int64_t state_floats() const { return DeltaStateFloats(in.shape); }
  int64_t slot_floats() const { return (state_floats() + 3) / 4 * 4 + 8; }

  std::vector<float> Padded() const {
    std::vector<float> rows(static_cast<size_t>(in.rows * ld), NAN);
    for (int64_t row = 0; row < in.rows; ++row) {
      std::copy_n(in.inputs.begin() + row * in.width(), in.width(), rows.begin() + row * ld);
    }
    return rows;
  }

  void Run(const DeviceSlices& of, int64_t first) {
    const auto element = static_cast<int64_t>(DTypeSize(dtype));
    MambaArgs args{.dtype = dtype,
                   .shape = in.shape,
                   .inputs = inputs.data() + first * ld * element,
                   .ld_inputs = ld,
                   .convolution = convolution.data(),
                   .conv_bias = in.conv_bias.empty() ? nullptr : conv_bias.data(),
                   .decay = decay.data(),
                   .step_bias = step_bias.data(),
                   .shortest_step = in.shortest_step,
                   .longest_step = in.longest_step,
                   .skip = skip.data(),
                   .norm = in.norm.empty() ? nullptr : norm.data(),
                   .norm_eps = in.norm_eps,
                   .out = out.data() + first * in.shape.values() * element,
                   .m = of.m,
                   .slices = of.slices.data(),
                   .num_slices = of.m,
                   .slice_of_row = of.slice_of_row.data(),
                   .writes = of.writes.data(),
                   .states = states.data(),
                   .slot_floats = slot_floats(),
                   .workspace = workspace.data()};
    if (!is_one_of_two) return Mamba(args, nullptr);
    args.square_sums = square_sums.data();
    args.whole_size = 2 * in.shape.values();
    Mamba(args, nullptr);
    std::vector<float> sums = square_sums.Download();
    for (float& sum : sums) sum *= 2;
    square_sums.Upload(sums);
    MambaNorm(args, nullptr);
  }
};

class MambaTest : public CudaKernelTest {
 protected:
  MambaInputs MakeInputs(const DeltaShape& shape, DType dtype) {
    MambaInputs in(shape, 21, random_);
    RoundTo(dtype, &in.inputs);
    return in;
  }

  static void CheckAgainstReference(const MambaInputs& in, DType dtype) {
    ExpectClose(Decode(dtype, InSlices<MambaKernel>(in, dtype, {21})), reference::Mamba(in),
                2 * Epsilon(dtype) + 2e-4);
  }
};

TEST_F(MambaTest, MatchesTheRecurrence) {
  for (const DeltaShape& shape : kMambaShapes) {
    for (const DType dtype : kDTypes) CheckAgainstReference(MakeInputs(shape, dtype), dtype);
  }
}

TEST_F(MambaTest, StepsHaveLimitsAndConvolutionsMayLackABias) {
  MambaInputs in = MakeInputs(kMambaShapes[1], DType::kFloat32);
  in.conv_bias.clear();
  in.shortest_step = 0.04f;
  in.longest_step = 0.06f;
  CheckAgainstReference(in, DType::kFloat32);
}

// Rows behind a norm have others' elements in their sums, and those without one have none.
TEST_F(MambaTest, TheGateMayBeTheEnd) {
  for (const DeltaShape& shape : kMambaShapes) {
    for (const DType dtype : kDTypes) {
      MambaInputs in = MakeInputs(shape, dtype);
      in.norm.clear();
      CheckAgainstReference(in, dtype);
    }
  }
}

// Powers of two change no bit.
TEST_F(MambaTest, DevicesWithTheSameHeadsNormalizeAsOneDoes) {
  const std::vector<TestSlice> slices = {{.num_rows = 5, .writes = {{5, 0}}},
                                         {.num_rows = 14, .writes = {{14, 1}}}};
  for (const DeltaShape& shape : {kMambaShapes[0], kMambaShapes[3], kMambaShapes[4]}) {
    for (const DType dtype : kDTypes) {
      const MambaInputs in = MakeInputs(shape, dtype);
      MambaKernel one(in, dtype);
      RunSlices(one, slices);
      MambaKernel two(in, dtype);
      two.is_one_of_two = true;
      RunSlices(two, slices);
      EXPECT_EQ(two.out.Download(), one.out.Download()) << shape.value_dim;
    }
  }
}

TEST_F(MambaTest, BitsDoNotDependOnSlices) {
  const DType dtype = DType::kBFloat16;
  for (const DeltaShape& shape : {kMambaShapes[1], kMambaShapes[2]}) {
    CheckThatBitsDoNotDependOnSlices<MambaKernel>(MakeInputs(shape, dtype), dtype);
  }
}

TEST_F(MambaTest, SequencesOfALaunchAreIndependent) {
  const DType dtype = DType::kFloat16;
  CheckThatSequencesAreIndependent<MambaKernel>(MakeInputs(kMambaShapes[1], dtype), dtype);
}

TEST_F(MambaTest, StatesWithinASliceAreThoseOfShorterOnes) {
  for (const DeltaShape& shape : {kMambaShapes[1], kMambaShapes[2]}) {
    CheckStatesWithinASlice<MambaKernel>(MakeInputs(shape, DType::kFloat32));
  }
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
