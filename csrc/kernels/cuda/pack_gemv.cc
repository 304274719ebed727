// PackGemvWeights, on the host.
#include <cstring>

#include "kernels/cuda/gemv_layout.h"
#include "kernels/packed_format.h"
#include "support/check.h"

namespace mlc_native::kernels::cuda {
namespace {

struct Packing {
  uint8_t zero;  // code of the value zero
  int64_t steps;
  int64_t code_bytes;   // of a row and step
  int64_t scale_bytes;  // of a scale
  int64_t groups;       // of a row and step
};

Packing PackingOf(WeightFormat format, int64_t k) {
  const auto zero = [&]() -> uint8_t {
    switch (format) {
      case WeightFormat::kQ8:
      case WeightFormat::kQ8Group32:
        return 128;
      case WeightFormat::kQ4:
      case WeightFormat::kQ4Affine:
        return 8;
      case WeightFormat::kMxfp4:
      case WeightFormat::kFp4Group16:
      case WeightFormat::kFloat8:
        return 0;
      default:
        MLC_CHECK(false) << "format " << static_cast<int>(format);
        return 0;
    }
  };
  const PanelLayout layout = LayoutOf(format);
  return {.zero = zero(),
          .steps = (k + kGemvStep - 1) / kGemvStep,
          .code_bytes = kGemvStep * layout.code_bits / 8,
          .scale_bytes = layout.scale_bytes,
          .groups = kGemvStep / layout.group};
}

// Returns the position of the code of k (within a step), in bits from the beginning of the row's
// step (gemv_formats.cuh).
int64_t BitOf(WeightFormat format, int64_t k) {
  constexpr int64_t kOfLane = kBlock / kRowLanes;
  const int64_t block = k / kBlock;
  const int64_t lane = k % kBlock / kOfLane;
  const int64_t i = k % kOfLane;
  if (LayoutOf(format).code_bits == 8) {
    return 8 * ((block / 2 * kRowLanes + lane) * 16 + block % 2 * kOfLane + i);
  }
  return (lane * 4 + block) * 32 + i / 2 * 4 + i % 2 * 16;
}

}  // namespace

size_t GemvWeightBytes(WeightFormat format, int64_t n, int64_t k) {
  const Packing p = PackingOf(format, k);
  return static_cast<size_t>(n * p.steps * (p.code_bytes + p.groups * p.scale_bytes));
}

void PackGemvWeights(WeightFormat format, int64_t n, int64_t k, const QuantizedRows& rows,
                     void* packed) {
  const Packing p = PackingOf(format, k);
  std::memset(packed, 0, GemvWeightBytes(format, n, k));
  auto* codes = static_cast<uint8_t*>(packed);
  uint8_t* scales = codes + n * p.steps * p.code_bytes;
  const auto* stored_scales = reinterpret_cast<const uint8_t*>(rows.scales);
  const int64_t stored_bytes = LayoutOf(format).Groups(k) * p.scale_bytes;  // of a row
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t i = 0; i < p.steps * kGemvStep; ++i) {
      const uint8_t code = i < k ? rows.codes[row * k + i] : p.zero;
      const int64_t bit = BitOf(format, i % kGemvStep);
      uint8_t* byte = codes + (row * p.steps + i / kGemvStep) * p.code_bytes + bit / 8;
      *byte = static_cast<uint8_t>(*byte | code << (bit % 8));
    }
    std::memcpy(scales + row * p.steps * p.groups * p.scale_bytes,
                stored_scales + row * stored_bytes, static_cast<size_t>(stored_bytes));
  }
}

}  // namespace mlc_native::kernels::cuda
