#include "kernels/distance_bias.h"

#include <algorithm>

#include "support/check.h"

namespace mlc_native::kernels {

std::vector<float> PadDistances(std::span<const float> entries, int64_t heads, int64_t reach) {
  MLC_CHECK(std::ssize(entries) == heads * (2 * reach + 1)) << entries.size() << " entries";
  const int64_t row_size = DistanceBias{.reach = reach}.RowSize();
  std::vector<float> table(static_cast<size_t>(heads * row_size));
  for (int64_t head = 0; head < heads; ++head) {
    const float* const from = entries.data() + head * (2 * reach + 1);
    float* const to = table.data() + head * row_size;
    for (int64_t i = 0; i < row_size; ++i) {
      to[i] = from[std::clamp<int64_t>(i - kDistancePadding, 0, 2 * reach)];
    }
  }
  return table;
}

}  // namespace mlc_native::kernels
