#include "kv/paged_radix_tree.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "support/error.h"

namespace mlc_native {
namespace {

using Tokens = std::vector<int32_t>;
using Ids = std::vector<int64_t>;

TEST(PagedRadixTree, ForksAreFoundByTheirTokens) {
  PagedRadixTree tree(100);
  tree.Add(0);
  tree.Extend(0, Tokens{0, 1, 2, 3});
  tree.Fork(1, 0, 3);
  tree.Extend(1, Tokens{4});
  tree.Fork(2, 0, 3);
  tree.Extend(2, Tokens{5});
  EXPECT_EQ(tree.MatchPrefix(Tokens{0, 1, 2, 4}).seq_ids, (Ids{1}));
  EXPECT_EQ(tree.MatchPrefix(Tokens{0, 1, 2, 5}).seq_ids, (Ids{2}));
  EXPECT_EQ(tree.MatchPrefix(Tokens{0, 1}).seq_ids, (Ids{0, 1, 2}));
  EXPECT_EQ(tree.MatchPrefix(Tokens{7}).seq_ids, Ids{});
  EXPECT_EQ(tree.FreeCapacity(), 94);
}

TEST(PagedRadixTree, CallersErrorsChangeNothing) {
  PagedRadixTree tree(4);
  tree.Add(0);
  tree.Extend(0, Tokens{1, 2, 3});
  EXPECT_THROW(tree.Add(0), InvalidRequest);
  EXPECT_THROW(tree.Remove(1), InvalidRequest);
  EXPECT_THROW(tree.Extend(0, (Tokens{4, 5})), InvalidRequest);
  EXPECT_THROW(tree.Rollback(0, 4), InvalidRequest);
  EXPECT_THROW(tree.Fork(0, 0, 1), InvalidRequest);
  EXPECT_THROW(tree.Fork(1, 0, 4), InvalidRequest);
  EXPECT_THROW(PagedRadixTree(-1), InvalidRequest);
  EXPECT_EQ(tree.Get(0), (Tokens{1, 2, 3}));
  EXPECT_FALSE(tree.Has(1));
  EXPECT_EQ(tree.FreeCapacity(), 1);
}

TEST(PagedRadixTree, RandomOperationsAsOnLists) {
  std::mt19937 rng(3);
  const auto random = [&](size_t bound) {
    return std::uniform_int_distribution<int64_t>(0, static_cast<int64_t>(bound) - 1)(rng);
  };
  PagedRadixTree tree(100000);
  std::map<int64_t, Tokens> expected;
  for (int64_t i = 0; i < 5000; ++i) {
    const int64_t kind = random(6);
    if (expected.empty() || kind == 0) {
      tree.Add(i);
      expected[i] = {};
      continue;
    }
    const auto chosen = std::next(expected.begin(), random(expected.size()));
    const int64_t id = chosen->first;
    Tokens& tokens = chosen->second;
    const int64_t length = random(tokens.size() + 1);
    if (kind == 1) {
      tree.Remove(id);
      expected.erase(id);
    } else if (kind == 2) {
      tree.Rollback(id, length);
      tokens.resize(tokens.size() - length);
    } else if (kind == 3) {
      tree.Fork(i, id, length);
      expected[i] = Tokens(tokens.begin(), tokens.begin() + length);
    } else {
      Tokens more(random(6));
      for (int32_t& token : more) token = static_cast<int32_t>(random(2));
      tree.Extend(id, more);
      tokens.insert(tokens.end(), more.begin(), more.end());
      const PagedRadixTree::Match match = tree.MatchPrefix(tokens);
      ASSERT_EQ(match.length, std::ssize(tokens));
      Ids ids;
      for (const auto& [other, list] : expected) {
        if (list.size() >= tokens.size() && std::equal(tokens.begin(), tokens.end(), list.begin()))
          ids.push_back(other);
      }
      if (!tokens.empty()) ASSERT_EQ(match.seq_ids, ids);
    }
    for (const auto& [other, list] : expected) ASSERT_EQ(tree.Get(other), list);
  }
  while (!expected.empty()) {
    tree.Remove(expected.begin()->first);
    expected.erase(expected.begin());
  }
  EXPECT_EQ(tree.FreeCapacity(), 100000);
}

}  // namespace
}  // namespace mlc_native
