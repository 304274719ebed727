#include "weights/ternary_weight.h"

#include <cmath>

#include "support/half.h"

namespace mlc_native {

int TernaryWeight::Number(int64_t row, int64_t column) const {
  const int64_t packed_rows = parts_.rows / kTernaryRows;
  const std::byte* byte = parts_.codes->data() + row % packed_rows * parts_.columns + column;
  return (std::to_integer<int>(*byte) >> 2 * (row / packed_rows) & 3) - 1;
}

void TernaryWeight::Decode(int64_t begin, int64_t end, float* out) const {
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t column = 0; column < parts_.columns; ++column) {
      *out++ = static_cast<float>(Number(row, column)) * *parts_.scale;
    }
  }
}

std::optional<CodeForm> TernaryWeight::code_form() const {
  constexpr float kLeast = 0x1p-12f, kMost = 65504;  // below it float16 may lose bits
  if (parts_.scale) {
    const float magnitude = std::fabs(*parts_.scale);
    if (!(magnitude >= kLeast && magnitude <= kMost)) return std::nullopt;
  }
  return CodeForm{.bits = 2, .group = parts_.columns, .num_groups = 1};
}

void TernaryWeight::ReadCodes(int64_t begin, int64_t end, int8_t* codes, uint16_t* scales) const {
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t column = 0; column < parts_.columns; ++column) {
      *codes++ = static_cast<int8_t>(-Number(row, column));
    }
    *scales++ = FloatToFloat16(-*parts_.scale);
  }
}

}  // namespace mlc_native
