// Quantization of weights in groups. The result depends only on the values of the group and uses
// plain IEEE float arithmetic, so it is the same on every machine and ISA. Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "kernels/packed_format.h"
#include "mlc_native/detail/export.h"

namespace mlc_native::kernels {

// Values are scale * (code - 2^(bits - 1)).
template <int64_t kGroup>
struct QuantizedGroup {
  uint16_t scale;  // float16 bits; NaN when a value is not finite
  std::array<uint8_t, kGroup> codes;
};

inline constexpr int64_t kQ8Group = LayoutOf(WeightFormat::kQ8).group;
inline constexpr int64_t kShortQ8Group = LayoutOf(WeightFormat::kQ8Group32).group;
inline constexpr int64_t kQ6Group = LayoutOf(WeightFormat::kQ6).group;
inline constexpr int64_t kShortQ6Group = LayoutOf(WeightFormat::kQ6Group16).group;
inline constexpr int64_t kQ4Group = LayoutOf(WeightFormat::kQ4).group;
inline constexpr int64_t kQ2Group = LayoutOf(WeightFormat::kQ2).group;
inline constexpr int64_t kShortQ4Group = LayoutOf(WeightFormat::kQ4Group16).group;

// Maps the largest magnitude to code 1 or 255. The scale is rounded up, so no value is clipped.
MLC_NATIVE_PRIVATE_API QuantizedGroup<kQ8Group> QuantizeQ8(
    const std::array<float, kQ8Group>& values);
MLC_NATIVE_PRIVATE_API QuantizedGroup<kShortQ8Group> QuantizeQ8(
    const std::array<float, kShortQ8Group>& values);

// The following try a few scales and take the one with the least squared error. Several groups per
// call are faster.
using Q4Values = std::array<float, kQ4Group>;
MLC_NATIVE_PRIVATE_API QuantizedGroup<kQ4Group> QuantizeQ4(const Q4Values& values);
MLC_NATIVE_PRIVATE_API void QuantizeQ4(std::span<const Q4Values> groups,
                                       QuantizedGroup<kQ4Group>* out);
using ShortQ4Values = std::array<float, kShortQ4Group>;
MLC_NATIVE_PRIVATE_API void QuantizeQ4(std::span<const ShortQ4Values> groups,
                                       QuantizedGroup<kShortQ4Group>* out);
using Q6Values = std::array<float, kQ6Group>;
MLC_NATIVE_PRIVATE_API QuantizedGroup<kQ6Group> QuantizeQ6(const Q6Values& values);
MLC_NATIVE_PRIVATE_API void QuantizeQ6(std::span<const Q6Values> groups,
                                       QuantizedGroup<kQ6Group>* out);
using ShortQ6Values = std::array<float, kShortQ6Group>;
MLC_NATIVE_PRIVATE_API void QuantizeQ6(std::span<const ShortQ6Values> groups,
                                       QuantizedGroup<kShortQ6Group>* out);

// Values are scale * (code - num_codes / 2 + shift). The lowest and the highest value have the
// first and the last code, to the rounding of the scale and the shift.
template <int64_t kGroup>
struct AffineQuantizedGroup : QuantizedGroup<kGroup> {
  uint16_t shift;  // float16 bits
};
template <int64_t kGroup>
AffineQuantizedGroup<kGroup> QuantizeAffine(const std::array<float, kGroup>& values, int num_codes);

// Values are scale * table[code]. The largest magnitude has the code of that of the table. Nothing
// but checks of kernels makes such weights of floats.
template <int64_t kGroup>
QuantizedGroup<kGroup> QuantizeToTable(const std::array<float, kGroup>& values,
                                       const int8_t* table);

// Values are scale * (code - 2), with codes of 1 to 3: the largest magnitude is the scale. Ternary
// values stay as they are, to the rounding of the scale.
MLC_NATIVE_PRIVATE_API QuantizedGroup<kQ2Group> QuantizeTernary(
    const std::array<float, kQ2Group>& values);

// The group of MXFP4 whose scale is the power of two that OCP's specification gives it: the largest
// magnitude has the largest exponent of the 4 bits, and is cut if it is above 6. Values that are
// MXFP4 stay as they are. `scale` has bfloat16 bits and is half of the format's; `codes` are
// indices into kMxfp4Doubled.
inline constexpr int64_t kMxfp4Group = LayoutOf(WeightFormat::kMxfp4).group;
using Mxfp4Values = std::array<float, kMxfp4Group>;
MLC_NATIVE_PRIVATE_API QuantizedGroup<kMxfp4Group> QuantizeMxfp4(const Mxfp4Values& values);

}  // namespace mlc_native::kernels
