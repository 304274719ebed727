// Feeds a sequence to a kernel of layers with states.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/delta_rule.h"

namespace mlc_native::kernels {

// Calls fn(sequence) for slices of these lengths, which read and write two states in turn; returns
// the number of rows.
template <typename F>
int64_t RunInSlices(const std::vector<int64_t>& slices, int64_t state_floats, F fn) {
  const std::vector<float> unwritten(static_cast<size_t>(state_floats), std::nanf(""));
  std::vector<float> states[2] = {unwritten, unwritten};
  int64_t row = 0;
  for (size_t i = 0; i < slices.size(); ++i) {
    const DeltaWrite write{slices[i], states[i % 2].data()};
    fn(DeltaSequence{.row_begin = row,
                     .num_rows = slices[i],
                     .state = i == 0 ? nullptr : states[(i + 1) % 2].data(),
                     .writes = &write,
                     .num_writes = 1});
    row += slices[i];
  }
  return row;
}

}  // namespace mlc_native::kernels
