#include "kv/paged_radix_tree.h"

#include <algorithm>
#include <string>

#include "support/error.h"

namespace mlc_native {

PagedRadixTree::PagedRadixTree(int64_t capacity) : capacity_(capacity) {
  if (capacity < 0) {
    throw InvalidRequest("capacity", OutOfRangeMessage("capacity", capacity, "at least 0"));
  }
}

PagedRadixTree::Match PagedRadixTree::MatchPrefix(std::span<const int32_t> tokens) {
  const Tree::Match match = tree_.Find(tokens);
  return {match.length, {match.node->payload.begin(), match.node->payload.end()}};
}

void PagedRadixTree::Add(int64_t seq_id) {
  RequireNew(seq_id);
  ends_[seq_id] = &tree_.root();
}

void PagedRadixTree::Remove(int64_t seq_id) {
  EndOf(seq_id);
  Ascend(seq_id, tree_.root());
  ends_.erase(seq_id);
}

void PagedRadixTree::Extend(int64_t seq_id, std::span<const int32_t> tokens) {
  std::vector<int32_t> all = Get(seq_id);
  all.insert(all.end(), tokens.begin(), tokens.end());
  const Tree::Match match = tree_.Find(all);
  const auto rest = std::span(all).subspan(match.length);
  if (std::ssize(rest) > FreeCapacity()) {
    throw InvalidRequest("tokens", OutOfRangeMessage("tokens", rest.size(),
                                                     "at most " + std::to_string(FreeCapacity()) +
                                                         " new ones (the free capacity)"));
  }
  Node* node = &NodeAt(*match.node, match.length);
  if (!rest.empty()) {
    node = &tree_.AddLeaf(*node, rest);
    num_tokens_ += std::ssize(rest);
  }
  Descend(seq_id, *node);
}

void PagedRadixTree::Rollback(int64_t seq_id, int64_t num_tokens) {
  Node& end = EndOf(seq_id);
  if (num_tokens < 0 || num_tokens > end.end()) {
    throw InvalidRequest(
        "num_tokens",
        OutOfRangeMessage("num_tokens", num_tokens, "in [0, " + std::to_string(end.end()) + ']'));
  }
  Ascend(seq_id, NodeAt(end, end.end() - num_tokens));
}

void PagedRadixTree::Fork(int64_t seq_id, int64_t parent_id, int64_t offset) {
  RequireNew(seq_id);
  Node& end = EndOf(parent_id);
  if (offset < 0 || offset > end.end()) {
    throw InvalidRequest(
        "offset", OutOfRangeMessage("offset", offset, "in [0, " + std::to_string(end.end()) + ']'));
  }
  Descend(seq_id, NodeAt(end, offset));
}

std::vector<int32_t> PagedRadixTree::Get(int64_t seq_id) const {
  const Node* node = &EndOf(seq_id);
  std::vector<int32_t> tokens(node->end());
  for (; node->parent != nullptr; node = node->parent) {
    std::copy(node->tokens.begin(), node->tokens.end(), tokens.begin() + node->begin);
  }
  return tokens;
}

PagedRadixTree::Node& PagedRadixTree::EndOf(int64_t seq_id) const {
  const auto end = ends_.find(seq_id);
  if (end != ends_.end()) return *end->second;
  throw InvalidRequest("seq_id", "There is no sequence " + std::to_string(seq_id));
}

void PagedRadixTree::RequireNew(int64_t seq_id) const {
  if (!Has(seq_id)) return;
  throw InvalidRequest("seq_id", "Sequence " + std::to_string(seq_id) + " is there already");
}

PagedRadixTree::Node& PagedRadixTree::NodeAt(Node& node, int64_t position) {
  Node* at = &node;
  while (at->parent != nullptr && at->begin >= position) at = at->parent;
  if (at->end() == position) return *at;
  std::set<int64_t> seq_ids = at->payload;
  Node& upper = tree_.Split(*at, position);
  upper.payload = std::move(seq_ids);
  return upper;
}

void PagedRadixTree::Descend(int64_t seq_id, Node& node) {
  for (Node* through = &node; through->parent != nullptr; through = through->parent) {
    if (!through->payload.insert(seq_id).second) break;  // the ancestors have it already
  }
  ends_[seq_id] = &node;
}

void PagedRadixTree::Ascend(int64_t seq_id, Node& node) {
  Node* left = &EndOf(seq_id);
  while (left != &node) {
    Node* const parent = left->parent;
    left->payload.erase(seq_id);
    if (left->payload.empty()) {
      num_tokens_ -= std::ssize(left->tokens);
      tree_.RemoveLeaf(*left);
    }
    left = parent;
  }
  ends_[seq_id] = &node;
}

}  // namespace mlc_native
