// Products of 8 bits by the matrix unit AMX-INT8. A thread sets the shapes of its tiles when it
// makes a TileUnit, and gives the tiles back when that ends. The tests have a second file of this
// name, which computes the same on any processor.
#pragma once

#include <cstdint>

namespace mlc_native::kernels {
namespace {

// Multiplies groups of kGroup (16, 32 or 64) k.
template <int kGroup>
class TileUnit {
 public:
  static constexpr int kRows = 16;

  TileUnit() {
    // Tiles 0 and 1 are sums, 2 inputs, 3 and 4 codes.
    const Shapes shapes{.row_bytes = {64, 64, kGroup, 64, 64},
                        .rows = {kRows, kRows, kRows, kGroup / 4, kGroup / 4}};
    asm volatile("ldtilecfg %0" : : "m"(shapes));
  }
  ~TileUnit() { asm volatile("tilerelease"); }
  TileUnit(const TileUnit&) = delete;
  TileUnit& operator=(const TileUnit&) = delete;

  // Sets sums[kRows][32] to the products of the inputs of kRows rows, which are `row_bytes`
  // apart, with codes[kGroup / 4][32 columns][4].
  static void Multiply(const int8_t* inputs, int64_t row_bytes, const uint8_t* codes,
                       int32_t* sums) {
    asm volatile(
        "tilezero %%tmm0\n\t"
        "tilezero %%tmm1\n\t"
        "tileloadd (%0, %1), %%tmm2\n\t"
        "tileloadd (%2, %4), %%tmm3\n\t"
        "tdpbsud %%tmm3, %%tmm2, %%tmm0\n\t"
        "tileloadd 64(%2, %4), %%tmm4\n\t"
        "tdpbsud %%tmm4, %%tmm2, %%tmm1\n\t"
        "tilestored %%tmm0, (%3, %4)\n\t"
        "tilestored %%tmm1, 64(%3, %4)"
        :
        : "r"(inputs), "r"(row_bytes), "r"(codes), "r"(sums), "r"(int64_t{128})
        : "memory");
  }

 private:
  // What ldtilecfg reads.
  struct Shapes {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16];
    uint8_t rows[16];
  };
  static_assert(sizeof(Shapes) == 64);
};

}  // namespace
}  // namespace mlc_native::kernels
