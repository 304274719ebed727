// Products of 8 bits by the matrix unit AMX-INT8, and of bfloat16 by AMX-BF16. A thread sets the
// shapes of its tiles when it makes one of the classes, and gives the tiles back when that ends.
// Where a processor lacks AMX, the tests run these instructions in an emulator, which expects those
// of a statement to follow each other.
#pragma once

#include <cstdint>

namespace mlc_native::kernels {
namespace {

constexpr int kUnitRows = 16;  // of a tile

// What ldtilecfg reads.
struct TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
static_assert(sizeof(TileShapes) == 64);

// The tiles of this thread.
class Tiles {
 public:
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

 protected:
  explicit Tiles(const TileShapes& shapes) { asm volatile("ldtilecfg %0" : : "m"(shapes)); }
  ~Tiles() { asm volatile("tilerelease"); }
};

// Multiplies groups of kGroup (16, 32 or 64) k in 8 bits.
template <int kGroup>
class CodeTiles : Tiles {
 public:
  static constexpr int kRows = kUnitRows;

  // Tiles 0 and 1 are sums, 2 inputs, 3 and 4 codes.
  CodeTiles()
      : Tiles({.row_bytes = {64, 64, kGroup, 64, 64},
               .rows = {kUnitRows, kUnitRows, kUnitRows, kGroup / 4, kGroup / 4}}) {}

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
};

// Sums products of bfloat16 for up to two tiles of rows and 32 columns. tdpbf16ps adds those of the
// even k, from 0 on, and those of the odd k, then both to each other and to the sum. It rounds each
// result to nearest even and treats subnormals as zeros. A row's sums depend on no other row.
class PairTiles : Tiles {
 public:
  static constexpr int kRowsOfTile = kUnitRows;
  static constexpr int kRows = 2 * kUnitRows;
  static constexpr int kPairs = 16;  // of k, that one call of Add takes

  // Tiles 0 and 1 are the sums of the first rows, 2 and 3 those of the second ones, 4 and 5 inputs,
  // 6 and 7 weights.
  PairTiles()
      : Tiles({.row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
               .rows = {kUnitRows, kUnitRows, kUnitRows, kUnitRows, kUnitRows, kUnitRows, kPairs,
                        kPairs}}) {}

  // Starts with sums[rows][32], or with 0 if that is null.
  template <int kTiles>
  static void Start(const float* sums) {
    if (sums == nullptr) {
      asm volatile(
          "tilezero %tmm0\n\t"
          "tilezero %tmm1");
      if constexpr (kTiles > 1) {
        asm volatile(
            "tilezero %tmm2\n\t"
            "tilezero %tmm3");
      }
      return;
    }
    asm volatile(
        "tileloadd (%0, %1), %%tmm0\n\t"
        "tileloadd 64(%0, %1), %%tmm1"
        :
        : "r"(sums), "r"(kRowBytes)
        : "memory");
    if constexpr (kTiles > 1) {
      asm volatile(
          "tileloadd (%0, %1), %%tmm2\n\t"
          "tileloadd 64(%0, %1), %%tmm3"
          :
          : "r"(sums + kUnitRows * kColumns), "r"(kRowBytes)
          : "memory");
    }
  }

  // Adds the products of the inputs of kTiles * kUnitRows rows, which are `row_bytes` apart, with
  // weights[kPairs][32 columns][2].
  template <int kTiles>
  static void Add(const void* inputs, int64_t row_bytes, const void* weights) {
    if constexpr (kTiles == 1) {
      asm volatile(
          "tileloadd (%0, %1), %%tmm4\n\t"
          "tileloadd (%2, %3), %%tmm6\n\t"
          "tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n\t"
          "tileloadd 64(%2, %3), %%tmm7\n\t"
          "tdpbf16ps %%tmm7, %%tmm4, %%tmm1"
          :
          : "r"(inputs), "r"(row_bytes), "r"(weights), "r"(kRowBytes)
          : "memory");
    } else {
      asm volatile(
          "tileloadd (%0, %2), %%tmm4\n\t"
          "tileloadd (%3, %4), %%tmm6\n\t"
          "tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n\t"
          "tileloadd 64(%3, %4), %%tmm7\n\t"
          "tdpbf16ps %%tmm7, %%tmm4, %%tmm1\n\t"
          "tileloadd (%1, %2), %%tmm5\n\t"
          "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n\t"
          "tdpbf16ps %%tmm7, %%tmm5, %%tmm3"
          :
          : "r"(inputs), "r"(static_cast<const char*>(inputs) + kUnitRows * row_bytes),
            "r"(row_bytes), "r"(weights), "r"(kRowBytes)
          : "memory");
    }
  }

  // Writes the sums of kTiles * kUnitRows rows, which are `row_bytes` apart.
  template <int kTiles>
  static void Store(float* sums, int64_t row_bytes) {
    asm volatile(
        "tilestored %%tmm0, (%0, %1)\n\t"
        "tilestored %%tmm1, 64(%0, %1)"
        :
        : "r"(sums), "r"(row_bytes)
        : "memory");
    if constexpr (kTiles > 1) {
      asm volatile(
          "tilestored %%tmm2, (%0, %1)\n\t"
          "tilestored %%tmm3, 64(%0, %1)"
          :
          : "r"(reinterpret_cast<char*>(sums) + kUnitRows * row_bytes), "r"(row_bytes)
          : "memory");
    }
  }

 private:
  static constexpr int kColumns = 32;
  static constexpr int64_t kRowBytes = kColumns * 4;  // of sums, and of pairs of weights
};

}  // namespace
}  // namespace mlc_native::kernels
