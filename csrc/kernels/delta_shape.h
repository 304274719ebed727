// The sizes of a layer with linear attention, for the kernels of every device.
#pragma once

#include <cstdint>

namespace mlc_native::kernels {

struct DeltaShape {
  int64_t key_heads = 0;
  int64_t value_heads = 0;  // a multiple: so many read the same q and k
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  int64_t conv_width = 0;

  constexpr int64_t keys() const { return key_heads * key_dim; }
  constexpr int64_t values() const { return value_heads * value_dim; }
  constexpr int64_t channels() const { return 2 * keys() + values(); }
};

}  // namespace mlc_native::kernels
