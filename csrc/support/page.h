// Words of the paged KV cache that both its bookkeeping (kv/) and its storage (models/) use.
#pragma once

#include <cstdint>

namespace mlc_native {

inline constexpr int kKvPageSize = 16;  // tokens

// A page that a forward may only write after the model copied src to dst (copy-on-write).
struct PageCopy {
  int32_t src_page = 0;
  int32_t dst_page = 0;
};

}  // namespace mlc_native
