// The kernels of linear attention: against the recurrence in double, and what must not change a
// bit.
#include "kernels/cuda/delta_rule.h"

#include "cuda/state_slices.h"
#include "kernels/reference_delta.h"

namespace mlc_native::kernels::cuda {
namespace {

using reference::DeltaInputs;

// Sizes that no block divides, heads that share queries and keys, and the largest keys. The last
// ones are those of channels with decays of their own.
constexpr DeltaShape kShapes[] = {
    {.key_heads = 2, .value_heads = 2, .key_dim = 128, .value_dim = 128, .conv_width = 4},
    {.key_heads = 2, .value_heads = 6, .key_dim = 24, .value_dim = 40, .conv_width = 4},
    {.key_heads = 1, .value_heads = 2, .key_dim = 200, .value_dim = 64, .conv_width = 2},
    {.key_heads = 2,
     .value_heads = 4,
     .key_dim = 24,
     .value_dim = 40,
     .conv_width = 4,
     .decays_channels = true},
    {.key_heads = 2,
     .value_heads = 2,
     .key_dim = 136,
     .value_dim = 32,
     .conv_width = 3,
     .decays_channels = true},
};
constexpr DeltaShape kUneven[] = {kShapes[1], kShapes[3]};

// The inputs of all rows, and slots of states, on the device.
struct DeltaKernel {
  const DeltaInputs& in;
  DType dtype;
  DeviceBytes inputs;
  DeviceArray<float> gates, channel_decays, convolution, decay, bias, norm;
  DeviceArray<float> states, workspace;
  DeviceBytes out;

  DeltaKernel(const DeltaInputs& of, DType type)
      : in(of),
        dtype(type),
        inputs(Encode(type, of.inputs)),
        gates(of.gates),
        channel_decays(of.channel_decays),
        convolution(of.convolution),
        decay(of.decay),
        bias(of.bias),
        norm(of.norm),
        states(static_cast<size_t>(kNumTestSlots * slot_floats())),
        workspace(static_cast<size_t>(DeltaWorkspaceFloats(of.shape, of.rows))),
        out(static_cast<size_t>(of.rows * of.shape.values()) * DTypeSize(type)) {}

  int64_t state_floats() const { return DeltaStateFloats(in.shape); }
  int64_t slot_floats() const { return (state_floats() + 3) / 4 * 4 + 8; }

  void Run(const DeviceSlices& of, int64_t first) {
    const auto element = static_cast<int64_t>(DTypeSize(dtype));
    DeltaRule(
        {.dtype = dtype,
         .shape = in.shape,
         .inputs = inputs.data() + first * in.width() * element,
         .ld_inputs = in.width(),
         .out_gates = inputs.data() + (first * in.width() + in.shape.channels()) * element,
         .ld_out_gates = in.width(),
         .sigmoid_out_gates = in.shape.decays_channels,
         .gates = gates.data() + first * in.shape.gates(),
         .channel_decays =
             in.shape.decays_channels ? channel_decays.data() + first * in.shape.decays() : nullptr,
         .convolution = convolution.data(),
         .decay = decay.data(),
         .decay_bias = bias.data(),
         .beta_scale = static_cast<float>(in.beta_scale),
         .norm = norm.data(),
         .norm_eps = static_cast<float>(in.norm_eps),
         .out = out.data() + first * in.shape.values() * element,
         .m = of.m,
         .slices = of.slices.data(),
         .num_slices = of.m,
         .slice_of_row = of.slice_of_row.data(),
         .writes = of.writes.data(),
         .states = states.data(),
         .slot_floats = slot_floats(),
         .workspace = workspace.data()},
        nullptr);
  }
};

class DeltaRuleTest : public CudaKernelTest {
 protected:
  DeltaInputs MakeInputs(const DeltaShape& shape, DType dtype) {
    DeltaInputs in(shape, 21, random_);
    RoundTo(dtype, &in.inputs);
    return in;
  }
};

TEST_F(DeltaRuleTest, MatchesTheRecurrence) {
  for (const DeltaShape& shape : kShapes) {
    for (const DType dtype : kDTypes) {
      DeltaInputs in = MakeInputs(shape, dtype);
      in.beta_scale = dtype == DType::kBFloat16 ? 1 : 2;
      ExpectClose(Decode(dtype, InSlices<DeltaKernel>(in, dtype, {21})), reference::DeltaRule(in),
                  2 * Epsilon(dtype) + 2e-4);
    }
  }
}

TEST_F(DeltaRuleTest, BitsDoNotDependOnSlices) {
  const DType dtype = DType::kBFloat16;
  for (const DeltaShape& shape : kUneven) {
    CheckThatBitsDoNotDependOnSlices<DeltaKernel>(MakeInputs(shape, dtype), dtype);
  }
}

TEST_F(DeltaRuleTest, SequencesOfALaunchAreIndependent) {
  const DType dtype = DType::kFloat16;
  for (const DeltaShape& shape : kUneven) {
    CheckThatSequencesAreIndependent<DeltaKernel>(MakeInputs(shape, dtype), dtype);
  }
}

TEST_F(DeltaRuleTest, StatesWithinASliceAreThoseOfShorterOnes) {
  for (const DeltaShape& shape : kUneven) {
    CheckStatesWithinASlice<DeltaKernel>(MakeInputs(shape, DType::kFloat32));
  }
}

TEST_F(DeltaRuleTest, GateIsASigmoidOrSoftplus) {
  for (const auto& [dtype, per_gate, softplus] : {std::tuple{DType::kFloat32, 1, false},
                                                  {DType::kBFloat16, 1, false},
                                                  {DType::kFloat16, 1, false},
                                                  {DType::kFloat32, 8, false},
                                                  {DType::kBFloat16, 40, false},
                                                  {DType::kFloat32, 1, true},
                                                  {DType::kBFloat16, 8, true}}) {
    constexpr int64_t kRows = 3, kColumns = 40, kLdGate = 64, kLd = 48;
    const Floats gate = Random(dtype, kRows * kLdGate, 3), x = Random(dtype, kRows * kLd, 2);
    const DeviceBytes device_gate(Encode(dtype, gate));
    DeviceBytes device_x(Encode(dtype, x));
    Gate({.dtype = dtype,
          .gate = device_gate.data(),
          .ld_gate = kLdGate,
          .x = device_x.data(),
          .ldx = kLd,
          .m = kRows,
          .n = kColumns,
          .per_gate = per_gate,
          .softplus = softplus},
         nullptr);
    reference::Matrix want = ToDouble(x);
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t i = 0; i < kColumns; ++i) {
        const double of_element = gate[row * kLdGate + i / per_gate];
        want[row * kLd + i] *=
            softplus ? std::log1p(std::exp(of_element)) : reference::Sigmoid(of_element);
      }
    }
    ExpectClose(Decode(dtype, device_x.Download()), want, 2 * Epsilon(dtype));
  }
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
