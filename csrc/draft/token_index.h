// TokenIndex finds earlier occurrences of the end of a text: hash chains over the tokens, as LZ77
// compressors have them.
//
// Every position is filed under the min_match tokens before it. A new token costs O(1) amortized,
// and a search looks at the latest positions only, however long the text is (HashChains). The text
// itself belongs to the caller and is passed to each call. It may lose tokens at its end and grow
// again; an entry that has become wrong costs a missed match, because what is found is compared
// with the text. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "draft/hash_chains.h"

namespace mlc_native {

class TokenIndex {
 public:
  // Requires: 1 <= min_match <= max_match.
  TokenIndex(int64_t min_match, int64_t max_match)
      : min_match_(min_match), max_match_(max_match), next_(min_match) {}

  // Files the positions of `text` that are new since the last call.
  void Extend(std::span<const int32_t> text);

  // Returns the longest match of the end of `context` in `text`, or nothing if fewer than min_match
  // tokens match. Matches longer than max_match count as that long. Of equally long ones, the one
  // nearest to position `near` is taken.
  std::optional<TextMatch> Find(std::span<const int32_t> text, std::span<const int32_t> context,
                                int64_t near) const;

 private:
  // Of the last min_match tokens.
  uint64_t HashOfEnd(std::span<const int32_t> tokens) const;

  const int64_t min_match_;
  const int64_t max_match_;
  int64_t next_;  // the first position that is not filed
  HashChains chains_;
};

// Appends the max_tokens tokens of `text` from a position on. A text that repeats itself goes on
// with its own guesses.
void GoOn(std::span<const int32_t> text, int64_t from, int64_t max_tokens,
          std::vector<int32_t>* drafts);

}  // namespace mlc_native
