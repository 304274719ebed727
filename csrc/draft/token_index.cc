#include "draft/token_index.h"

#include <algorithm>
#include <cstdlib>

#include "support/random.h"

namespace mlc_native {
namespace {

constexpr size_t kMinHeads = 64;

}  // namespace

size_t TokenIndex::SlotOf(std::span<const int32_t> tokens) const {
  uint64_t hash = 0;
  for (int32_t token : tokens.last(static_cast<size_t>(min_match_))) {
    hash = MixBits(hash ^ static_cast<uint32_t>(token));
  }
  return static_cast<size_t>(hash) & (heads_.size() - 1);
}

void TokenIndex::File(std::span<const int32_t> text, int64_t position) {
  int32_t& head = heads_[SlotOf(text.first(static_cast<size_t>(position)))];
  previous_[static_cast<size_t>(position)] = head;
  head = static_cast<int32_t>(position);
}

void TokenIndex::Extend(std::span<const int32_t> text) {
  const int64_t size = std::ssize(text);
  next_ = std::clamp(size, min_match_, next_);
  if (text.size() > previous_.size()) previous_.resize(2 * text.size(), -1);
  if (text.size() > heads_.size()) {
    size_t num_heads = std::max(kMinHeads, heads_.size());
    while (num_heads < 2 * text.size()) num_heads *= 2;
    heads_.assign(num_heads, -1);
    next_ = min_match_;
  }
  for (; next_ < size; ++next_) File(text, next_);
}

std::optional<TokenIndex::Match> TokenIndex::Find(std::span<const int32_t> text,
                                                  std::span<const int32_t> context,
                                                  int64_t near) const {
  if (std::ssize(context) < min_match_ || heads_.empty()) return std::nullopt;
  std::optional<Match> best;
  int64_t longest = min_match_ - 1;
  int64_t at = heads_[SlotOf(context)];
  for (int i = 0; i < kMaxCandidates && at >= 0; ++i) {
    const int64_t limit = std::min({max_match_, at, std::ssize(context)});
    int64_t length = 0;
    while (at < std::ssize(text) && length < limit &&
           text[at - 1 - length] == context[context.size() - 1 - length]) {
      ++length;
    }
    const bool is_nearer = best && std::abs(at - near) < std::abs(best->position - near);
    if (length > longest || (length == longest && is_nearer)) {
      best = {.position = at, .length = length};
      longest = length;
    }
    const int64_t next = previous_[static_cast<size_t>(at)];
    if (next >= at) break;  // an entry of tokens that the text has lost
    at = next;
  }
  return best;
}

void GoOn(std::span<const int32_t> text, int64_t from, int64_t max_tokens,
          std::vector<int32_t>* drafts) {
  const size_t begin = drafts->size();
  for (auto at = static_cast<size_t>(from); max_tokens > 0; ++at, --max_tokens) {
    drafts->push_back(at < text.size() ? text[at] : (*drafts)[begin + at - text.size()]);
  }
}

}  // namespace mlc_native
