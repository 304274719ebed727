// What csrc/kernels/cpu/amx_tiles.h computes, on any processor. As there, a thread without a
// TileUnit has no tiles: Multiply ends the process.
#pragma once

#include <cstdint>

namespace mlc_native::kernels {
namespace {

// The group that this thread's tiles have the shape of; 0: no tiles.
inline thread_local int shape_of_tiles = 0;

template <int kGroup>
class TileUnit {
 public:
  static constexpr int kRows = 16;

  TileUnit() { shape_of_tiles = kGroup; }
  ~TileUnit() { shape_of_tiles = 0; }
  TileUnit(const TileUnit&) = delete;
  TileUnit& operator=(const TileUnit&) = delete;

  static void Multiply(const int8_t* inputs, int64_t row_bytes, const uint8_t* codes,
                       int32_t* sums) {
    if (shape_of_tiles != kGroup) __builtin_trap();
    for (int row = 0; row < kRows; ++row) {
      for (int column = 0; column < 32; ++column) {
        int32_t sum = 0;
        for (int k = 0; k < kGroup; ++k) {
          sum += inputs[row * row_bytes + k] * codes[(k / 4 * 32 + column) * 4 + k % 4];
        }
        sums[row * 32 + column] = sum;
      }
    }
  }
};

}  // namespace
}  // namespace mlc_native::kernels
