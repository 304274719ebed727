#include "support/channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace mlc_native {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Channel, TakesAllThatArrivedInOrder) {
  Channel<int> channel;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(channel.Push(int{i}));
  std::vector<int> items = {7};
  EXPECT_TRUE(channel.TryPopAll(&items));
  EXPECT_THAT(items, ElementsAre(0, 1, 2));
  EXPECT_TRUE(channel.TryPopAll(&items));
  EXPECT_THAT(items, IsEmpty());
}

TEST(Channel, CloseRefusesPushesAndLeavesTheItem) {
  Channel<std::unique_ptr<int>> channel;
  EXPECT_TRUE(channel.Push(std::make_unique<int>(1)));
  channel.Close();
  channel.Close();
  EXPECT_TRUE(channel.closed());
  auto refused = std::make_unique<int>(2);
  EXPECT_FALSE(channel.Push(std::move(refused)));
  EXPECT_EQ(*refused, 2);  // NOLINT(bugprone-use-after-move): that is the promise
  std::vector<std::unique_ptr<int>> items;
  EXPECT_TRUE(channel.WaitPopAll(&items));
  EXPECT_EQ(items.size(), 1u);
  EXPECT_FALSE(channel.WaitPopAll(&items));
  EXPECT_FALSE(channel.TryPopAll(&items));
}

TEST(Channel, CloseWakesEveryConsumer) {
  Channel<int> channel;
  std::vector<std::thread> consumers;
  for (int i = 0; i < 3; ++i) {
    consumers.emplace_back([&channel] {
      std::vector<int> items;
      EXPECT_FALSE(channel.WaitPopAll(&items));
    });
  }
  channel.Close();
  for (std::thread& consumer : consumers) consumer.join();
}

TEST(Channel, ManyProducersLoseNothing) {
  constexpr int kProducers = 4;
  constexpr int kItems = 5000;
  Channel<std::pair<int, int>> channel;
  std::vector<std::thread> producers;
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&channel, p] {
      for (int i = 0; i < kItems; ++i) channel.Push({p, i});
    });
  }
  std::thread closer([&] {
    for (std::thread& producer : producers) producer.join();
    channel.Close();
  });
  std::vector<int> next(kProducers);
  std::vector<std::pair<int, int>> items;
  while (channel.WaitPopAll(&items)) {
    for (const auto& [producer, i] : items) ASSERT_EQ(i, next[producer]++);
  }
  closer.join();
  EXPECT_THAT(next, ::testing::Each(kItems));
}

}  // namespace
}  // namespace mlc_native
