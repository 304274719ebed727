#include "weights/quantized_weight.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "support/check.h"
#include "support/half.h"

namespace mlc_native {
namespace {

uint32_t LoadWord(const std::byte* words, int64_t index) {  // maybe unaligned
  uint32_t word;
  std::memcpy(&word, words + index * 4, sizeof word);
  return word;
}

bool IsFloat16(float x) { return Float16ToFloat(FloatToFloat16(x)) == x; }

// Returns the position of the i-th of 8 neighbours.
int64_t Interleaved(int64_t i) { return i % 2 * 4 + i / 2; }

}  // namespace

void LoadedTensor::Load() {
  if (bytes_) return;
  const size_t size = entry_.tensor->bytes;
  TensorStorage bytes(size, "tensor \"" + entry_.tensor->name + '"');
  const TensorReader reader = entry_.Open();
  reader.Read(0, {bytes.data(), size});
  reader.Finish();
  bytes_ = std::move(bytes);
}

void PackedIntegers::UnpackDenseRow(int64_t row, int64_t count, uint8_t* out) const {
  const uint32_t mask = (1u << bits) - 1;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t bit = (along_rows ? row : i) * bits;
    const int64_t stride = along_rows ? row_stride : column_stride;
    const int64_t word = bit / 32 * stride + (along_rows ? i * column_stride : row * row_stride);
    const auto shift = static_cast<int>(bit % 32);
    uint32_t value = LoadWord(words->data(), word) >> shift;
    if (shift + bits > 32) value |= LoadWord(words->data(), word + stride) << (32 - shift);
    out[i] = static_cast<uint8_t>(value & mask);
  }
}

void PackedIntegers::UnpackRow(int64_t row, int64_t count, uint8_t* out) const {
  if (dense) return UnpackDenseRow(row, count, out);
  const uint32_t mask = (1u << bits) - 1;
  const int64_t per = per_word();
  if (along_rows) {
    const int64_t place = interleaved ? Interleaved(row % per) : row % per;
    const std::byte* first = words->data() + row / per * row_stride * 4;
    for (int64_t i = 0; i < count; ++i) {
      out[i] = static_cast<uint8_t>(LoadWord(first, i * column_stride) >> place * bits & mask);
    }
    return;
  }
  const std::byte* first = words->data() + row * row_stride * 4;
  for (int64_t i = 0; i < count; i += per) {
    const uint32_t word = LoadWord(first, i / per * column_stride);
    for (int64_t j = 0; j < per; ++j) {
      out[i + j] = static_cast<uint8_t>(word >> (interleaved ? Interleaved(j) : j) * bits & mask);
    }
  }
}

struct QuantizedWeight::Row {
  std::vector<uint8_t> integers;
  std::vector<uint8_t> packed_zeros;
  std::vector<float> scales;  // of the groups
  std::vector<int> zeros;
};

QuantizedWeight::QuantizedWeight(std::vector<const Checkpoint::Entry*> stored, int64_t rows,
                                 int64_t columns, QuantizedParts parts)
    : WeightSource(std::move(stored)), rows_(rows), columns_(columns), parts_(std::move(parts)) {
  code_form_ = FindCodeForm();
}

void QuantizedWeight::Load() {
  if (is_loaded_) return;
  for (const auto& tensor : parts_.tensors) tensor->Load();
  is_loaded_ = true;
}

void QuantizedWeight::Drop() {
  for (const auto& tensor : parts_.tensors) tensor->Drop();
  is_loaded_ = false;
}

QuantizedWeight::Row QuantizedWeight::MakeRow() const {
  constexpr size_t kMaxPerWord = 32;
  const auto groups = static_cast<size_t>(parts_.groups.count);
  Row row;
  row.integers.resize(static_cast<size_t>(columns_) + kMaxPerWord);
  row.packed_zeros.resize(groups + kMaxPerWord);
  row.scales.resize(groups);
  row.zeros.resize(groups);
  return row;
}

void QuantizedWeight::ReadRow(int64_t row, Row& scratch) const {
  MLC_CHECK(is_loaded_) << "the weight is not loaded";
  parts_.integers.UnpackRow(row, columns_, scratch.integers.data());
  ReadGroups(row, scratch);
}

void QuantizedWeight::ReadGroups(int64_t row, Row& scratch) const {
  const auto& [tensors, integers, scales, zeros, groups, reads_data] = parts_;
  const auto* zero_bytes =
      zeros.bytes == nullptr ? nullptr : reinterpret_cast<const int8_t*>(zeros.bytes->data());
  if (zeros.packed) zeros.packed->UnpackRow(row, groups.count, scratch.packed_zeros.data());
  for (int64_t g = 0; g < groups.count; ++g) {
    const auto at = static_cast<size_t>(g);
    scratch.scales[at] = LoadElement(scales.dtype, scales.tensor->data(),
                                     row * scales.row_stride + g * scales.group_stride);
    int zero = zeros.offset;
    if (zeros.packed) {
      zero = (zero + scratch.packed_zeros[at]) & ((1 << integers.bits) - 1);
    } else if (zero_bytes != nullptr) {
      zero += zero_bytes[row * zeros.row_stride + g];
    }
    scratch.zeros[at] = zero;
  }
}

void QuantizedWeight::Scale(const Row& scratch, float* out) const {
  const ColumnGroups& groups = parts_.groups;
  const uint8_t* q = scratch.integers.data();
  if (!groups.of_column.empty()) {
    for (int64_t c = 0; c < columns_; ++c) {
      const auto g = static_cast<size_t>(groups.of_column[static_cast<size_t>(c)]);
      out[c] = static_cast<float>(q[c] - scratch.zeros[g]) * scratch.scales[g];
    }
    return;
  }
  for (int64_t g = 0; g < groups.count; ++g) {
    const int zero = scratch.zeros[static_cast<size_t>(g)];
    const float scale = scratch.scales[static_cast<size_t>(g)];
    const int64_t end = std::min(columns_, (g + 1) * groups.group_size);
    for (int64_t c = g * groups.group_size; c < end; ++c) {
      out[c] = static_cast<float>(q[c] - zero) * scale;
    }
  }
}

void QuantizedWeight::Decode(int64_t begin, int64_t end, float* out) const {
  Row scratch = MakeRow();
  for (int64_t row = begin; row < end; ++row, out += columns_) {
    ReadRow(row, scratch);
    Scale(scratch, out);
  }
}

// ---- As codes of the kernels' formats ----
//
// Codes range from -8 to 7. If q - zero ranges from -7 to 8, the codes are its negatives and the
// scale takes the sign. The same applies to 8 bits.

bool QuantizedWeight::FitsHalf(int zero, int half) const {
  return zero <= half && LargestInteger() - zero <= half;
}

// Reads scales and zero points, and only where rows may differ.
std::optional<CodeForm> QuantizedWeight::FindCodeForm() {
  const auto& [tensors, integers, scales, zeros, groups, reads_data] = parts_;
  if (!groups.of_column.empty()) return std::nullopt;
  const bool alike = scales.dtype == DType::kFloat16 && !zeros.packed && zeros.bytes == nullptr;
  std::vector<int> sizes{4, 6, 8};  // of codes, that hold all
  const auto keep = [&](int zero) {
    std::erase_if(sizes, [&](int bits) { return !FitsHalf(zero, 1 << (bits - 1)); });
  };
  if (alike) {
    keep(zeros.offset);
  } else if (!reads_data) {
    sizes = {integers.bits < 6 ? 6 : 8};  // differences have one bit more than integers
  } else {
    for (const auto& tensor : tensors) {
      if (tensor.get() != integers.words) tensor->Load();
    }
    Row scratch = MakeRow();
    for (int64_t row = 0; row < rows_ && !sizes.empty(); ++row) {
      ReadGroups(row, scratch);
      for (const int zero : scratch.zeros) keep(zero);
      if (!std::ranges::all_of(scratch.scales, IsFloat16)) sizes.clear();
    }
    Drop();
  }
  if (sizes.empty()) return std::nullopt;
  return CodeForm{.bits = sizes.front(), .group = groups.group_size, .num_groups = groups.count};
}

void QuantizedWeight::ReadCodes(int64_t begin, int64_t end, int8_t* codes, uint16_t* scales) const {
  const int half = 1 << (code_form_->bits - 1);
  Row scratch = MakeRow();
  for (int64_t row = begin; row < end; ++row, codes += columns_) {
    ReadRow(row, scratch);
    const uint8_t* q = scratch.integers.data();
    for (int64_t g = 0; g < parts_.groups.count; ++g) {
      const int zero = scratch.zeros[static_cast<size_t>(g)];
      const float scale = scratch.scales[static_cast<size_t>(g)];
      const int sign = LargestInteger() - zero < half ? 1 : -1;
      *scales++ = FloatToFloat16(static_cast<float>(sign) * scale);
      const int64_t stop = std::min(columns_, (g + 1) * parts_.groups.group_size);
      for (int64_t c = g * parts_.groups.group_size; c < stop; ++c) {
        codes[c] = static_cast<int8_t>(sign * (q[c] - zero));
      }
    }
  }
}

}  // namespace mlc_native
