// How channels of keys are evened out before keys become 8 bits.
#include "models/key_balance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "support/check.h"

namespace mlc_native {
namespace {

constexpr KeyHeads kWithoutRope{.q_heads = 4, .kv_heads = 2, .head_dim = 4};

TEST(KeyBalance, IsAPowerOfTwoOfEachChannel) {
  // 0.75 of the logarithm of 16, of 2, which is rounded to 1, and of 1 / 16.
  EXPECT_EQ(BalanceOf(std::vector<float>{1, 16, 1, 1, 2, 1, 1, 0.0625f}, kWithoutRope),
            (std::vector<float>{1, 8, 1, 1, 2, 1, 1, 0.125f}));
}

TEST(KeyBalance, ChannelsThatRopeMixesHaveTheSame) {
  KeyHeads heads{.q_heads = 1, .kv_heads = 1, .head_dim = 8, .rotary_dim = 6};
  const std::vector<float> largest{16, 1, 1, 1, 1, 1, 1, 16};
  EXPECT_EQ(BalanceOf(largest, heads), (std::vector<float>{8, 1, 1, 8, 1, 1, 1, 8}));
  heads.interleaved = true;
  EXPECT_EQ(BalanceOf(largest, heads), (std::vector<float>{8, 8, 1, 1, 1, 1, 1, 8}));
}

TEST(KeyBalance, LeavesAloneWhatHasNoSize) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(BalanceOf(std::vector<float>{0, 0, 0, 1, kInf, 1, kNan, 1}, kWithoutRope),
            std::vector<float>(8, 1.0f));
  EXPECT_EQ(BalanceOf(std::vector<float>{1, 1, 1, 1e30f, 1, 1, 1, 1e-30f}, kWithoutRope),
            (std::vector<float>{1, 1, 1, 256, 1, 1, 1, 1.0f / 256}));
}

TEST(KeyBalance, QueriesUndoWhatKeysAreDividedBy) {
  const std::vector<float> balance{1, 8, 1, 1, 2, 1, 1, 0.125f};
  const std::vector<float> scales = BalancingScales(balance, kWithoutRope);
  EXPECT_EQ(scales,
            (std::vector<float>{1, 8,      1, 1,      1,    8, 1, 1,       // queries of the first
                                2, 1,      1, 0.125f, 2,    1, 1, 0.125f,  // of the second
                                1, 0.125f, 1, 1,      0.5f, 1, 1, 8}));    // keys
}

TEST(KeyBalance, WrongSizesAreFound) {
  EXPECT_THROW(BalanceOf(std::vector<float>(7), kWithoutRope), InternalError);
  EXPECT_THROW(BalancingScales(std::vector<float>(7), kWithoutRope), InternalError);
}

}  // namespace
}  // namespace mlc_native
