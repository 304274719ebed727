// What the bookkeeping, the storage and the users of the paged KV cache share. Plain values; any
// thread.
#pragma once

#include <cstdint>
#include <string>

#include "mlc_native/detail/basic_types.h"

namespace mlc_native {

// A prompt in the prefix cache that is never evicted.
struct PinnedPrefix {
  int64_t id = 0;
  int64_t num_tokens = 0;
  int64_t num_pages = 0;   // another pin may share some of them
  std::string owner = {};  // the id of the request that pinned it; empty: the host
};

// Where the states of recurrent layers behind the first num_tokens of a slice go.
struct RecurrentWrite {
  int32_t num_tokens = 0;
  int32_t slot = 0;
};

}  // namespace mlc_native
