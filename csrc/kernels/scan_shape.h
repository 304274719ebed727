// The sizes of a layer with Mamba-1, for the kernels of every device.
#pragma once

#include <cstdint>

namespace mlc_native::kernels {

struct ScanShape {
  int64_t channels = 0;
  int64_t state_dim = 0;  // of each channel
  int64_t conv_width = 0;
};

}  // namespace mlc_native::kernels
