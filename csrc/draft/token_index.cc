#include "draft/token_index.h"

#include <algorithm>

#include "support/random.h"

namespace mlc_native {

uint64_t TokenIndex::HashOfEnd(std::span<const int32_t> tokens) const {
  uint64_t hash = 0;
  for (int32_t token : tokens.last(static_cast<size_t>(min_match_))) {
    hash = MixBits(hash ^ static_cast<uint32_t>(token));
  }
  return hash;
}

void TokenIndex::Extend(std::span<const int32_t> text) {
  const int64_t size = std::ssize(text);
  next_ = std::clamp(size, min_match_, next_);
  if (chains_.Reserve(text.size())) next_ = min_match_;
  for (; next_ < size; ++next_) {
    chains_.File(HashOfEnd(text.first(static_cast<size_t>(next_))), next_);
  }
}

std::optional<TextMatch> TokenIndex::Find(std::span<const int32_t> text,
                                          std::span<const int32_t> context, int64_t near) const {
  if (std::ssize(context) < min_match_) return std::nullopt;
  BestMatch best(min_match_, near);
  chains_.ForEach(HashOfEnd(context), [&](int64_t at) {
    const int64_t limit = std::min({max_match_, at, std::ssize(context)});
    int64_t length = 0;
    while (at < std::ssize(text) && length < limit &&
           text[at - 1 - length] == context[context.size() - 1 - length]) {
      ++length;
    }
    best.Consider(at, length);
  });
  return best.best();
}

void GoOn(std::span<const int32_t> text, int64_t from, int64_t max_tokens,
          std::vector<int32_t>* drafts) {
  const size_t begin = drafts->size();
  for (auto at = static_cast<size_t>(from); max_tokens > 0; ++at, --max_tokens) {
    drafts->push_back(at < text.size() ? text[at] : (*drafts)[begin + at - text.size()]);
  }
}

}  // namespace mlc_native
