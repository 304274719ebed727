#include "weights/weight_form.h"

#include <cstring>

#include "support/half.h"

namespace mlc_native {

void ConvertRows(DType to, std::byte* out, int64_t first, const kernels::PackSource& from,
                 int64_t columns) {
  const int64_t elements = from.rows * columns;
  if (from.dtype == to) {
    const auto size = static_cast<int64_t>(DTypeSize(to));
    std::memcpy(out + first * size, from.data, static_cast<size_t>(elements * size));
    return;
  }
  for (int64_t i = 0; i < elements; ++i) {
    StoreElement(to, out, first + i, LoadElement(from.dtype, from.data, i));
  }
}

}  // namespace mlc_native
