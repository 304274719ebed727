#include "weights/nvfp4_weight.h"

#include <cmath>

#include "kernels/packed_format.h"
#include "support/error.h"
#include "support/float8.h"
#include "support/half.h"

namespace mlc_native {

float Nvfp4Weight::HalfScale(int64_t row, int64_t group) const {
  const std::byte* scale = parts_.scales->data() + row * num_groups() + group;
  const float value = Float8ToFloat(std::to_integer<uint8_t>(*scale));
  if (std::isnan(value)) {
    const Checkpoint::Entry& entry = parts_.scales->entry();
    throw LoadError(entry.tensor->name, entry.file->path + ": tensor \"" + entry.tensor->name +
                                            "\": has scales that are no numbers");
  }
  return 0.5f * WithScaleOfAll(value);
}

int8_t Nvfp4Weight::Code(int64_t row, int64_t column) const {
  const std::byte* pair = parts_.codes->data() + row * (parts_.columns / 2) + column / 2;
  const auto byte = std::to_integer<unsigned>(*pair);
  return kernels::kMxfp4Doubled[column % 2 == 0 ? byte & 15 : byte >> 4];
}

void Nvfp4Weight::Decode(int64_t begin, int64_t end, float* out) const {
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t group = 0; group < num_groups(); ++group) {
      const float scale = HalfScale(row, group);
      for (int64_t i = 0; i < kNvfp4Columns; ++i) {
        *out++ = static_cast<float>(Code(row, group * kNvfp4Columns + i)) * scale;
      }
    }
  }
}

std::optional<CodeForm> Nvfp4Weight::code_form() const {
  // The largest half of a scale that E4M3 gives. Scales far below it may be subnormal.
  constexpr float kLeast = 0x1p-12f, kMost = 65504;
  if (parts_.scale_of_all) {
    const float largest = std::fabs(0.5f * WithScaleOfAll(kMaxFloat8));
    if (!(largest >= kLeast && largest <= kMost)) return std::nullopt;
  }
  return CodeForm{.bits = 5,  // of the doubled values
                  .group = kNvfp4Columns,
                  .num_groups = num_groups(),
                  .table = kernels::WeightFormat::kFp4Group16};
}

void Nvfp4Weight::ReadCodes(int64_t begin, int64_t end, int8_t* codes, uint16_t* scales) const {
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t column = 0; column < parts_.columns; ++column) *codes++ = Code(row, column);
    for (int64_t group = 0; group < num_groups(); ++group) {
      *scales++ = FloatToFloat16(HalfScale(row, group));
    }
  }
}

}  // namespace mlc_native
