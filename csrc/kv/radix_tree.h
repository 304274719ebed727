// RadixTree stores sequences of token ids with shared prefixes; each node has a payload.
//
// Sequences belong to spaces; those of different spaces share no node except the
// root, whatever their tokens are.
//
// An edge has one or more tokens and belongs to the node that it leads to; siblings of a
// space begin with different tokens. One hash map finds all children, so a node may have any number
// of them. Nodes are linked in order of use, and every parent is more recent than its children, so
// oldest() is always a leaf. A change that throws (no memory) leaves the tree as it was. The tree
// has no notion of pages or sequences. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kv/cache_space.h"
#include "support/check.h"
#include "support/random.h"

namespace mlc_native {

template <typename Payload>
class RadixTree {
 public:
  struct Node {
    std::vector<int32_t> tokens;  // of the edge that leads here; empty only at the root
    CacheSpace space{};  // of the sequences that pass through; of the root, that of nothing
    int64_t begin = 0;   // position of tokens[0] in the sequences that pass through
    Payload payload;

    Node* parent = nullptr;
    Node* first_child = nullptr;
    Node* next_sibling = nullptr;
    Node* prev_sibling = nullptr;
    Node* older = nullptr;  // a ring through the root, which counts as the most recent
    Node* newer = nullptr;

    int64_t end() const { return begin + static_cast<int64_t>(tokens.size()); }
    bool is_leaf() const { return first_child == nullptr; }
  };

  // The first `length` tokens of a sequence end within `node` or at its end.
  struct Match {
    Node* node = nullptr;
    int64_t length = 0;
  };

  RadixTree() { root_.older = root_.newer = &root_; }
  RadixTree(const RadixTree&) = delete;
  RadixTree& operator=(const RadixTree&) = delete;

  // Returns the longest prefix of `tokens` in the space. Does not count as a use.
  Match Find(std::span<const int32_t> tokens, CacheSpace space = {}) {
    Match match{&root_, 0};
    while (match.length < std::ssize(tokens)) {
      const auto edge = edges_.find({match.node, tokens[match.length], space});
      if (edge == edges_.end()) break;
      match.node = edge->second.get();
      const auto rest = tokens.subspan(match.length);
      const std::vector<int32_t>& own = match.node->tokens;
      const size_t most = std::min(rest.size(), own.size());
      const auto differ = std::mismatch(own.begin(), own.begin() + most, rest.begin()).first;
      match.length += differ - own.begin();
      if (differ != own.end()) break;
    }
    return match;
  }

  // Splits a node at a position inside it. The node itself becomes the lower part and keeps its
  // payload and children. Returns the upper part, whose payload is empty.
  Node& Split(Node& node, int64_t position) {
    MLC_CHECK(position > node.begin && position < node.end()) << position;
    const auto cut = node.tokens.begin() + (position - node.begin);
    auto made = std::make_unique<Node>();
    Node& upper = *made;
    upper.tokens.assign(node.tokens.begin(), cut);
    std::unique_ptr<Node>& lower_edge = edges_[{&upper, *cut, node.space}];
    // Nothing below throws: the tokens only move within their memory.
    std::unique_ptr<Node>& upper_edge = edges_.find(KeyOf(node))->second;
    lower_edge = std::exchange(upper_edge, std::move(made));
    upper.space = node.space;
    upper.begin = std::exchange(node.begin, position);
    node.tokens.erase(node.tokens.begin(), cut);
    Node& parent = *node.parent;
    UnlinkChild(node);
    LinkChild(parent, upper);
    LinkChild(upper, node);
    LinkNewerThan(node, upper);
    return upper;
  }

  // Adds a leaf, which counts as used now. Requires: the space is the parent's, or it is the root.
  Node& AddLeaf(Node& parent, std::span<const int32_t> tokens, CacheSpace space = {}) {
    MLC_CHECK(!tokens.empty());
    MLC_CHECK(&parent == &root_ || parent.space == space)
        << parent.space.salt << " and " << space.salt;
    auto made = std::make_unique<Node>();
    Node& leaf = *made;
    leaf.tokens.assign(tokens.begin(), tokens.end());
    leaf.space = space;
    leaf.begin = parent.end();
    const bool is_new = edges_.try_emplace({&parent, tokens[0], space}, std::move(made)).second;
    MLC_CHECK(is_new) << "token " << tokens[0] << " leads somewhere already";
    LinkChild(parent, leaf);
    LinkNewerThan(*root_.older, leaf);
    Touch(leaf);
    return leaf;
  }

  // The only changes of Node::tokens that are allowed: tokens are appended to a leaf or dropped
  // from its end, and at least one remains.
  void ExtendLeaf(Node& leaf, std::span<const int32_t> tokens) {
    leaf.tokens.insert(leaf.tokens.end(), tokens.begin(), tokens.end());
  }
  void TruncateLeaf(Node& leaf, int64_t end) { leaf.tokens.resize(end - leaf.begin); }

  void RemoveLeaf(Node& leaf) {
    UnlinkChild(leaf);
    leaf.older->newer = leaf.newer;
    leaf.newer->older = leaf.older;
    edges_.erase(edges_.find(KeyOf(leaf)));
  }

  void Clear() {
    edges_.clear();
    root_.first_child = nullptr;
    root_.older = root_.newer = &root_;
  }

  // Marks the node and its ancestors as used now.
  void Touch(Node& node) {
    for (Node* used = &node; used != &root_; used = used->parent) {
      used->older->newer = used->newer;
      used->newer->older = used->older;
      LinkNewerThan(*root_.older, *used);
    }
  }

  Node& root() { return root_; }
  const Node& root() const { return root_; }
  // Returns the least recently used node, which is a leaf; null if there is only the root.
  Node* oldest() { return root_.newer == &root_ ? nullptr : root_.newer; }
  int64_t num_nodes() const { return std::ssize(edges_); }  // without the root

  // Calls visit(node) for all nodes except the root, the oldest first.
  template <typename Visitor>
  void ForEach(const Visitor& visit) const {
    for (const Node* node = root_.newer; node != &root_; node = node->newer) visit(*node);
  }

  // Checks links, positions and the order of use. Throws InternalError.
  void Audit() const {
    int64_t num_linked = 0;
    int64_t num_children = NumChildren(root_);
    std::unordered_map<const Node*, int64_t> age;
    ForEach([&](const Node& node) {
      MLC_CHECK(!node.tokens.empty() && node.begin == node.parent->end()) << node.begin;
      MLC_CHECK(edges_.at(KeyOf(node)).get() == &node) << node.begin;
      MLC_CHECK(node.parent == &root_ || node.parent->space == node.space) << node.begin;
      MLC_CHECK(node.newer->older == &node && node.older->newer == &node) << node.begin;
      MLC_CHECK(!age.contains(node.parent)) << "older than its child: " << node.parent->begin;
      age[&node] = num_linked++;
      num_children += NumChildren(node);
    });
    MLC_CHECK(num_linked == num_nodes() && num_children == num_nodes())
        << num_linked << " in order, " << num_children << " children of " << num_nodes();
  }

 private:
  struct EdgeKey {
    const Node* parent;
    int32_t token;
    CacheSpace space;
    bool operator==(const EdgeKey&) const = default;
  };
  struct EdgeHash {
    size_t operator()(const EdgeKey& key) const {
      return MixBits(reinterpret_cast<uintptr_t>(key.parent) ^
                     (uint64_t{static_cast<uint32_t>(key.token)} << 32) ^
                     MixBits(static_cast<uint64_t>(key.space.salt) ^
                             MixBits(static_cast<uint64_t>(key.space.adapter))));
    }
  };

  static EdgeKey KeyOf(const Node& node) { return {node.parent, node.tokens[0], node.space}; }

  // Inserts `node` as the next newer one of `other`, which is in the ring.
  static void LinkNewerThan(Node& other, Node& node) {
    node.older = &other;
    node.newer = other.newer;
    other.newer->older = &node;
    other.newer = &node;
  }

  static void LinkChild(Node& parent, Node& child) {
    child.parent = &parent;
    child.prev_sibling = nullptr;
    child.next_sibling = parent.first_child;
    if (parent.first_child != nullptr) parent.first_child->prev_sibling = &child;
    parent.first_child = &child;
  }

  static void UnlinkChild(Node& child) {
    (child.prev_sibling ? child.prev_sibling->next_sibling : child.parent->first_child) =
        child.next_sibling;
    if (child.next_sibling != nullptr) child.next_sibling->prev_sibling = child.prev_sibling;
  }

  static int64_t NumChildren(const Node& node) {
    int64_t count = 0;
    for (const Node* child = node.first_child; child != nullptr; child = child->next_sibling) {
      MLC_CHECK(child->parent == &node) << child->begin;
      ++count;
    }
    return count;
  }

  Node root_;
  std::unordered_map<EdgeKey, std::unique_ptr<Node>, EdgeHash> edges_;  // owns the nodes
};

}  // namespace mlc_native
