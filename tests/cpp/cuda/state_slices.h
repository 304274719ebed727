// Slices of sequences for kernels of layers with states, and what must not change a bit of theirs.
//
// `Kernel` has the inputs `in` of a test and their memory on the device. Kernel::Run launches it
// for slices that begin at a row of the inputs, and leaves out and states.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cuda/test_util.h"
#include "kernels/cuda/states.h"

namespace mlc_native::kernels::cuda {

inline constexpr int64_t kNumTestSlots = 4;

// What the rows of a slice read and write.
struct TestSlice {
  int64_t num_rows = 0;
  int32_t slot = -1;
  std::vector<DeltaWrite> writes{};
};

// Slices, one behind the other, as a launch has them. Some places for slices and rows are not used.
struct DeviceSlices {
  int64_t m = 0;
  DeviceArray<DeltaSlice> slices;
  DeviceArray<DeltaWrite> writes;
  DeviceArray<int32_t> slice_of_row;

  // At most `most_rows` rows.
  static DeviceSlices Of(const std::vector<TestSlice>& slices, int64_t most_rows) {
    std::vector<DeltaSlice> of_rows;
    std::vector<DeltaWrite> writes;
    std::vector<int32_t> slice_of_row;
    for (const TestSlice& slice : slices) {
      const auto index = static_cast<int32_t>(of_rows.size());
      of_rows.push_back({.row_begin = static_cast<int32_t>(slice_of_row.size()),
                         .num_rows = static_cast<int32_t>(slice.num_rows),
                         .slot = slice.slot,
                         .first_write = static_cast<int32_t>(writes.size()),
                         .num_writes = static_cast<int32_t>(slice.writes.size())});
      writes.insert(writes.end(), slice.writes.begin(), slice.writes.end());
      slice_of_row.insert(slice_of_row.end(), static_cast<size_t>(slice.num_rows), index);
    }
    const int64_t m = std::min<int64_t>(std::ssize(slice_of_row) + 2, most_rows);
    slice_of_row.resize(static_cast<size_t>(m), -1);
    of_rows.resize(static_cast<size_t>(m));
    return {m, DeviceArray<DeltaSlice>(of_rows), DeviceArray<DeltaWrite>(writes),
            DeviceArray<int32_t>(slice_of_row)};
  }
};

template <typename Kernel>
void RunSlices(Kernel& kernel, const std::vector<TestSlice>& slices, int64_t first = 0) {
  const DeviceSlices on_device = DeviceSlices::Of(slices, kernel.in.rows - first);
  kernel.Run(on_device, first);
  kernel.out.Download();  // waits: what is on the device here goes away
}

// One sequence in slices of these lengths, whose states are in two slots in turn.
template <typename Kernel, typename Inputs>
std::vector<uint8_t> InSlices(const Inputs& in, DType dtype, const std::vector<int64_t>& lengths) {
  Kernel kernel(in, dtype);
  int64_t row = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const auto to = static_cast<int32_t>(i % 2);
    RunSlices(kernel,
              {{.num_rows = lengths[i],
                .slot = i == 0 ? -1 : 1 - to,
                .writes = {{static_cast<int32_t>(lengths[i]), to}}}},
              row);
    row += lengths[i];
  }
  return kernel.out.Download();
}

// Requires, as what follows: 21 rows.
template <typename Kernel, typename Inputs>
void CheckThatBitsDoNotDependOnSlices(const Inputs& in, DType dtype) {
  const auto whole = InSlices<Kernel>(in, dtype, {21});
  for (const auto& lengths :
       std::vector<std::vector<int64_t>>{{1, 20}, {8, 8, 5}, {2, 1, 1, 17}, {9, 12}}) {
    EXPECT_EQ(InSlices<Kernel>(in, dtype, lengths), whole) << lengths.size();
  }
}

template <typename Kernel, typename Inputs>
void CheckThatSequencesAreIndependent(const Inputs& in, DType dtype) {
  const std::vector<TestSlice> slices = {{.num_rows = 3, .writes = {{3, 0}}},
                                         {.num_rows = 10, .writes = {{10, 1}}},
                                         {.num_rows = 1, .writes = {{1, 2}}},
                                         {.num_rows = 7, .writes = {{7, 3}}}};
  Kernel together(in, dtype);
  RunSlices(together, slices);
  RunSlices(together, slices);  // a repeated launch gives the same
  const std::vector<uint8_t> all = together.out.Download();
  const auto row_bytes = std::ssize(all) / in.rows;
  int64_t row = 0;
  for (const TestSlice& slice : slices) {
    const Inputs rows_alone = in.WithRowsAlone(row, slice.num_rows);
    Kernel alone(rows_alone, dtype);
    RunSlices(alone, {slice}, row);
    const std::vector<uint8_t> out = alone.out.Download();
    const auto begin = row * row_bytes, end = begin + slice.num_rows * row_bytes;
    EXPECT_TRUE(std::equal(all.begin() + begin, all.begin() + end, out.begin() + begin)) << row;
    row += slice.num_rows;
  }
}

// States within a slice are those that shorter slices leave.
template <typename Kernel, typename Inputs>
void CheckStatesWithinASlice(const Inputs& in) {
  Kernel whole(in, DType::kFloat32);
  const std::vector<DeltaWrite> writes = {{1, 0}, {9, 1}, {21, 2}};
  RunSlices(whole, {{.num_rows = 21, .writes = writes}});
  const std::vector<float> states = whole.states.Download();
  for (const DeltaWrite& write : writes) {
    Kernel part(in, DType::kFloat32);
    RunSlices(part, {{.num_rows = write.num_rows, .writes = {{write.num_rows, 3}}}});
    const std::vector<float> want = part.states.Download();
    for (int64_t i = 0; i < whole.state_floats(); ++i) {
      ASSERT_EQ(states[write.slot * whole.slot_floats() + i], want[3 * whole.slot_floats() + i])
          << write.num_rows << " " << i;
    }
  }
}

// The floats of inputs as the type has them.
inline void RoundTo(DType dtype, std::vector<float>* values) {
  *values = Decode(dtype, Encode(dtype, *values));
}

}  // namespace mlc_native::kernels::cuda
