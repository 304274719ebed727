// BpeMerges is the byte-pair encoding of one word. Immutable after building; any thread.
//
// Merges of lower rank are applied first, and the leftmost one of equal rank, as in
// huggingface/tokenizers (models/bpe/word.rs). O(n log n) for a word of n symbols.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace mlc_native {

class BpeMerges {
 public:
  void Reserve(size_t num_merges) { merges_.reserve(num_merges); }
  // Adjacent tokens `left` and `right` become `merged`. A pair that is added again replaces the
  // earlier merge.
  void Add(int32_t left, int32_t right, int32_t rank, int32_t merged);
  // Merges until no pair can be merged.
  void Apply(std::vector<int32_t>* token_ids) const;

 private:
  struct Merge {
    int32_t rank;
    int32_t merged;
  };
  // Returns null if the two do not merge.
  const Merge* Find(int32_t left, int32_t right) const;

  std::unordered_map<uint64_t, Merge> merges_;  // key: left in the upper half, right in the lower
};

}  // namespace mlc_native
