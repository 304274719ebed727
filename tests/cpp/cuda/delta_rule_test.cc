// The kernels of linear attention: against the recurrence in double, and what must not change a
// bit.
#include "kernels/cuda/delta_rule.h"

#include "cuda/test_util.h"
#include "kernels/reference_delta.h"
#include "support/check.h"

namespace mlc_native::kernels::cuda {
namespace {

using reference::DeltaInputs;

// Sizes that no block divides, heads that share queries and keys, and the largest keys.
constexpr DeltaShape kShapes[] = {
    {.key_heads = 2, .value_heads = 2, .key_dim = 128, .value_dim = 128, .conv_width = 4},
    {.key_heads = 2, .value_heads = 6, .key_dim = 24, .value_dim = 40, .conv_width = 4},
    {.key_heads = 1, .value_heads = 2, .key_dim = 200, .value_dim = 64, .conv_width = 2},
};

// What the rows of a slice read and write.
struct Slice {
  int64_t num_rows = 0;
  int32_t slot = -1;
  std::vector<DeltaWrite> writes{};
};

class DeltaRuleTest : public CudaKernelTest {
 protected:
  static constexpr int64_t kNumSlots = 4;

  DeltaInputs MakeInputs(const DeltaShape& shape, int64_t rows, DType dtype) {
    DeltaInputs in(shape, rows, random_);
    for (float& value : in.inputs) {
      uint8_t bytes[4];
      StoreElement(dtype, bytes, 0, value);
      value = LoadElement(dtype, bytes, 0);
    }
    return in;
  }

  // The inputs of all rows, and slots of states, on the device.
  struct Memory {
    const DeltaInputs& in;
    DType dtype;
    DeviceBytes inputs;
    DeviceArray<float> gates, convolution, decay, bias, norm;
    DeviceArray<float> states, workspace;
    DeviceBytes out;

    Memory(const DeltaInputs& of, DType type)
        : in(of),
          dtype(type),
          inputs(Encode(type, of.inputs)),
          gates(of.gates),
          convolution(of.convolution),
          decay(of.decay),
          bias(of.bias),
          norm(of.norm),
          states(static_cast<size_t>(kNumSlots * SlotFloats(of.shape))),
          workspace(static_cast<size_t>(DeltaWorkspaceFloats(of.shape, of.rows))),
          out(static_cast<size_t>(of.rows * of.shape.values()) * DTypeSize(type)) {}
  };
  static int64_t SlotFloats(const DeltaShape& shape) {
    return (DeltaStateFloats(shape) + 3) / 4 * 4 + 8;
  }

  // Computes rows from `first` on, one slice behind the other; some places for slices and rows are
  // not used.
  static void Run(Memory& memory, const std::vector<Slice>& slices, int64_t first = 0) {
    const DeltaInputs& in = memory.in;
    std::vector<DeltaSlice> of_rows;
    std::vector<DeltaWrite> writes;
    std::vector<int32_t> slice_of_row;
    for (const Slice& slice : slices) {
      const auto index = static_cast<int32_t>(of_rows.size());
      of_rows.push_back({.row_begin = static_cast<int32_t>(slice_of_row.size()),
                         .num_rows = static_cast<int32_t>(slice.num_rows),
                         .slot = slice.slot,
                         .first_write = static_cast<int32_t>(writes.size()),
                         .num_writes = static_cast<int32_t>(slice.writes.size())});
      writes.insert(writes.end(), slice.writes.begin(), slice.writes.end());
      slice_of_row.insert(slice_of_row.end(), static_cast<size_t>(slice.num_rows), index);
    }
    const auto used = std::ssize(slice_of_row);
    const int64_t m = std::min(used + 2, in.rows - first);
    slice_of_row.resize(static_cast<size_t>(m), -1);
    of_rows.resize(static_cast<size_t>(m));
    const DeviceArray<DeltaSlice> device_slices(of_rows);
    const DeviceArray<DeltaWrite> device_writes(writes);
    const DeviceArray<int32_t> device_rows(slice_of_row);
    const auto row_bytes = static_cast<int64_t>(DTypeSize(memory.dtype));
    DeltaRule({.dtype = memory.dtype,
               .shape = in.shape,
               .inputs = memory.inputs.data() + first * in.width() * row_bytes,
               .gates = memory.gates.data() + first * 2 * in.shape.value_heads,
               .convolution = memory.convolution.data(),
               .decay = memory.decay.data(),
               .decay_bias = memory.bias.data(),
               .norm = memory.norm.data(),
               .norm_eps = static_cast<float>(in.norm_eps),
               .out = memory.out.data() + first * in.shape.values() * row_bytes,
               .m = m,
               .slices = device_slices.data(),
               .num_slices = m,
               .slice_of_row = device_rows.data(),
               .writes = device_writes.data(),
               .states = memory.states.data(),
               .slot_floats = SlotFloats(in.shape),
               .workspace = memory.workspace.data()},
              nullptr);
    memory.out.Download();  // waits: what is on the device here goes away
  }

  // One sequence in slices of these lengths, whose states are in two slots in turn.
  static std::vector<uint8_t> InSlices(const DeltaInputs& in, DType dtype,
                                       const std::vector<int64_t>& lengths) {
    Memory memory(in, dtype);
    int64_t row = 0;
    for (size_t i = 0; i < lengths.size(); ++i) {
      const auto to = static_cast<int32_t>(i % 2);
      Run(memory,
          {{.num_rows = lengths[i],
            .slot = i == 0 ? -1 : 1 - to,
            .writes = {{static_cast<int32_t>(lengths[i]), to}}}},
          row);
      row += lengths[i];
    }
    return memory.out.Download();
  }

  std::mt19937 random_{7};
};

TEST_F(DeltaRuleTest, MatchesTheRecurrence) {
  for (const DeltaShape& shape : kShapes) {
    for (const DType dtype : kDTypes) {
      const DeltaInputs in = MakeInputs(shape, 21, dtype);
      ExpectClose(Decode(dtype, InSlices(in, dtype, {21})), reference::DeltaRule(in),
                  2 * Epsilon(dtype) + 2e-4);
    }
  }
}

TEST_F(DeltaRuleTest, BitsDoNotDependOnSlices) {
  const DeltaInputs in = MakeInputs(kShapes[1], 21, DType::kBFloat16);
  const auto whole = InSlices(in, DType::kBFloat16, {21});
  for (const auto& lengths :
       std::vector<std::vector<int64_t>>{{1, 20}, {8, 8, 5}, {2, 1, 1, 17}, {9, 12}}) {
    EXPECT_EQ(InSlices(in, DType::kBFloat16, lengths), whole) << lengths.size();
  }
}

TEST_F(DeltaRuleTest, SequencesOfALaunchAreIndependent) {
  const DeltaInputs in = MakeInputs(kShapes[1], 21, DType::kFloat16);
  const std::vector<Slice> slices = {{.num_rows = 3, .writes = {{3, 0}}},
                                     {.num_rows = 10, .writes = {{10, 1}}},
                                     {.num_rows = 1, .writes = {{1, 2}}},
                                     {.num_rows = 7, .writes = {{7, 3}}}};
  Memory together(in, DType::kFloat16);
  Run(together, slices);
  Run(together, slices);  // a repeated launch gives the same
  const std::vector<uint8_t> all = together.out.Download();
  const auto row_bytes = static_cast<ptrdiff_t>(in.shape.values() * DTypeSize(DType::kFloat16));
  int64_t row = 0;
  for (const Slice& slice : slices) {
    const DeltaInputs rows_alone = in.WithRowsAlone(row, slice.num_rows);
    Memory alone(rows_alone, DType::kFloat16);
    Run(alone, {slice}, row);
    const std::vector<uint8_t> out = alone.out.Download();
    const auto begin = row * row_bytes, end = begin + slice.num_rows * row_bytes;
    EXPECT_TRUE(std::equal(all.begin() + begin, all.begin() + end, out.begin() + begin)) << row;
    row += slice.num_rows;
  }
}

TEST_F(DeltaRuleTest, StatesWithinASliceAreThoseOfShorterOnes) {
  const DeltaInputs in = MakeInputs(kShapes[1], 21, DType::kFloat32);
  Memory whole(in, DType::kFloat32);
  Run(whole, {{.num_rows = 21, .writes = {{1, 0}, {9, 1}, {21, 2}}}});
  const std::vector<float> states = whole.states.Download();
  const int64_t floats = SlotFloats(in.shape);
  for (const DeltaWrite& write : {DeltaWrite{1, 0}, DeltaWrite{9, 1}, DeltaWrite{21, 2}}) {
    Memory part(in, DType::kFloat32);
    Run(part, {{.num_rows = write.num_rows, .writes = {{write.num_rows, 3}}}});
    const std::vector<float> want = part.states.Download();
    for (int64_t i = 0; i < DeltaStateFloats(in.shape); ++i) {
      ASSERT_EQ(states[write.slot * floats + i], want[3 * floats + i])
          << write.num_rows << " " << i;
    }
  }
}

TEST_F(DeltaRuleTest, GateIsASigmoid) {
  for (const DType dtype : kDTypes) {
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
          .n = kColumns},
         nullptr);
    reference::Matrix want = ToDouble(x);
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t i = 0; i < kColumns; ++i) {
        want[row * kLd + i] *= reference::Sigmoid(gate[row * kLdGate + i]);
      }
    }
    ExpectClose(Decode(dtype, device_x.Download()), want, 2 * Epsilon(dtype));
  }
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
