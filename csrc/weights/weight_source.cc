#include "weights/weight_source.h"

#include <algorithm>

#include "kernels/packed_format.h"
#include "support/check.h"

namespace mlc_native {

std::vector<int64_t> JoinedPlace::StoredShape(std::span<const int64_t> shape) const {
  std::vector<int64_t> stored(shape.begin(), shape.end());
  if (transposed) std::ranges::reverse(stored);
  if (of_channels) stored.insert(stored.begin() + 1, 1);
  if (count > 0) stored.insert(stored.begin(), count);
  return stored;
}

bool CodeForm::HeldBy(kernels::WeightFormat format) const {
  const kernels::PanelLayout layout = kernels::LayoutOf(format);
  if (is_mxfp4 != (format == kernels::WeightFormat::kMxfp4)) return false;
  if (is_float8 != (format == kernels::WeightFormat::kFloat8)) return false;
  if (is_affine && layout.scales != 2) return false;
  const bool by_table = !is_mxfp4 && kernels::TableOf(format) != nullptr;
  const bool has_codes = by_table ? table == format : bits <= layout.code_bits;
  return layout.scale_bytes > 0 && has_codes && (num_groups == 1 || group % layout.group == 0);
}

int64_t WeightSource::stored_bytes() const {
  size_t bytes = 0;
  for (const Checkpoint::Entry* part : parts_) bytes += part->tensor->bytes;
  return static_cast<int64_t>(bytes);
}

void WeightSource::ReadRows(int64_t, int64_t, std::span<std::byte>) const {
  MLC_CHECK(false) << "a weight of integers has no rows of floats";
}

void WeightSource::ReadCodes(int64_t, int64_t, int8_t*, uint16_t*) const {
  MLC_CHECK(false) << "a weight of floats has no codes";
}

}  // namespace mlc_native
