// HashChains files positions of a text by a hash and finds them again, the latest first.
//
// Filing is O(1) amortized, and a search visits kMaxCandidates positions at most, whatever has been
// filed. Positions of other texts may be in a chain (equal places in the table, or a text that has
// lost its end), so the caller compares what it finds with the text. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <vector>

namespace mlc_native {

class HashChains {
 public:
  static constexpr int kMaxCandidates = 16;

  // Makes room for the positions below `size`. Returns true if nothing is filed afterwards.
  bool Reserve(size_t size) {
    if (size > previous_.size()) previous_.resize(2 * size, -1);
    if (size <= heads_.size()) return false;
    size_t num_heads = std::max(kMinHeads, heads_.size());
    while (num_heads < 2 * size) num_heads *= 2;
    heads_.assign(num_heads, -1);
    return true;
  }

  // Requires: there is room for the position.
  void File(uint64_t hash, int64_t position) {
    int32_t& head = heads_[static_cast<size_t>(hash) & (heads_.size() - 1)];
    previous_[static_cast<size_t>(position)] = head;
    head = static_cast<int32_t>(position);
  }

  // Calls visit(position) for the latest positions that may have this hash.
  template <typename Visit>
  void ForEach(uint64_t hash, const Visit& visit) const {
    if (heads_.empty()) return;
    int64_t at = heads_[static_cast<size_t>(hash) & (heads_.size() - 1)];
    for (int i = 0; i < kMaxCandidates && at >= 0; ++i) {
      visit(at);
      const int64_t next = previous_[static_cast<size_t>(at)];
      if (next >= at) return;  // an entry that was filed before the text lost its end
      at = next;
    }
  }

 private:
  static constexpr size_t kMinHeads = 64;

  std::vector<int32_t> heads_;     // the latest position of each chain, or -1; a power of two
  std::vector<int32_t> previous_;  // [position] the one before it in its chain, or -1
};

// A place of a text whose end matches something.
struct TextMatch {
  int64_t position = 0;  // behind it
  int64_t length = 0;
};

// Keeps the longest match; of equally long ones, the one nearest to a position.
class BestMatch {
 public:
  // Matches shorter than min_length do not count.
  BestMatch(int64_t min_length, int64_t near) : longest_(min_length - 1), near_(near) {}

  void Consider(int64_t position, int64_t length) {
    const bool is_nearer = best_ && std::abs(position - near_) < std::abs(best_->position - near_);
    if (length < longest_ || (length == longest_ && !is_nearer)) return;
    best_ = {.position = position, .length = length};
    longest_ = length;
  }
  const std::optional<TextMatch>& best() const { return best_; }

 private:
  int64_t longest_;
  const int64_t near_;
  std::optional<TextMatch> best_;
};

}  // namespace mlc_native
