#include "sampling/token_counts.h"

#include <algorithm>

#include "support/check.h"
#include "support/random.h"

namespace mlc_native {

void TokenCounts::Add(int32_t token_id) {
  if (2 * (counts_.size() + 1) > slots_.size()) Grow();
  int32_t& index = slots_[SlotOf(token_id)];
  if (index < 0) {
    index = static_cast<int32_t>(counts_.size());
    counts_.emplace_back(token_id, 0);
  }
  ++counts_[index].second;
}

void TokenCounts::Remove(int32_t token_id) {
  const int32_t index = slots_.empty() ? -1 : slots_[SlotOf(token_id)];
  MLC_CHECK(index >= 0 && counts_[index].second > 0) << "token " << token_id << " was not counted";
  --counts_[index].second;
}

void TokenCounts::Clear() {
  counts_.clear();
  slots_.clear();
}

// Returns the slot of the token, or the free slot where it belongs.
size_t TokenCounts::SlotOf(int32_t token_id) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = MixBits(static_cast<uint32_t>(token_id)) & mask;
  while (slots_[slot] >= 0 && counts_[slots_[slot]].first != token_id) slot = (slot + 1) & mask;
  return slot;
}

void TokenCounts::Grow() {
  slots_.assign(std::max<size_t>(16, 2 * slots_.size()), -1);
  for (size_t i = 0; i < counts_.size(); ++i) {
    slots_[SlotOf(counts_[i].first)] = static_cast<int32_t>(i);
  }
}

}  // namespace mlc_native
