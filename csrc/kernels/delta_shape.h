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
  bool decays_channels = false;  // each channel of a value head's keys has a decay of its own

  constexpr int64_t keys() const { return key_heads * key_dim; }
  constexpr int64_t values() const { return value_heads * value_dim; }
  constexpr int64_t channels() const { return 2 * keys() + values(); }
  // Of a row, of all value heads: decays, and numbers that say how much they write and how fast
  // they forget, without those of channels.
  constexpr int64_t decays() const { return value_heads * (decays_channels ? key_dim : 1); }
  constexpr int64_t gates() const { return value_heads * (decays_channels ? 1 : 2); }
};

}  // namespace mlc_native::kernels
