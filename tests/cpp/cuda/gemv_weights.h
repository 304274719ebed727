// Random weights for the tests of products, on the host in Gemv's layout and as floats.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/test_util.h"
#include "kernels/packed_format.h"

namespace mlc_native::kernels::cuda {

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

 private:
  GemvWeights Quantized(WeightFormat format, int64_t n, int64_t k) {
    const PanelLayout layout = LayoutOf(format);
    const int64_t groups = layout.Groups(k);
    const int num_codes = 1 << layout.code_bits;
    std::vector<uint8_t> codes(n * k);
    std::vector<uint16_t> scales(n * groups);
    for (uint8_t& code : codes) code = static_cast<uint8_t>(RandomInt(0, num_codes - 1));
    for (uint16_t& scale : scales) scale = RandomScale(format, num_codes);
    GemvWeights weights{format, Floats(n * k),
                        std::vector<uint8_t>(GemvWeightBytes(format, n, k), 0xff)};
    for (int64_t i = 0; i < n * k; ++i) {
      const uint16_t scale = scales[i / k * groups + i % k / layout.group];
      weights.dense[i] = format == WeightFormat::kMxfp4
                             ? BFloat16ToFloat(scale) * kMxfp4Doubled[codes[i]]
                             : Float16ToFloat(scale) * static_cast<float>(codes[i] - num_codes / 2);
    }
    PackGemvWeights(format, n, k, {.codes = codes.data(), .scales = scales.data()},
                    weights.bytes.data());
    return weights;
  }

  uint16_t RandomScale(WeightFormat format, int num_codes) {
    if (format == WeightFormat::kMxfp4) {
      return FloatToBFloat16(std::ldexp(1.0f, static_cast<int>(RandomInt(-10, -4))));
    }
    return FloatToFloat16(static_cast<float>(RandomInt(1, 100)) * 0.01f /
                          static_cast<float>(num_codes));
  }
};

}  // namespace mlc_native::kernels::cuda
