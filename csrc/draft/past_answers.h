// PastAnswers remembers what sequences of this engine have said, and finds how an answer may go on.
//
// Tokens lie in a ring of a fixed size: the oldest are written over first, and the memory never
// exceeds the bound that it was made with. Each position of an answer is filed under the min_match
// tokens before it, in hash chains that lead from the latest position to older ones. A search looks
// at kMaxCandidates positions of one chain and at most kMaxMatch tokens before each, and adding a
// token is O(1), whatever has been said.
//
// An answer belongs to the space of its request (GenerationConfig::cache_salt), which every
// comparison includes: what is found in one space depends on the tokens of that space alone. The
// chains of all spaces share their heads, in places that follow from the number of the space, which
// is secret. Owned by Speculation; engine's thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace mlc_native {

class PastAnswers {
 public:
  static constexpr int kMaxCandidates = 16;
  // Tokens of a match, unless min_match is more. So many tokens of a prompt are remembered in front
  // of its answer.
  static constexpr int64_t kMaxMatch = 24;
  static constexpr int64_t kMinBytes = 4096;

  // Requires: max_bytes >= kMinBytes, 1 <= min_match.
  PastAnswers(int64_t max_bytes, int64_t min_match);

  // Remembers tokens[prompt_len:], which are an answer. Never allocates more than the bound; what
  // cannot be remembered for lack of memory is dropped.
  void Add(int64_t space, std::span<const int32_t> tokens, int64_t prompt_len) noexcept;

  // Appends to `drafts` how the answers with the longest match of the end of `context` went on, if
  // that match has at least min_length tokens: at each place what most of them said that have
  // agreed so far, up to max_tokens, the length of the match, or where fewer than a tenth agree.
  void Find(int64_t space, std::span<const int32_t> context, int64_t min_length, int64_t max_tokens,
            std::vector<int32_t>* drafts) const;

  void Clear();
  int64_t num_tokens() const { return std::ssize(ring_); }
  int64_t max_bytes() const;  // that the ring and the heads may take

 private:
  // A token of the ring. An answer begins with two entries that hold the number of its space.
  struct Entry {
    int32_t token = 0;
    uint32_t offset = 0;  // from the first entry of its answer
    uint32_t back = 0;    // to the position before it in its chain; 0: none
  };
  struct Candidates {
    int64_t positions[kMaxCandidates];
    int count = 0;
    int64_t length = 0;  // of their matches
  };
  static constexpr int64_t kHeaderEntries = 2;

  const Entry& At(int64_t position) const { return ring_[position % capacity_]; }
  bool IsKept(int64_t position) const {
    return position >= 0 && position < end_ && position >= end_ - capacity_;
  }
  // There is a token of an answer at `position`, and all of its answer before it is kept.
  bool IsToken(int64_t position) const;
  void Push(const Entry& entry);
  // The place in heads_ of the positions behind these tokens, of which the last min_match count.
  size_t SlotOf(int64_t space, std::span<const int32_t> tokens) const;
  int64_t SpaceOf(int64_t position) const;
  int64_t MatchAt(int64_t position, std::span<const int32_t> context) const;
  Candidates Longest(int64_t space, std::span<const int32_t> context) const;

  const int64_t capacity_;  // entries
  const int64_t min_match_;
  const int64_t max_match_;
  std::vector<Entry> ring_;
  // The low bits of the latest position of each chain; a power of two. What a head that was never
  // set or is out of date leads to is compared like the rest.
  std::vector<uint32_t> heads_;
  int64_t end_ = 0;  // position of the next entry
};

}  // namespace mlc_native
