#include "models/cuda/device_form.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "kernels/cuda/products.h"
#include "kernels/packed_format.h"
#include "kernels/quantize.h"
#include "support/check.h"
#include "support/half.h"

namespace mlc_native {
namespace {

using kernels::QuantizedGroup;
using kernels::WeightFormat;

DType FloatType(WeightFormat format) {
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    if (kernels::FormatOf(dtype) == format) return dtype;
  }
  MLC_CHECK(false) << "format " << static_cast<int>(format) << " is not of floats";
  return DType::kFloat32;
}

// 16-bit words of a scale.
int64_t ScaleWords(WeightFormat format) {
  return kernels::LayoutOf(format).scale_bytes / static_cast<int64_t>(sizeof(uint16_t));
}

// One row as PackGemvWeights takes it, reused from row to row.
struct QuantizedRow {
  QuantizedRow(WeightFormat format, int64_t k)
      : codes(static_cast<size_t>(k)),
        scales(static_cast<size_t>(kernels::LayoutOf(format).Groups(k) * ScaleWords(format))),
        packed(kernels::cuda::GemvWeightBytes(format, 1, k)) {}

  std::vector<uint8_t> codes;
  std::vector<uint16_t> scales;
  std::vector<std::byte> packed;
};

void Store(const PackedMatrix& matrix, int64_t row, QuantizedRow* from) {
  kernels::cuda::PackGemvWeights(matrix.format, 1, matrix.k,
                                 {.codes = from->codes.data(), .scales = from->scales.data()},
                                 from->packed.data());
  const auto [codes, scales] = DeviceForm::RowBytes(matrix.format, matrix.k);
  std::memcpy(matrix.data + static_cast<size_t>(row) * codes, from->packed.data(), codes);
  std::memcpy(
      matrix.data + static_cast<size_t>(matrix.n) * codes + static_cast<size_t>(row) * scales,
      from->packed.data() + codes, scales);
}

template <size_t kGroup>
void QuantizeTo8Bits(std::span<const std::array<float, kGroup>> values,
                     QuantizedGroup<kGroup>* groups) {
  for (size_t i = 0; i < values.size(); ++i) groups[i] = kernels::QuantizeQ8(values[i]);
}

// `quantize`: all groups of a row.
template <int64_t kGroup, typename Quantize>
void PackQuantized(const PackedMatrix& matrix, int64_t row, const kernels::PackSource& rows,
                   const Quantize& quantize) {
  QuantizedRow out(matrix.format, matrix.k);
  std::vector<std::array<float, kGroup>> values(out.scales.size());
  std::vector<QuantizedGroup<kGroup>> groups(out.scales.size());
  for (int64_t i = 0; i < rows.rows; ++i) {
    for (int64_t k = 0; k < matrix.k; ++k) {
      values[k / kGroup][k % kGroup] = LoadElement(rows.dtype, rows.data, i * rows.ld + k);
    }
    quantize(std::span<const std::array<float, kGroup>>(values), groups.data());
    for (int64_t k = 0; k < matrix.k; ++k) out.codes[k] = groups[k / kGroup].codes[k % kGroup];
    for (size_t g = 0; g < groups.size(); ++g) out.scales[g] = groups[g].scale;
    Store(matrix, row + i, &out);
  }
}

// What PackGemvWeights takes for a code, and for a word of scales.
uint8_t DeviceCode(WeightFormat format, int8_t code) {
  switch (format) {
    case WeightFormat::kMxfp4:
    case WeightFormat::kFloat8:
      return static_cast<uint8_t>(code);
    case WeightFormat::kFp4Group16:
      return kernels::IndexIn(kernels::kMxfp4Doubled, code);
    default:
      return static_cast<uint8_t>(code + (1 << (kernels::LayoutOf(format).code_bits - 1)));
  }
}
uint16_t DeviceScale(WeightFormat format, uint16_t scale) {
  if (format != WeightFormat::kFp4Group16) return scale;
  return FloatToBFloat16(Float16ToFloat(scale));
}

}  // namespace

std::array<size_t, 2> DeviceForm::RowBytes(WeightFormat format, int64_t k) {
  const kernels::PanelLayout layout = kernels::LayoutOf(format);
  if (layout.scale_bytes == 0) return {static_cast<size_t>(k * layout.code_bits / 8), 0};
  const int64_t steps = (k + kernels::cuda::kGemvStep - 1) / kernels::cuda::kGemvStep;
  const auto codes = static_cast<size_t>(steps * kernels::cuda::kGemvStep * layout.code_bits / 8);
  return {codes, kernels::cuda::GemvWeightBytes(format, 1, k) - codes};
}

size_t DeviceForm::MatrixBytes(WeightFormat format, int64_t n, int64_t k) const {
  const auto [codes, scales] = RowBytes(format, k);
  return static_cast<size_t>(n) * (codes + scales);
}

void DeviceForm::Pack(const PackedMatrix& matrix, int64_t row,
                      const kernels::PackSource& rows) const {
  switch (matrix.format) {
    case WeightFormat::kQ8:
      return PackQuantized<kernels::kQ8Group>(matrix, row, rows,
                                              QuantizeTo8Bits<kernels::kQ8Group>);
    case WeightFormat::kQ8Group32:
      return PackQuantized<kernels::kShortQ8Group>(matrix, row, rows,
                                                   QuantizeTo8Bits<kernels::kShortQ8Group>);
    case WeightFormat::kQ4:
      return PackQuantized<kernels::kQ4Group>(matrix, row, rows, [](auto values, auto* groups) {
        kernels::QuantizeQ4(values, groups);
      });
    default:
      break;
  }
  ConvertRows(FloatType(matrix.format), matrix.data, row * matrix.k, rows, matrix.k);
}

void DeviceForm::Pack(const PackedMatrix& matrix, int64_t row,
                      const kernels::PackCodes& rows) const {
  const kernels::PanelLayout layout = kernels::LayoutOf(matrix.format);
  const int64_t words = ScaleWords(matrix.format);
  QuantizedRow out(matrix.format, matrix.k);
  const int64_t stored_groups = (matrix.k + rows.group - 1) / rows.group;
  for (int64_t i = 0; i < rows.rows; ++i) {
    for (int64_t k = 0; k < matrix.k; ++k) {
      out.codes[k] = DeviceCode(matrix.format, rows.codes[i * rows.ld + k]);
    }
    for (int64_t g = 0; g < layout.Groups(matrix.k); ++g) {
      const int64_t stored = i * stored_groups + g * layout.group / rows.group;
      for (int64_t word = 0; word < words; ++word) {
        out.scales[g * words + word] =
            DeviceScale(matrix.format, rows.scales[stored * words + word]);
      }
    }
    Store(matrix, row + i, &out);
  }
}

}  // namespace mlc_native
