// Counts of a sequence's generated tokens, for penalties. O(1) amortised per token, whatever the
// length of the answer. One per sequence; not thread safe.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace mlc_native {

// (token id, occurrences), each token at most once.
using TokenCountsView = std::span<const std::pair<int32_t, int32_t>>;

class TokenCounts {
 public:
  void Add(int32_t token_id);
  // Takes one occurrence back; there must be one.
  void Remove(int32_t token_id);
  void Clear();
  // (token id, occurrences), in order of first appearance; 0 occurrences when all were taken back.
  TokenCountsView counts() const { return counts_; }

 private:
  size_t SlotOf(int32_t token_id) const;
  void Grow();

  std::vector<std::pair<int32_t, int32_t>> counts_;
  // Open addressing: index into counts_, -1 when free. Size is a power of two, at most half full.
  std::vector<int32_t> slots_;
};

}  // namespace mlc_native
