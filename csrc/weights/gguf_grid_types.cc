#include "weights/gguf_grid_types.h"

#include <bit>
#include <cstddef>

#include "kernels/packed_format.h"
#include "support/float8.h"

namespace mlc_native::gguf {
namespace {

#include "weights/gguf_grids.inc"

int HalfAt(const uint8_t* from, ptrdiff_t i) { return LoadHalf(from + 2 * i); }
uint32_t WordAt(const uint8_t* from, ptrdiff_t i) {
  uint32_t word;
  std::memcpy(&word, from + 4 * i, sizeof word);
  return word;
}

int Nibble(const uint8_t* packed, int at) { return packed[at / 2] >> at % 2 * 4 & 15; }

// ---- Signs ----

// Bit i of a byte says whether element i of 8 is negative.
int8_t Signed(int magnitude, uint32_t signs, int i) {
  return static_cast<int8_t>((signs >> i & 1) == 1 ? -magnitude : magnitude);
}

// The same of 7 bits: an even number of the 8 are negative.
uint32_t EvenSigns(uint32_t seven) {
  return seven | static_cast<uint32_t>(std::popcount(seven) % 2) << 7;
}

// ---- IQ2: grids of 8 numbers of three, and a scale of 4 bits for 16 or 32 elements ----

int MagnitudeOfIq2(uint16_t entry, int i) {
  constexpr int kMagnitudes[4] = {8, 25, 43};
  return kMagnitudes[entry >> 2 * i & 3];
}
float ScaleOfIq2(const uint8_t* block, uint32_t scale) {
  return LoadScale(block) * (0.5f + static_cast<float>(scale)) * 0.25f;
}

// IQ2_XXS: for 32 elements, 4 indices of 8 bits, then 4 times 7 bits of signs and the scale.
int8_t CodeOfIq2Xxs(const uint8_t* block, int at) {
  const int part = at / kGroup, eight = at % kGroup / 8;
  const uint32_t signs = EvenSigns(WordAt(block + 2, 2 * part + 1) >> 7 * eight & 127);
  const uint8_t index = block[2 + 8 * part + eight];
  return Signed(MagnitudeOfIq2(kIq2XxsGrid[index], at % 8), signs, at % 8);
}
float ScaleOfIq2Xxs(const uint8_t* block, int part) {
  return ScaleOfIq2(block, WordAt(block + 2, 2 * part + 1) >> 28);
}

// IQ2_XS: for 8 elements, an index of 9 bits and 7 bits of signs; then the scales.
int8_t CodeOfIq2Xs(const uint8_t* block, int at) {
  const auto packed = static_cast<uint32_t>(HalfAt(block + 2, at / 8));
  return Signed(MagnitudeOfIq2(kIq2XsGrid[packed & 511], at % 8), EvenSigns(packed >> 9), at % 8);
}
float ScaleOfIq2Xs(const uint8_t* block, int part) {
  return ScaleOfIq2(block, static_cast<uint32_t>(Nibble(block + 66, part)));
}

// IQ2_S: the low 8 bits of the indices, the signs, the high 2 bits of the indices, the scales.
int8_t CodeOfIq2S(const uint8_t* block, int at) {
  const int high = block[66 + at / kGroup] >> at % kGroup / 8 * 2 & 3;
  const int index = block[2 + at / 8] | high << 8;
  return Signed(MagnitudeOfIq2(kIq2SGrid[index], at % 8), block[34 + at / 8], at % 8);
}
float ScaleOfIq2S(const uint8_t* block, int part) {
  return ScaleOfIq2(block, static_cast<uint32_t>(Nibble(block + 74, part)));
}

// ---- IQ3: grids of 4 numbers of eight, and a scale of 4 bits for 32 elements ----

// IQ3_XXS: the indices, then for 32 elements 4 times 7 bits of signs and the scale.
int8_t CodeOfIq3Xxs(const uint8_t* block, int at) {
  const int number = kIq3XxsGrid[block[2 + at / 4]] >> at % 4 * 3 & 7;
  const uint32_t word = WordAt(block + 66, at / kGroup);
  const uint32_t signs = EvenSigns(word >> 7 * (at % kGroup / 8) & 127);
  return Signed(kernels::kIq3Values[8 + number], signs, at % 8);
}
float ScaleOfIq3Xxs(const uint8_t* block, int part) {
  const uint32_t scale = WordAt(block + 66, part) >> 28;
  return LoadScale(block) * (0.5f + static_cast<float>(scale)) * 0.5f;
}

// IQ3_S: the low 8 bits of the indices, their ninth bits, the signs, the scales. The numbers are
// odd ones up to 15.
int8_t CodeOfIq3S(const uint8_t* block, int at) {
  const int high = block[66 + at / kGroup] >> at % kGroup / 4 & 1;
  const int number = kIq3SGrid[block[2 + at / 4] | high << 8] >> at % 4 * 3 & 7;
  return Signed(2 * number + 1, block[74 + at / 8], at % 8);
}
float ScaleOfIq3S(const uint8_t* block, int part) {
  return LoadScale(block) * static_cast<float>(1 + 2 * Nibble(block + 106, part));
}
// As codes that are half as large, with a shift of half of one.
void ReadIq3S(const uint8_t* block, int8_t* codes, uint16_t* scales) {
  for (int at = 0; at < kSuperBlock; ++at) {
    codes[at] = static_cast<int8_t>((CodeOfIq3S(block, at) - 1) / 2);
  }
  for (int part = 0; part < kParts; ++part, scales += 2) {
    scales[0] = FloatToFloat16(2 * ScaleOfIq3S(block, part));
    scales[1] = FloatToFloat16(0.5f);
  }
}

// ---- IQ1: a grid of 8 numbers of -1, 0 and 1, to which an eighth is added or not ----

int NumberOfIq1(int index, int i) { return (kIq1SGrid[index] >> 2 * i & 3) - 1; }

// IQ1_S: the low 8 bits of the indices, then for 32 elements 4 times the high 3 bits, the scale of
// 3 bits, and whether an eighth is subtracted.
int8_t CodeOfIq1S(const uint8_t* block, int at) {
  const int high = HalfAt(block + 34, at / kGroup) >> at % kGroup / 8 * 3 & 7;
  return static_cast<int8_t>(NumberOfIq1(block[2 + at / 8] | high << 8, at % 8));
}
struct PartOfIq1S {
  float scale, shift;

  PartOfIq1S(const uint8_t* block, int part) {
    const int packed = HalfAt(block + 34, part);
    scale = LoadScale(block) * static_cast<float>(2 * (packed >> 12 & 7) + 1);
    shift = packed >> 15 == 1 ? -0.125f : 0.125f;
  }
};
void DecodeIq1S(const uint8_t* block, float* out) {
  for (int at = 0; at < kSuperBlock; ++at) {
    const PartOfIq1S part(block, at / kGroup);
    out[at] = part.scale * (static_cast<float>(CodeOfIq1S(block, at)) + part.shift);
  }
}
void ReadIq1S(const uint8_t* block, int8_t* codes, uint16_t* scales) {
  for (int at = 0; at < kSuperBlock; ++at) codes[at] = CodeOfIq1S(block, at);
  for (int i = 0; i < kParts; ++i, scales += 2) {
    const PartOfIq1S part(block, i);
    scales[0] = FloatToFloat16(part.scale);
    scales[1] = FloatToFloat16(part.shift);
  }
}

// IQ1_M: the low 8 bits of the indices; for 8 elements the high 3 bits and whether an eighth is
// subtracted; and 4 numbers of 16 bits, which are 4 scales of 3 bits for 16 elements each and 4
// bits of the block's scale. Codes are 8 times the values.
int8_t CodeOfIq1M(const uint8_t* block, int at) {
  const int packed = Nibble(block + 32, at / 8);
  const int number = NumberOfIq1(block[at / 8] | (packed & 7) << 8, at % 8);
  return static_cast<int8_t>(8 * number + ((packed & 8) != 0 ? -1 : 1));
}
float ScaleOfIq1M(const uint8_t* block, int part) {
  const uint8_t* scales = block + 48;
  int bits = 0;
  for (int i = 0; i < 4; ++i) bits |= HalfAt(scales, i) >> 12 << 4 * i;
  const int scale = HalfAt(scales, part / 4) >> part % 4 * 3 & 7;
  return Float16ToFloat(static_cast<uint16_t>(bits)) * static_cast<float>(2 * scale + 1) * 0.125f;
}

// ---- TQ: -1, 0 and 1, and one scale ----

// TQ1_0: five numbers to a byte, or four to one of the last four bytes, as digits of base 3 of a
// fraction of 256.
int8_t NumberOfTq1(const uint8_t* block, int at) {
  constexpr int kPowers[5] = {1, 3, 9, 27, 81};
  int byte = 48 + (at - 240) % 4, digit = (at - 240) / 4;
  if (at < 160) {
    byte = at % 32, digit = at / 32;
  } else if (at < 240) {
    byte = 32 + (at - 160) % 16, digit = (at - 160) / 16;
  }
  const auto rest = static_cast<uint8_t>(block[byte] * kPowers[digit]);
  return static_cast<int8_t>((rest * 3 >> 8) - 1);
}
float ScaleOfTq1(const uint8_t* block, int) { return LoadScale(block + 52); }

// TQ2_0: 2 bits each. Those of a file are not 3, which would be 2.
int8_t NumberOfTq2(const uint8_t* block, int at) {
  return static_cast<int8_t>(TwoBits(block, at) - 1);
}
float ScaleOfTq2(const uint8_t* block, int) { return LoadScale(block + 64); }

// The scale is negative, so that codes are in [-2, 1].
template <int8_t (*kNumberOf)(const uint8_t*, int), float (*kScaleOf)(const uint8_t*, int)>
void ReadTq(const uint8_t* block, int8_t* codes, uint16_t* scale) {
  for (int at = 0; at < kSuperBlock; ++at) codes[at] = static_cast<int8_t>(-kNumberOf(block, at));
  *scale = FloatToFloat16(-kScaleOf(block, 0));
}

// ---- NVFP4: an E4M3 scale for 16 elements, and indices of kMxfp4Doubled ----

int8_t CodeOfNvfp4(const uint8_t* block, int at) {
  const int part = at / kShortGroup, i = at % kShortGroup;
  const uint8_t pair = block[4 + part * 8 + i % 8];
  return kernels::kMxfp4Doubled[i < 8 ? pair & 15 : pair >> 4];
}
// Half of the scale. The sign of E4M3 does not count, and what is no number is 0.
float ScaleOfNvfp4(const uint8_t* block, int part) {
  const auto bits = static_cast<uint8_t>(block[part] & 127);
  return bits == 127 ? 0 : 0.5f * Float8ToFloat(bits);
}

// ---- The types ----

constexpr BlockType WithTable(BlockType type, kernels::WeightFormat table) {
  type.table = table;
  return type;
}
constexpr BlockType WithRead(BlockType type, decltype(BlockType::read) read, bool is_affine) {
  type.read = read;
  type.is_affine = is_affine;
  return type;
}
constexpr auto kIq2 = kernels::WeightFormat::kIq2Group16;
constexpr BlockType kTypes[] = {
    WithTable(InParts<kGroup, CodeOfIq2Xxs, ScaleOfIq2Xxs>("IQ2_XXS", 66, 7), kIq2),
    WithTable(InParts<kShortGroup, CodeOfIq2Xs, ScaleOfIq2Xs>("IQ2_XS", 74, 7), kIq2),
    WithTable(InParts<kShortGroup, CodeOfIq2S, ScaleOfIq2S>("IQ2_S", 82, 7), kIq2),
    WithTable(InParts<kGroup, CodeOfIq3Xxs, ScaleOfIq3Xxs>("IQ3_XXS", 98, 7),
              kernels::WeightFormat::kIq3),
    WithRead(InParts<kGroup, CodeOfIq3S, ScaleOfIq3S>("IQ3_S", 110, 4), ReadIq3S, true),
    {.name = "IQ1_S",
     .elements = kSuperBlock,
     .bytes = 50,
     .precision = DType::kFloat16,
     .decode = DecodeIq1S,
     .bits = 2,
     .group = kGroup,
     .read = ReadIq1S,
     .is_affine = true},
    WithTable(InParts<kShortGroup, CodeOfIq1M, ScaleOfIq1M>("IQ1_M", 56, 5), kIq2),
    WithRead(InParts<kSuperBlock, NumberOfTq1, ScaleOfTq1>("TQ1_0", 54, 2),
             ReadTq<NumberOfTq1, ScaleOfTq1>, false),
    WithRead(InParts<kSuperBlock, NumberOfTq2, ScaleOfTq2>("TQ2_0", 66, 2),
             ReadTq<NumberOfTq2, ScaleOfTq2>, false),
    WithTable(InParts<kShortGroup, CodeOfNvfp4, ScaleOfNvfp4, 64>("NVFP4", 36, 5, DType::kBFloat16),
              kernels::WeightFormat::kFp4Group16),
};

}  // namespace

std::span<const BlockType> GridTypes() { return kTypes; }

}  // namespace mlc_native::gguf
