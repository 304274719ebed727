// BpeMerges: byte-pair encoding of one word. Immutable after building; any thread.
//
// The merges of lower rank come first, of equal ones the leftmost: as huggingface/tokenizers
// (models/bpe/word.rs). O(n log n) for a word of n symbols.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace mlc_native {

class BpeMerges {
 public:
  void Reserve(size_t num_merges) { merges_.reserve(num_merges); }
  // Tokens `left` and `right` side by side become `merged`. Of equal pairs the last one counts.
  void Add(int32_t left, int32_t right, int32_t rank, int32_t merged);
  // Merges until nothing more can be merged.
  void Apply(std::vector<int32_t>* token_ids) const;

 private:
  struct Merge {
    int32_t rank;
    int32_t merged;
  };
  // Null when the two do not merge.
  const Merge* Find(int32_t left, int32_t right) const;

  std::unordered_map<uint64_t, Merge> merges_;  // left in the upper half of the key
};

}  // namespace mlc_native
