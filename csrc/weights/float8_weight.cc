#include "weights/float8_weight.h"

#include <algorithm>
#include <cstring>

#include "support/error.h"
#include "support/float8.h"
#include "support/half.h"

namespace mlc_native {

float Float8Weight::ScaleOf(int64_t row, int64_t block) const {
  return LoadElement(parts_.scale_dtype, parts_.scales->data(),
                     row / parts_.block_rows * num_blocks() + block);
}

void Float8Weight::Decode(int64_t begin, int64_t end, float* out) const {
  const int64_t columns = parts_.columns;
  for (int64_t row = begin; row < end; ++row) {
    const std::byte* elements = parts_.elements->data() + row * columns;
    for (int64_t block = 0; block < num_blocks(); ++block) {
      const float scale = ScaleOf(row, block);
      const int64_t stop = std::min(columns, (block + 1) * parts_.block_columns);
      for (int64_t c = block * parts_.block_columns; c < stop; ++c) {
        *out++ = Float8ToFloat(std::to_integer<uint8_t>(elements[c])) * scale;
      }
    }
  }
}

std::optional<CodeForm> Float8Weight::code_form() const {
  return CodeForm{
      .bits = 8, .group = parts_.block_columns, .num_groups = num_blocks(), .is_float8 = true};
}

void Float8Weight::ReadCodes(int64_t begin, int64_t end, int8_t* codes, uint16_t* scales) const {
  constexpr std::byte kMagnitude{0x7f};
  const std::byte* elements = parts_.elements->data() + begin * parts_.columns;
  const auto count = static_cast<size_t>((end - begin) * parts_.columns);
  if (std::any_of(elements, elements + count,
                  [&](std::byte b) { return (b & kMagnitude) == std::byte{kNaNFloat8}; })) {
    const Checkpoint::Entry& entry = *parts().front();
    throw LoadError(entry.tensor->name, entry.file->path + ": tensor \"" + entry.tensor->name +
                                            "\": has elements that are no numbers");
  }
  std::memcpy(codes, elements, count);
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t block = 0; block < num_blocks(); ++block, scales += 2) {
      const float scale = ScaleOf(row, block);
      std::memcpy(scales, &scale, sizeof scale);
    }
  }
}

}  // namespace mlc_native
