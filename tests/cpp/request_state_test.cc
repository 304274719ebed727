#include "request/request_state.h"

#include <gtest/gtest.h>

namespace mlc_native {
namespace {

RequestPtr MakeRequest(int32_t n, double frequency_penalty = 0) {
  auto request = std::make_shared<Request>();
  request->id = "request";
  request->prompt_token_ids = {5, 6, 7};
  request->generation_cfg.n = n;
  request->generation_cfg.frequency_penalty = frequency_penalty;
  return request;
}

SampleResult Token(int32_t id) { return SampleResult{{id, -0.5f}, {}}; }

TEST(RequestState, ALoneSequenceIsOneEntry) {
  RequestState rstate(MakeRequest(1), nullptr, false, TimePoint());
  ASSERT_EQ(rstate.entries.size(), 1u);
  ASSERT_EQ(rstate.leaves().size(), 1u);
  RequestStateEntry& entry = rstate.leaves()[0];
  EXPECT_EQ(entry.rstate, &rstate);
  EXPECT_FALSE(entry.is_root_of_branches());
  EXPECT_EQ(entry.parent_idx, -1);
  EXPECT_EQ(entry.num_tokens_to_compute(), 3);
  EXPECT_EQ(entry.num_generated(), 0);
  EXPECT_EQ(rstate.NextToPrefill(), &entry);
  EXPECT_EQ(rstate.metrics.prompt_tokens, 3);
}

TEST(RequestState, BranchesAreARootAndItsChildren) {
  RequestState rstate(MakeRequest(3), nullptr, true, TimePoint());
  ASSERT_EQ(rstate.entries.size(), 4u);
  RequestStateEntry& root = rstate.entries[0];
  EXPECT_EQ(root.child_indices, (std::vector<int>{1, 2, 3}));
  ASSERT_EQ(rstate.leaves().size(), 3u);
  for (int i = 0; i < 3; ++i) {
    RequestStateEntry& child = rstate.leaves()[i];
    EXPECT_EQ(child.parent_idx, 0);
    EXPECT_EQ(child.sequence_idx, i);
    EXPECT_EQ(child.rstate, &rstate);
    EXPECT_TRUE(child.tokens.empty());
    EXPECT_FALSE(child.waits_for_prefill());
    EXPECT_EQ(child.num_generated(), 0);
    std::string text;
    child.text_streamer.Put(" a", &text);
    EXPECT_EQ(text, "a") << "each answer begins a text of its own";
  }
  EXPECT_EQ(rstate.NextToPrefill(), &root);
  root.status = RequestStateStatus::kAlive;
  EXPECT_EQ(rstate.NextToPrefill(), nullptr);
  EXPECT_FALSE(rstate.all_leaves_finished());
  for (RequestStateEntry& child : rstate.leaves()) child.status = RequestStateStatus::kFinished;
  EXPECT_TRUE(rstate.all_leaves_finished());
}

TEST(RequestState, EachSequenceHasAStopHandlerOfItsOwn) {
  const auto stops = std::make_shared<StopStrSet>(std::vector<std::string>{"ab"});
  RequestState rstate(MakeRequest(2), stops, false, TimePoint());
  std::string text;
  std::vector<int32_t> ids;
  rstate.leaves()[0].stop_handler->Put(1, "ab", &text, &ids);
  EXPECT_TRUE(rstate.leaves()[0].stop_handler->stop_triggered());
  EXPECT_FALSE(rstate.leaves()[1].stop_handler->stop_triggered());
}

TEST(RequestStateEntry, CommittedTokensAreGeneratedAndUndelivered) {
  RequestState rstate(MakeRequest(1), nullptr, false, TimePoint());
  RequestStateEntry& entry = rstate.entries[0];
  entry.mstate.kv_len = 3;
  entry.CommitToken(Token(9));
  EXPECT_EQ(entry.tokens, (std::vector<int32_t>{5, 6, 7, 9}));
  EXPECT_EQ(entry.num_generated(), 1);
  EXPECT_EQ(entry.num_tokens_to_compute(), 1);
  ASSERT_EQ(entry.undelivered.size(), 1u);
  EXPECT_EQ(entry.undelivered[0].token.token_id, 9);
  EXPECT_TRUE(entry.generated_counts.counts().empty()) << "counted without need";
}

TEST(RequestStateEntry, TokensAreCountedForPenalties) {
  RequestState rstate(MakeRequest(1, 0.5), nullptr, false, TimePoint());
  RequestStateEntry& entry = rstate.entries[0];
  for (int32_t token : {9, 8, 9}) entry.CommitToken(Token(token));
  ASSERT_EQ(entry.generated_counts.counts().size(), 2u);
  EXPECT_EQ(entry.generated_counts.counts()[0], (std::pair<int32_t, int32_t>(9, 2)));
}

}  // namespace
}  // namespace mlc_native
