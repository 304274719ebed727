// What the kernels share with everything else: types of elements, and pages. Without a
// header of the standard library that takes time, because nvcc parses what kernels include for each
// architecture anew. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mlc_native {

// Of weights, activations and KV pages.
enum class DType : uint8_t { kFloat32, kBFloat16, kFloat16 };

constexpr size_t DTypeSize(DType dtype) { return dtype == DType::kFloat32 ? 4 : 2; }

inline constexpr float kMaxFloat8 = 448.0f;  // E4M3

inline constexpr int kKvPageSize = 16;  // tokens

// A copy-on-write: the model copies page src to page dst before the forward that writes dst.
struct PageCopy {
  int32_t src_page = 0;
  int32_t dst_page = 0;
};

}  // namespace mlc_native
