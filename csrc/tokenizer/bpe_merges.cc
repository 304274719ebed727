#include "tokenizer/bpe_merges.h"

#include <queue>
#include <tuple>

namespace mlc_native {
namespace {

constexpr int32_t kNone = -1;

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

void BpeMerges::Add(int32_t left, int32_t right, int32_t rank, int32_t merged) {
  merges_.insert_or_assign(PairKey(left, right), Merge{rank, merged});
}

const BpeMerges::Merge* BpeMerges::Find(int32_t left, int32_t right) const {
  const auto found = merges_.find(PairKey(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BpeMerges::Apply(std::vector<int32_t>* token_ids) const {
  const auto count = static_cast<int32_t>(token_ids->size());
  if (count < 2) return;
  std::vector<Symbol> symbols;
  symbols.reserve(token_ids->size());
  for (int32_t i = 0; i < count; ++i) {
    symbols.push_back({(*token_ids)[i], i - 1, i + 1 < count ? i + 1 : kNone});
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
  token_ids->clear();
  for (int32_t i = 0; i != kNone; i = symbols[i].next) token_ids->push_back(symbols[i].token_id);
}

}  // namespace mlc_native
