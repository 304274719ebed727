// Random weights for the tests of products, on the host in Gemv's layout and as floats.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "cuda/test_util.h"
#include "kernels/packed_format.h"
#include "support/float8.h"

namespace mlc_native::kernels::cuda {

// Those with scales, each of which every test of products covers.
inline std::vector<WeightFormat> QuantizedFormats(DType dtype) {
  std::vector<WeightFormat> formats{WeightFormat::kQ8, WeightFormat::kQ4, WeightFormat::kMxfp4};
  if (dtype == DType::kBFloat16) {
    formats.push_back(WeightFormat::kFloat8);
    formats.push_back(WeightFormat::kFp4Group16);
  }
  if (dtype == DType::kFloat16) {
    formats.push_back(WeightFormat::kQ8Group32);
    formats.push_back(WeightFormat::kQ4Affine);
  }
  return formats;
}

// The one of the type itself, and these.
inline std::vector<WeightFormat> FormatsWith(DType dtype) {
  std::vector<WeightFormat> formats = QuantizedFormats(dtype);
  formats.insert(formats.begin(), FormatOf(dtype));
  return formats;
}

struct GemvWeights {
  WeightFormat format;
  Floats dense;  // [n, k]
  std::vector<uint8_t> bytes;
};

class GemvWeightsTest : public CudaKernelTest {
 protected:
  GemvWeights RandomWeights(WeightFormat format, int64_t n, int64_t k) {
    if (LayoutOf(format).scale_bytes > 0) return Quantized(format, n, k);
    const auto dtype = format == WeightFormat::kFloat32    ? DType::kFloat32
                       : format == WeightFormat::kBFloat16 ? DType::kBFloat16
                                                           : DType::kFloat16;
    const Floats dense = Random(dtype, n * k);
    return {format, dense, Encode(dtype, dense)};
  }

  // Whether two functions write the same bits for m random rows of bfloat16, a product each.
  template <typename First, typename Second>
  bool HaveSameBits(WeightFormat format, int64_t n, int64_t k, int64_t m, const First& first,
                    const Second& second) {
    const DeviceBytes weight(RandomWeights(format, n, k).bytes);
    const DeviceBytes x(Encode(DType::kBFloat16, Random(DType::kBFloat16, m * k)));
    const DeviceArray<float> want(m * n), got(m * n);
    GemvArgs args{.format = format,
                  .weight = weight.data(),
                  .n = n,
                  .k = k,
                  .x = x.data(),
                  .ldx = k,
                  .m = m,
                  .y = want.data(),
                  .ldy = n,
                  .float_output = true};
    first(args);
    args.y = got.data();
    second(args);
    return got.Download() == want.Download();
  }

 private:
  GemvWeights Quantized(WeightFormat format, int64_t n, int64_t k) {
    const PanelLayout layout = LayoutOf(format);
    const int64_t groups = layout.Groups(k);
    const int64_t words = layout.scale_bytes / 2;
    std::vector<uint8_t> codes(n * k);
    std::vector<uint16_t> scales(n * groups * words);
    std::vector<float> values(n * groups);
    for (uint8_t& code : codes) code = RandomCode(format, layout);
    std::vector<float> shifts(n * groups);
    for (int64_t i = 0; i < n * groups; ++i) {
      values[i] = RandomScale(format, &scales[i * words]);
      if (layout.scales == 2) shifts[i] = RandomShift(&scales[i * words + 1]);
    }
    GemvWeights weights{format, Floats(n * k),
                        std::vector<uint8_t>(GemvWeightBytes(format, n, k), 0xff)};
    for (int64_t i = 0; i < n * k; ++i) {
      const int64_t group = i / k * groups + i % k / layout.group;
      weights.dense[i] = values[group] * (Value(format, codes[i]) + shifts[group]);
    }
    PackGemvWeights(format, n, k, {.codes = codes.data(), .scales = scales.data()},
                    weights.bytes.data());
    return weights;
  }

  uint8_t RandomCode(WeightFormat format, const PanelLayout& layout) {
    const auto code = static_cast<uint8_t>(RandomInt(0, (1 << layout.code_bits) - 1));
    return format == WeightFormat::kFloat8 && std::isnan(Float8Value(code)) ? 0 : code;
  }

  // Writes the bits of a scale and returns its value.
  float RandomScale(WeightFormat format, uint16_t* bits) {
    const auto size = static_cast<float>(RandomInt(1, 100)) * 0.01f;
    switch (format) {
      case WeightFormat::kFloat8: {
        const float scale = size / kMaxFloat8;  // not one of 16 bits
        std::memcpy(bits, &scale, sizeof scale);
        return scale;
      }
      case WeightFormat::kFp4Group16: {  // few bits, so that products with codes are exact
        *bits = FloatToBFloat16(
            std::ldexp(static_cast<float>(RandomInt(8, 15)), static_cast<int>(RandomInt(-12, -8))));
        return BFloat16ToFloat(*bits);
      }
      case WeightFormat::kMxfp4:
        *bits = FloatToBFloat16(std::ldexp(1.0f, static_cast<int>(RandomInt(-10, -4))));
        return BFloat16ToFloat(*bits);
      default:
        *bits = FloatToFloat16(size / static_cast<float>(1 << LayoutOf(format).code_bits));
        return Float16ToFloat(*bits);
    }
  }

  // Writes the bits of a shift and returns its value: sums with codes have few bits, so that they
  // are exact.
  float RandomShift(uint16_t* bits) {
    const float shift = static_cast<float>(RandomInt(-32, 32)) / 8;
    *bits = FloatToFloat16(shift);
    return shift;
  }

  static float Value(WeightFormat format, uint8_t code) {
    if (format == WeightFormat::kFloat8) return Float8Value(code);
    if (format == WeightFormat::kMxfp4 || format == WeightFormat::kFp4Group16)
      return kMxfp4Doubled[code];
    return static_cast<float>(code - (1 << LayoutOf(format).code_bits) / 2);
  }
};

}  // namespace mlc_native::kernels::cuda
