#include "kv/radix_tree.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace mlc_native {
namespace {

using Tree = RadixTree<std::string>;
using Tokens = std::vector<int32_t>;

// Adds a sequence as its users do; returns the node that it ends at.
Tree::Node& Insert(Tree& tree, const Tokens& tokens) {
  const Tree::Match match = tree.Find(tokens);
  const auto rest = std::span(tokens).subspan(match.length);
  Tree::Node& node =
      match.length < match.node->end() ? tree.Split(*match.node, match.length) : *match.node;
  return rest.empty() ? node : tree.AddLeaf(node, rest);
}

TEST(RadixTree, FindsTheLongestPrefix) {
  Tree tree;
  Insert(tree, {1, 2, 3, 4});
  EXPECT_EQ(tree.Find(Tokens{1, 2, 3, 4, 5}).length, 4);
  EXPECT_EQ(tree.Find(Tokens{1, 2, 9}).length, 2);
  EXPECT_EQ(tree.Find(Tokens{9}).length, 0);
  EXPECT_EQ(tree.Find({}).length, 0);
  EXPECT_EQ(tree.Find(Tokens{9}).node, &tree.root());
}

TEST(RadixTree, ASplitKeepsThePayloadBelow) {
  Tree tree;
  Tree::Node& leaf = Insert(tree, {1, 2, 3, 4});
  leaf.payload = "leaf";
  Tree::Node& upper = tree.Split(leaf, 3);
  EXPECT_EQ(upper.payload, "");
  EXPECT_EQ(leaf.payload, "leaf");
  EXPECT_EQ(upper.tokens, (Tokens{1, 2, 3}));
  EXPECT_EQ(leaf.tokens, (Tokens{4}));
  EXPECT_EQ(leaf.begin, 3);
  EXPECT_EQ(leaf.parent, &upper);
  EXPECT_FALSE(upper.is_leaf());
  tree.Audit();
}

TEST(RadixTree, LeavesGrowShrinkAndGo) {
  Tree tree;
  Tree::Node& leaf = Insert(tree, {1, 2});
  tree.ExtendLeaf(leaf, Tokens{3, 4});
  EXPECT_EQ(tree.Find(Tokens{1, 2, 3, 4}).length, 4);
  tree.TruncateLeaf(leaf, 3);
  EXPECT_EQ(tree.Find(Tokens{1, 2, 3, 4}).length, 3);
  tree.RemoveLeaf(leaf);
  EXPECT_EQ(tree.Find(Tokens{1, 2}).length, 0);
  EXPECT_EQ(tree.oldest(), nullptr);
  tree.Audit();
}

TEST(RadixTree, TheOldestIsTheLeafThatWasTouchedLeastRecently) {
  Tree tree;
  Tree::Node& a = Insert(tree, {1, 2});
  Tree::Node& b = Insert(tree, {1, 3});
  Tree::Node& c = Insert(tree, {4});
  EXPECT_EQ(tree.oldest(), &a);
  tree.Touch(a);
  EXPECT_EQ(tree.oldest(), &b);
  tree.RemoveLeaf(b);
  EXPECT_EQ(tree.oldest(), &c);
  tree.RemoveLeaf(c);
  EXPECT_EQ(tree.oldest(), &a);
  tree.RemoveLeaf(a);
  EXPECT_EQ(tree.oldest()->tokens, (Tokens{1})) << "what the two had in common";
  tree.Audit();
}

TEST(RadixTree, ARootMayHaveManyChildren) {
  Tree tree;
  for (int32_t token = 0; token < 10000; ++token) Insert(tree, {token, 1, 2});
  for (int32_t token = 0; token < 10000; ++token) {
    EXPECT_EQ(tree.Find(Tokens{token, 1, 3}).length, 2);
  }
  EXPECT_EQ(tree.num_nodes(), 10000);
  tree.Audit();
  tree.Clear();
  EXPECT_EQ(tree.Find(Tokens{5}).length, 0);
  EXPECT_EQ(tree.oldest(), nullptr);
}

int64_t CommonPrefix(const Tokens& a, const Tokens& b) {
  return std::mismatch(a.begin(), a.begin() + std::min(a.size(), b.size()), b.begin()).first -
         a.begin();
}

TEST(RadixTree, RandomSequencesAreFoundAsInAList) {
  std::mt19937 rng(1);
  const auto random = [&](int bound) {
    return std::uniform_int_distribution<int>(0, bound - 1)(rng);
  };
  for (int round = 0; round < 30; ++round) {
    Tree tree;
    std::vector<Tokens> all;
    for (int i = 0; i < 100; ++i) {
      Tokens tokens(1 + random(12));
      for (int32_t& token : tokens) token = random(3);
      int64_t expected = 0;
      for (const Tokens& other : all) expected = std::max(expected, CommonPrefix(tokens, other));
      ASSERT_EQ(tree.Find(tokens).length, expected);
      if (random(3) == 0) {
        tree.Touch(*tree.Find(tokens).node);
      } else {
        Insert(tree, tokens);
        all.push_back(tokens);
      }
      tree.Audit();
    }
    while (Tree::Node* oldest = tree.oldest()) {
      ASSERT_TRUE(oldest->is_leaf());
      tree.RemoveLeaf(*oldest);
      tree.Audit();
    }
  }
}

}  // namespace
}  // namespace mlc_native
