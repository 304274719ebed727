// PagedRadixTree stores token sequences by id, and their common prefixes once. It is the tree of
// the prefix cache without pages, for callers that manage pages themselves.
//
// Every sequence ends at the end of a node, and each node has the set of sequences that pass
// through it. Errors of the caller (ids that are unknown or in use, lengths out of range, no
// capacity) throw InvalidRequest and change nothing. Not thread-safe.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "kv/radix_tree.h"
#include "mlc_native/detail/export.h"

namespace mlc_native {

class MLC_NATIVE_PRIVATE_API PagedRadixTree {
 public:
  // `capacity` bounds the tokens of all edges together.
  explicit PagedRadixTree(int64_t capacity);

  struct Match {
    int64_t length = 0;            // tokens
    std::vector<int64_t> seq_ids;  // sequences with this prefix, ascending; empty for length 0
  };
  // Returns the longest prefix of `tokens` that some sequence begins with.
  Match MatchPrefix(std::span<const int32_t> tokens);

  void Add(int64_t seq_id);  // adds an empty sequence
  void Remove(int64_t seq_id);
  void Extend(int64_t seq_id, std::span<const int32_t> tokens);
  void Rollback(int64_t seq_id, int64_t num_tokens);
  // Adds a sequence with the first `offset` tokens of the parent.
  void Fork(int64_t seq_id, int64_t parent_id, int64_t offset);

  std::vector<int32_t> Get(int64_t seq_id) const;
  int64_t GetLength(int64_t seq_id) const { return EndOf(seq_id).end(); }
  bool Has(int64_t seq_id) const { return ends_.contains(seq_id); }
  int64_t FreeCapacity() const { return capacity_ - num_tokens_; }

 private:
  using Tree = RadixTree<std::set<int64_t>>;  // payload: sequences that pass through the node
  using Node = Tree::Node;

  Node& EndOf(int64_t seq_id) const;
  void RequireNew(int64_t seq_id) const;
  // Returns the node of the path to `node` that ends at this position, splitting one if needed.
  Node& NodeAt(Node& node, int64_t position);
  // Moves the end of the sequence down to `node`.
  void Descend(int64_t seq_id, Node& node);
  // Moves the end of the sequence up to `node`.
  void Ascend(int64_t seq_id, Node& node);

  const int64_t capacity_;
  int64_t num_tokens_ = 0;  // in all edges
  Tree tree_;
  std::unordered_map<int64_t, Node*> ends_;
};

}  // namespace mlc_native
