#include "models/quantized_weight.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "support/half.h"

namespace mlc_native {
namespace {

uint32_t LoadWord(const std::byte* words, int64_t index) {  // maybe unaligned
  uint32_t word;
  std::memcpy(&word, words + index * 4, sizeof word);
  return word;
}

// Place of the i-th of 8 neighbours.
int64_t Interleaved(int64_t i) { return i % 2 * 4 + i / 2; }

}  // namespace

void PackedIntegers::UnpackRow(int64_t row, int64_t count, uint8_t* out) const {
  const uint32_t mask = (1u << bits) - 1;
  const int64_t per = per_word();
  if (along_rows) {
    const int64_t place = interleaved ? Interleaved(row % per) : row % per;
    const std::byte* first = words + row / per * row_stride * 4;
    for (int64_t i = 0; i < count; ++i) {
      out[i] = static_cast<uint8_t>(LoadWord(first, i * column_stride) >> place * bits & mask);
    }
    return;
  }
  const std::byte* first = words + row * row_stride * 4;
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
  std::vector<float> zeros;
};

QuantizedWeight::QuantizedWeight(std::vector<const Checkpoint::Entry*> tensors, int64_t rows,
                                 int64_t columns, QuantizedParts parts)
    : WeightSource(std::move(tensors)), rows_(rows), columns_(columns), parts_(std::move(parts)) {}

void QuantizedWeight::ReadGroups(int64_t row, Row& scratch) const {
  const auto& [integers, scales, zeros, groups] = parts_;
  if (zeros.packed) zeros.packed->UnpackRow(row, groups.count, scratch.packed_zeros.data());
  for (int64_t g = 0; g < groups.count; ++g) {
    const auto at = static_cast<size_t>(g);
    scratch.scales[at] =
        LoadElement(scales.dtype, scales.data, row * scales.row_stride + g * scales.group_stride);
    int zero = zeros.offset;
    if (zeros.packed) {
      zero = (zero + scratch.packed_zeros[at]) & ((1 << integers.bits) - 1);
    } else if (zeros.bytes != nullptr) {
      zero += zeros.bytes[row * zeros.row_stride + g];
    }
    scratch.zeros[at] = static_cast<float>(zero);
  }
}

void QuantizedWeight::Scale(const Row& scratch, float* out) const {
  const ColumnGroups& groups = parts_.groups;
  const uint8_t* q = scratch.integers.data();
  if (!groups.of_column.empty()) {
    for (int64_t c = 0; c < columns_; ++c) {
      const auto g = static_cast<size_t>(groups.of_column[static_cast<size_t>(c)]);
      out[c] = (static_cast<float>(q[c]) - scratch.zeros[g]) * scratch.scales[g];
    }
    return;
  }
  for (int64_t g = 0; g < groups.count; ++g) {
    const float zero = scratch.zeros[static_cast<size_t>(g)];
    const float scale = scratch.scales[static_cast<size_t>(g)];
    const int64_t end = std::min(columns_, (g + 1) * groups.group_size);
    for (int64_t c = g * groups.group_size; c < end; ++c) {
      out[c] = (static_cast<float>(q[c]) - zero) * scale;
    }
  }
}

void QuantizedWeight::Decode(int64_t begin, int64_t end, float* out) const {
  constexpr int64_t kMaxPerWord = 32;
  const auto groups = static_cast<size_t>(parts_.groups.count);
  Row scratch;
  scratch.integers.resize(static_cast<size_t>(columns_ + kMaxPerWord));
  scratch.packed_zeros.resize(groups + kMaxPerWord);
  scratch.scales.resize(groups);
  scratch.zeros.resize(groups);
  for (int64_t row = begin; row < end; ++row, out += columns_) {
    parts_.integers.UnpackRow(row, columns_, scratch.integers.data());
    ReadGroups(row, scratch);
    Scale(scratch, out);
  }
}

// Rows of some formats are scattered over the tensors: nothing before the last row.
void QuantizedWeight::Drop(int64_t /*begin*/, int64_t end) const {
  if (end < rows_) return;
  for (const Checkpoint::Entry* part : parts()) part->file->file.Drop(part->tensor->data);
}

}  // namespace mlc_native
