// PagedRadixTree: token sequences by id that store their common prefixes once. The tree of the
// prefix cache without pages, for callers that keep the pages themselves.
//
// A sequence ends at the end of a node, and each node knows the sequences that go through it.
// Caller's errors (unknown or used ids, lengths out of range, no capacity) are InvalidRequest and
// change nothing. One thread.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "kv/radix_tree.h"

namespace mlc_native {

class PagedRadixTree {
 public:
  // capacity: tokens that all edges of the tree may have together.
  explicit PagedRadixTree(int64_t capacity);

  struct Match {
    int64_t length = 0;            // tokens
    std::vector<int64_t> seq_ids;  // that begin with them, ascending; empty for length 0
  };
  // The longest prefix of the tokens that a sequence begins with.
  Match MatchPrefix(std::span<const int32_t> tokens);

  void Add(int64_t seq_id);  // empty
  void Remove(int64_t seq_id);
  void Extend(int64_t seq_id, std::span<const int32_t> tokens);
  void Rollback(int64_t seq_id, int64_t num_tokens);
  // The new sequence has the first `offset` tokens of the parent.
  void Fork(int64_t seq_id, int64_t parent_id, int64_t offset);

  std::vector<int32_t> Get(int64_t seq_id) const;
  int64_t GetLength(int64_t seq_id) const { return EndOf(seq_id).end(); }
  bool Has(int64_t seq_id) const { return ends_.contains(seq_id); }
  int64_t FreeCapacity() const { return capacity_ - num_tokens_; }

 private:
  using Tree = RadixTree<std::set<int64_t>>;  // payload: sequences that go through the node
  using Node = Tree::Node;

  Node& EndOf(int64_t seq_id) const;
  void RequireNew(int64_t seq_id) const;
  // The node that ends at this position of the path to `node`.
  Node& NodeAt(Node& node, int64_t position);
  // Lets the sequence end at the node, which is below its old end.
  void Descend(int64_t seq_id, Node& node);
  // Lets the sequence end at the node, which is above its old end.
  void Ascend(int64_t seq_id, Node& node);

  const int64_t capacity_;
  int64_t num_tokens_ = 0;  // of all edges
  Tree tree_;
  std::unordered_map<int64_t, Node*> ends_;
};

}  // namespace mlc_native
