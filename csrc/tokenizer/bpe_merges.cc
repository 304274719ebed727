#include "tokenizer/bpe_merges.h"

#include <algorithm>
#include <array>
#include <bit>
#include <queue>
#include <tuple>
#include <utility>

namespace mlc_native {
namespace {

constexpr int32_t kNone = -1;
constexpr size_t kFewSymbols = 24;

uint64_t PairKey(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

struct Symbol {
  int32_t token_id;  // kNone once it has been merged into the previous symbol
  int32_t previous;
  int32_t next;
};

struct Candidate {
  int32_t rank;
  int32_t position;  // position of the left symbol
  int32_t merged;

  // The best merge is the greatest, as std::priority_queue requires.
  bool operator<(const Candidate& other) const {
    return std::tie(rank, position) > std::tie(other.rank, other.position);
  }
};

}  // namespace

BpeMerges::BpeMerges(size_t num_merges) : slots_(std::bit_ceil(2 * num_merges + 2)) {}

size_t BpeMerges::SlotOf(uint64_t pair) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = (pair * 0x9E3779B97F4A7C15 >> 32) & mask;
  while (slots_[slot].pair != pair && slots_[slot].pair != kNoPair) slot = (slot + 1) & mask;
  return slot;
}

void BpeMerges::Add(int32_t left, int32_t right, int32_t rank, int32_t merged) {
  if (2 * size_ >= slots_.size()) Grow();
  Merge& slot = slots_[SlotOf(PairKey(left, right))];
  if (slot.pair == kNoPair) ++size_;
  slot = {PairKey(left, right), rank, merged};
}

void BpeMerges::Grow() {
  std::vector<Merge> old(slots_.size() * 2);
  std::swap(old, slots_);
  for (const Merge& merge : old) {
    if (merge.pair != kNoPair) slots_[SlotOf(merge.pair)] = merge;
  }
}

const BpeMerges::Merge* BpeMerges::Find(int32_t left, int32_t right) const {
  const Merge& slot = slots_[SlotOf(PairKey(left, right))];
  return slot.pair == kNoPair ? nullptr : &slot;
}

void BpeMerges::Apply(size_t begin, std::vector<int32_t>* token_ids) const {
  if (token_ids->size() - begin <= kFewSymbols) {
    ApplyToFew(begin, token_ids);
  } else {
    ApplyToMany(begin, token_ids);
  }
}

// Searches all pairs for the best one each time.
void BpeMerges::ApplyToFew(size_t begin, std::vector<int32_t>* token_ids) const {
  std::array<const Merge*, kFewSymbols> merges;  // of each symbol with the next one
  int32_t* ids = token_ids->data() + begin;
  size_t size = token_ids->size() - begin;
  for (size_t i = 0; i + 1 < size; ++i) merges[i] = Find(ids[i], ids[i + 1]);
  while (size > 1) {
    size_t best = size;
    for (size_t i = 0; i + 1 < size; ++i) {
      if (merges[i] == nullptr) continue;
      if (best == size || merges[i]->rank < merges[best]->rank) best = i;
    }
    if (best == size) break;
    ids[best] = merges[best]->merged;
    std::copy(ids + best + 2, ids + size, ids + best + 1);
    --size;
    std::copy(merges.begin() + best + 1, merges.begin() + size, merges.begin() + best);
    if (best + 1 < size) merges[best] = Find(ids[best], ids[best + 1]);
    if (best > 0) merges[best - 1] = Find(ids[best - 1], ids[best]);
  }
  token_ids->resize(begin + size);
}

void BpeMerges::ApplyToMany(size_t begin, std::vector<int32_t>* token_ids) const {
  const auto count = static_cast<int32_t>(token_ids->size() - begin);
  std::vector<Symbol> symbols;
  symbols.reserve(token_ids->size() - begin);
  for (int32_t i = 0; i < count; ++i) {
    symbols.push_back(
        {(*token_ids)[begin + static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : kNone});
  }
  std::priority_queue<Candidate> candidates;
  const auto consider = [&](int32_t left) {
    const int32_t right = left == kNone ? kNone : symbols[left].next;
    if (right == kNone) return;
    const Merge* merge = Find(symbols[left].token_id, symbols[right].token_id);
    if (merge != nullptr) candidates.push({merge->rank, left, merge->merged});
  };
  for (int32_t i = 0; i + 1 < count; ++i) consider(i);

  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Symbol& left = symbols[best.position];
    if (left.token_id == kNone || left.next == kNone) continue;
    Symbol& right = symbols[left.next];
    const Merge* merge = Find(left.token_id, right.token_id);
    if (merge == nullptr || merge->merged != best.merged) continue;  // one of them has changed
    left.token_id = best.merged;
    left.next = right.next;
    right.token_id = kNone;
    if (left.next != kNone) symbols[left.next].previous = best.position;
    consider(left.previous);
    consider(best.position);
  }
  token_ids->resize(begin);
  for (int32_t i = 0; i != kNone; i = symbols[i].next) token_ids->push_back(symbols[i].token_id);
}

}  // namespace mlc_native
