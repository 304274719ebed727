// Definitions that the bookkeeping (kv/) and the storage (models/) of the paged KV cache share.
#pragma once

#include <cstdint>

namespace mlc_native {

inline constexpr int kKvPageSize = 16;  // tokens

// A copy-on-write: the model copies page src to page dst before the forward that writes dst.
struct PageCopy {
  int32_t src_page = 0;
  int32_t dst_page = 0;
};

}  // namespace mlc_native
