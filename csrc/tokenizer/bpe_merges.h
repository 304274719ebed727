// BpeMerges is the byte-pair encoding of one word. Immutable after building; any thread.
//
// Merges of lower rank are applied first, and the leftmost one of equal rank. O(n log n) for a word
// of n symbols.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mlc_native {

class BpeMerges {
 public:
  explicit BpeMerges(size_t num_merges = 0);
  // Adjacent tokens `left` and `right` become `merged`. A pair that is added again replaces the
  // earlier merge.
  void Add(int32_t left, int32_t right, int32_t rank, int32_t merged);
  // Merges the tokens from `begin` on until no pair can be merged.
  void Apply(size_t begin, std::vector<int32_t>* token_ids) const;

 private:
  static constexpr uint64_t kNoPair = UINT64_MAX;
  struct Merge {
    uint64_t pair = kNoPair;  // left in the upper half, right in the lower
    int32_t rank = 0;
    int32_t merged = 0;
  };
  size_t SlotOf(uint64_t pair) const;  // where it is, or would be
  // Returns null if the two do not merge.
  const Merge* Find(int32_t left, int32_t right) const;
  void Grow();
  void ApplyToFew(size_t begin, std::vector<int32_t>* token_ids) const;
  void ApplyToMany(size_t begin, std::vector<int32_t>* token_ids) const;

  std::vector<Merge> slots_;  // a hash table with open addressing, at most half full
  size_t size_ = 0;
};

}  // namespace mlc_native
