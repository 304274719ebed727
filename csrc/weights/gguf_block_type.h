// What the types of GGUF's blocks have in common: how values, codes and scales are read from a
// block. Included by the files with the tables of types. Pure; any thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "kernels/formats.h"
#include "mlc_native/detail/basic_types.h"
#include "support/half.h"

namespace mlc_native::gguf {

inline constexpr int kGroup = 32;        // elements of a block, or of a part of a larger one
inline constexpr int kShortGroup = 16;   // elements of a part of Q2_K, Q3_K and Q6_K
inline constexpr int kSuperBlock = 256;  // elements of a block of the K types and of IQ4_XS
inline constexpr int kParts = kSuperBlock / kGroup;
inline constexpr int kShortParts = kSuperBlock / kShortGroup;

inline uint16_t LoadHalf(const uint8_t* from) {
  uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return bits;
}
inline float LoadScale(const uint8_t* from) { return Float16ToFloat(LoadHalf(from)); }

// Of 128 elements, four quarters share the bytes of the codes.
inline int TwoBits(const uint8_t* packed, int at) {
  return packed[at / 128 * kGroup + at % kGroup] >> at % 128 / kGroup * 2 & 3;
}

// How `elements` weights lie in `bytes` bytes.
struct BlockType {
  std::string_view name;
  int64_t elements;
  int64_t bytes;
  DType precision;
  void (*decode)(const uint8_t* block, float* out);
  // As CodeForm and WeightSource::ReadCodes.
  int bits;
  int64_t group;
  void (*read)(const uint8_t* block, int8_t* codes, uint16_t* scales);
  bool is_mxfp4 = false;
  std::optional<kernels::WeightFormat> table{};
  bool is_affine = false;
};

// Parts of a block with one scale each: kCodeOf gives the code of an element, and kScaleOf
// the scale of a part.
template <int kPart, int8_t (*kCodeOf)(const uint8_t*, int), float (*kScaleOf)(const uint8_t*, int),
          int kElements>
struct ScaledParts {
  static void Decode(const uint8_t* block, float* out) {
    for (int at = 0; at < kElements; ++at) {
      out[at] = kScaleOf(block, at / kPart) * static_cast<float>(kCodeOf(block, at));
    }
  }
  // With scales in float16.
  static void Read(const uint8_t* block, int8_t* codes, uint16_t* scales) {
    for (int at = 0; at < kElements; ++at) codes[at] = kCodeOf(block, at);
    for (int part = 0; part < kElements / kPart; ++part) {
      scales[part] = FloatToFloat16(kScaleOf(block, part));
    }
  }
};

template <int kPart, int8_t (*kCodeOf)(const uint8_t*, int), float (*kScaleOf)(const uint8_t*, int),
          int kElements = kSuperBlock>
constexpr BlockType InParts(std::string_view name, int64_t bytes, int bits,
                            DType precision = DType::kFloat16) {
  using Parts = ScaledParts<kPart, kCodeOf, kScaleOf, kElements>;
  return {.name = name,
          .elements = kElements,
          .bytes = bytes,
          .precision = precision,
          .decode = Parts::Decode,
          .bits = bits,
          .group = kPart,
          .read = Parts::Read};
}

}  // namespace mlc_native::gguf
