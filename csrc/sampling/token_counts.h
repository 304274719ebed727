// TokenCounts counts the generated tokens of one sequence, for penalties, in amortised O(1) per
// token. Owned by the sequence; not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "mlc_native/detail/export.h"

namespace mlc_native {

// (token id, occurrences), each token at most once.
using TokenCountsView = std::span<const std::pair<int32_t, int32_t>>;

class MLC_NATIVE_PRIVATE_API TokenCounts {
 public:
  void Add(int32_t token_id);
  // Removes one occurrence. Requires: there is one.
  void Remove(int32_t token_id);
  void Clear();
  // The counts in order of first appearance. A token whose occurrences were all removed counts 0.
  TokenCountsView counts() const { return counts_; }

 private:
  size_t SlotOf(int32_t token_id) const;
  void Grow();

  std::vector<std::pair<int32_t, int32_t>> counts_;
  // Hash table with open addressing: indices into counts_, or -1. The size is a power of two, and
  // at most half of the slots are used.
  std::vector<int32_t> slots_;
};

}  // namespace mlc_native
