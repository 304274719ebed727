// CacheSpace is what the keys and values of tokens depend on besides the tokens in front of them,
// or must not be shared across. Sequences of one space share cached pages; those of different
// spaces never do. A plain value; any thread.
#pragma once

#include <cstdint>

namespace mlc_native {

struct CacheSpace {
  int64_t salt;     // GenerationConfig::cache_salt
  int64_t adapter;  // the id of the adapter; 0: none
  int64_t rows;     // the round of the ids of rows (InputRowIds); 0 without any

  // A salt alone is the space of what the model computes of tokens without an adapter.
  constexpr CacheSpace(int64_t salt = 0, int64_t adapter = 0, int64_t rows = 0)
      : salt(salt), adapter(adapter), rows(rows) {}

  auto operator<=>(const CacheSpace&) const = default;
};

}  // namespace mlc_native
