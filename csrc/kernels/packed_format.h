// The layout of a packed weight. A panel holds `width` output columns (two vectors of the ISA), as
// consecutive groups of k; the last group is padded with zeros. Within a group, the elements of a
// column are cut into chunks, and the chunks of all columns are adjacent:
//
//              k     [n] is an array of n
//   float32    32    [32][width] float
//   bfloat16   32    [16][width][2] bfloat16: chunks of two k, the operands of vdpbf16ps. Other
//                    ISAs get both k from one load by a shift and a mask.
//   float16    32    [32][width] float16
//   q8         64    [16][width][4] codes of 8 bits, then [width] float16 scales
//   q8 of 32   32    [8][width][4] codes of 8 bits, then [width] float16 scales
//   q4         32    [4][width][4] bytes, then [width] float16 scales. In byte j of step s, the low
//                    4 bits are the code of k = 8 s + j and the high 4 bits that of k = 8 s + 4 +
//                    j.
//   q6         64    [4][3][width][4] bytes, then [width] float16 scales. In step s, the low 6 bits
//                    of byte j of chunk c are the code of k = 16 s + 4 c + j, and the high 2 bits
//                    are the bits 2 c and 2 c + 1 of the code of k = 16 s + 12 + j.
//   mxfp4      32    as q4, with bfloat16 scales. A code is an index into kMxfp4Doubled, and the
//                    scale is half of the format's, so that values are integers times scales.
//   q4 of 16   16    as half of a group of q4, then [width] float16 scales, and shifts if it is
//                    affine
//   iq4, iq3   32    as q4. A code is an index into kIq4Values or kIq3Values.
//   iq2        16    as q4 of 16. A code is an index into kIq2Values.
//   fp4 of 16  16    as q4 of 16. A code is an index into kMxfp4Doubled, and the scale is half of
//                    the format's.
//   q2         64    [4][width][4] bytes, then [width] float16 scales. In step s, the bits 2 i and
//                    2 i + 1 of byte j are the code of k = 16 s + 4 i + j.
//   q2 affine  16    as a step of q2, then [width] float16 scales, then [width] float16 shifts
//   q4 affine  32    as q4, with [width] float16 shifts behind the scales
//   q6 affine  32    as two steps of q6, then [width] float16 scales, then [width] float16 shifts
//   q6 of 16   16    as a step of q6, then [width] float16 scales, and shifts if it is affine
//   fp8        64    [32][width][2] elements of 8 bits, then [width] float scales
//
// A q8, q6, q4 or q2 weight is scale * (code - offset), or scale * (code - offset + shift) where
// there are shifts, with offset 128, 32, 8 or 2. The dot product
// instructions multiply unsigned codes by signed activations; the offset contributes -offset * (sum
// of the group's activations), which is the same for all columns. Panels start at multiples of
// kPackedAlignment.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"

namespace mlc_native::kernels {

// Must be raised with every change of the bytes that PackLinear writes, including its rounding.
inline constexpr int kPackedVersion = 1;

// Twice the values of MXFP4's and NVFP4's codes.
inline constexpr int8_t kMxfp4Doubled[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                             0, -1, -2, -3, -4, -6, -8, -12};

// The values of IQ4's codes.
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

// The values of IQ3_XXS.
inline constexpr int8_t kIq3Values[16] = {-62, -52, -44, -36, -28, -20, -12, -4,
                                          4,   12,  20,  28,  36,  44,  52,  62};

// The values of IQ2, and 8 times those of IQ1_M. The last ones are not used.
inline constexpr int8_t kIq2Values[16] = {-43, -25, -9, -8, -7, -1, 0, 1, 7, 8, 9, 25, 43};

// The values of a format whose codes are indices, or null. The codes that it is packed of are the
// values, except with kMxfp4.
constexpr const int8_t* TableOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kMxfp4:
    case WeightFormat::kFp4Group16:
      return kMxfp4Doubled;
    case WeightFormat::kIq4:
      return kIq4Values;
    case WeightFormat::kIq3:
      return kIq3Values;
    case WeightFormat::kIq2Group16:
      return kIq2Values;
    default:
      return nullptr;
  }
}

// Index of one of them.
constexpr uint8_t IndexIn(const int8_t* values, int8_t value) {
  uint8_t index = 0;
  while (index < 15 && values[index] != value) ++index;
  return index;
}

struct PanelLayout {
  int64_t group;        // k
  int64_t code_bits;    // of one element
  int64_t chunk_bytes;  // of one column
  int64_t scale_bytes;  // of one column's group
  int64_t scales = 1;   // numbers in these bytes, the second one a shift; arrays [width] of each

  constexpr int64_t CodeBytes(int64_t width) const { return width * group * code_bits / 8; }
  constexpr int64_t GroupBytes(int64_t width) const {
    return CodeBytes(width) + width * scale_bytes;
  }
  constexpr int64_t Groups(int64_t k) const { return (k + group - 1) / group; }
  constexpr int64_t PanelBytes(int64_t k, int64_t width) const {
    const int64_t bytes = Groups(k) * GroupBytes(width);
    return (bytes + kPackedAlignment - 1) / kPackedAlignment * kPackedAlignment;
  }
};

inline constexpr WeightFormat kWeightFormats[] = {
    WeightFormat::kFloat32,    WeightFormat::kBFloat16,
    WeightFormat::kFloat16,    WeightFormat::kQ8,
    WeightFormat::kQ4,         WeightFormat::kMxfp4,
    WeightFormat::kQ8Group32,  WeightFormat::kFloat8,
    WeightFormat::kQ6,         WeightFormat::kQ4Affine,
    WeightFormat::kQ6Affine,   WeightFormat::kQ6Group16,
    WeightFormat::kQ4Group16,  WeightFormat::kQ6AffineGroup16,
    WeightFormat::kIq4,        WeightFormat::kQ4AffineGroup16,
    WeightFormat::kFp4Group16, WeightFormat::kQ2AffineGroup16,
    WeightFormat::kIq3,        WeightFormat::kIq2Group16,
    WeightFormat::kQ2};

constexpr PanelLayout LayoutOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kFloat32:
      break;
    case WeightFormat::kBFloat16:
      return {.group = 32, .code_bits = 16, .chunk_bytes = 4, .scale_bytes = 0};
    case WeightFormat::kFloat16:
      return {.group = 32, .code_bits = 16, .chunk_bytes = 2, .scale_bytes = 0};
    case WeightFormat::kQ8:
      return {.group = 64, .code_bits = 8, .chunk_bytes = 4, .scale_bytes = 2};
    case WeightFormat::kQ8Group32:
      return {.group = 32, .code_bits = 8, .chunk_bytes = 4, .scale_bytes = 2};
    case WeightFormat::kFloat8:
      return {.group = 64, .code_bits = 8, .chunk_bytes = 2, .scale_bytes = 4};
    case WeightFormat::kQ6:
      return {.group = 64, .code_bits = 6, .chunk_bytes = 4, .scale_bytes = 2};
    case WeightFormat::kQ6Group16:
      return {.group = 16, .code_bits = 6, .chunk_bytes = 4, .scale_bytes = 2};
    case WeightFormat::kQ4:
    case WeightFormat::kMxfp4:
    case WeightFormat::kIq4:
    case WeightFormat::kIq3:
      return {.group = 32, .code_bits = 4, .chunk_bytes = 4, .scale_bytes = 2};
    case WeightFormat::kQ4Group16:
    case WeightFormat::kFp4Group16:
    case WeightFormat::kIq2Group16:
      return {.group = 16, .code_bits = 4, .chunk_bytes = 4, .scale_bytes = 2};
    case WeightFormat::kQ4AffineGroup16:
      return {.group = 16, .code_bits = 4, .chunk_bytes = 4, .scale_bytes = 4, .scales = 2};
    case WeightFormat::kQ2:
      return {.group = 64, .code_bits = 2, .chunk_bytes = 4, .scale_bytes = 2};
    case WeightFormat::kQ2AffineGroup16:
      return {.group = 16, .code_bits = 2, .chunk_bytes = 4, .scale_bytes = 4, .scales = 2};
    case WeightFormat::kQ4Affine:
      return {.group = 32, .code_bits = 4, .chunk_bytes = 4, .scale_bytes = 4, .scales = 2};
    case WeightFormat::kQ6Affine:
      return {.group = 32, .code_bits = 6, .chunk_bytes = 4, .scale_bytes = 4, .scales = 2};
    case WeightFormat::kQ6AffineGroup16:
      return {.group = 16, .code_bits = 6, .chunk_bytes = 4, .scale_bytes = 4, .scales = 2};
  }
  return {.group = 32, .code_bits = 32, .chunk_bytes = 4, .scale_bytes = 0};
}

// Whether products are summed in integers, for which inputs are rounded to 8 bits.
constexpr bool SumsIntegers(WeightFormat format) {
  return LayoutOf(format).scale_bytes > 0 && format != WeightFormat::kFloat8;
}

}  // namespace mlc_native::kernels
