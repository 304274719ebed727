#include "weights/float8_weight.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "support/half.h"

namespace mlc_native {
namespace {

// E4M3 has no infinities; the largest exponent with the largest mantissa is NaN.
constexpr float Float8ToFloat(unsigned bits) {
  const unsigned exponent = bits >> 3 & 15, mantissa = bits & 7;
  const float sign = (bits & 0x80) != 0 ? -1.0f : 1.0f;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<float>::quiet_NaN();
  if (exponent == 0) return sign * static_cast<float>(mantissa) * 0x1p-9f;
  const float power = std::bit_cast<float>((exponent + 120) << 23);
  return sign * (1.0f + static_cast<float>(mantissa) / 8.0f) * power;
}

constexpr std::array<float, 256> MakeFloat8Table() {
  std::array<float, 256> table{};
  for (unsigned i = 0; i < table.size(); ++i) table[i] = Float8ToFloat(i);
  return table;
}
constexpr std::array<float, 256> kFloat8 = MakeFloat8Table();

}  // namespace

void Float8Weight::Decode(int64_t begin, int64_t end, float* out) const {
  const auto& [elements, scales, scale_dtype, columns, block_rows, block_columns] = parts_;
  const int64_t blocks = (columns + block_columns - 1) / block_columns;
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t block = 0; block < blocks; ++block) {
      const float scale =
          LoadElement(scale_dtype, scales->data(), row / block_rows * blocks + block);
      const int64_t stop = std::min(columns, (block + 1) * block_columns);
      for (int64_t c = block * block_columns; c < stop; ++c) {
        *out++ = kFloat8[std::to_integer<uint8_t>(elements->data()[row * columns + c])] * scale;
      }
    }
  }
}

}  // namespace mlc_native
