// A draft head is fed each hidden state of its target once, with the token behind it, whatever the
// target computes when; then the guesses of the fake head are the target's own tokens.
#include "step/head_drafter.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "fake_model/fake_model.h"
#include "testing/allocations.h"
#include "testing/test_engine.h"

namespace mlc_native::testing {
namespace {

using nlohmann::json;

constexpr BatchDrafter::Sizes kRoomy{.num_pages = 64, .max_rows = 64, .max_sequences = 8};

FakeModelOptions Target() {
  FakeModelOptions options;
  options.history_window = 2;
  options.gives_states = true;
  return options;
}

FakeModelOptions Head() {
  FakeModelOptions options = Target();
  options.is_draft_head = true;
  return options;
}

// Plays the target: what it computes of sequences, and the states that it is asked for.
class HeadDrafterTest : public ::testing::Test {
 protected:
  struct Computed {
    int64_t id = 0;
    int64_t position = 0;
    int32_t num_rows = 0;
  };

  void Make(const BatchDrafter::Sizes& sizes = kRoomy, const FakeModelOptions& options = Head()) {
    auto head = std::make_unique<FakeModel>(options);
    head_ = head.get();
    drafter_ = std::make_unique<HeadDrafter>(std::move(head), 2, sizes);
  }

  // The target computes these rows of `tokens_`.
  void Compute(const std::vector<Computed>& parts, bool is_collected = true) {
    std::vector<BatchDrafter::WatchedSlice> slices;
    std::vector<int32_t> ids;
    for (const Computed& part : parts) {
      const std::vector<int32_t>& tokens = tokens_.at(part.id);
      slices.push_back({.sequence_id = part.id,
                        .tokens = &tokens,
                        .position = part.position,
                        .first_row = static_cast<int32_t>(ids.size()),
                        .num_rows = part.num_rows});
      for (int32_t i = 0; i < part.num_rows; ++i) ids.push_back(tokens.at(part.position + i));
    }
    const HiddenStates asked = drafter_->Watch(slices);
    ASSERT_EQ(asked.rows.size(), ids.size());
    for (size_t i = 0; i < asked.rows.size(); ++i) {
      std::vector<float> state;
      for (int32_t stream : asked.streams) {
        state.push_back(static_cast<float>(ids.at(asked.rows[i])));
        state.push_back(static_cast<float>(stream));
      }
      asked.memory->Write(asked.places[i], state);
    }
    if (is_collected) drafter_->Collected();
  }

  std::vector<int32_t> Guess(int64_t id, int64_t count) {
    std::vector<int32_t> drafts;
    const BatchDrafter::Wish wish{
        .sequence_id = id, .tokens = tokens_.at(id), .max_tokens = count, .drafts = &drafts};
    drafter_->Propose({&wish, 1});
    drafter_->Audit();
    return drafts;
  }

  // What the target says next.
  std::vector<int32_t> Next(int64_t id, int64_t count) const {
    return Oracle(Target(), tokens_.at(id), count);
  }

  FakeModel* head_ = nullptr;
  std::unique_ptr<HeadDrafter> drafter_;
  std::vector<std::vector<int32_t>> tokens_ = std::vector<std::vector<int32_t>>(8);
};

TEST_F(HeadDrafterTest, GuessesAreThoseOfTheHead) {
  Make();
  tokens_[0] = Prompt(20);
  EXPECT_TRUE(Guess(0, 3).empty()) << "nothing has been computed";
  Compute({{0, 0, 20}});
  EXPECT_EQ(Guess(0, 3), Next(0, 3));
  EXPECT_EQ(head_->num_rows(), 19 + 2) << "the token behind the last state is not known";
  tokens_[0].push_back(7);
  EXPECT_EQ(Guess(0, 5), Next(0, 5));
  EXPECT_EQ(head_->num_rows(), 19 + 2 + 1 + 4);
  EXPECT_EQ(drafter_->num_rows(), head_->num_rows());
  EXPECT_EQ(drafter_->num_forwards(), head_->num_forwards());
  EXPECT_TRUE(Guess(0, 5).empty()) << "without a new state there is no guess";
  EXPECT_EQ(head_->num_misaligned(), 0);
}

TEST_F(HeadDrafterTest, StatesOfRejectedGuessesAreNotFed) {
  Make();
  tokens_[0] = Prompt(20);
  Compute({{0, 0, 20}});
  tokens_[0].push_back(9);
  Guess(0, 4);
  // The target computes the last token and four guesses, of which one is right.
  std::vector<int32_t> real = tokens_[0];
  for (int32_t token : {11, 12, 13, 14}) tokens_[0].push_back(token);
  Compute({{0, 20, 5}});
  real.push_back(11);
  real.push_back(77);
  tokens_[0] = real;
  EXPECT_EQ(Guess(0, 3), Next(0, 3));
  Compute({{0, 22, 1}});
  tokens_[0].push_back(5);
  EXPECT_EQ(Guess(0, 2), Next(0, 2));
  EXPECT_EQ(head_->num_misaligned(), 0);
}

TEST_F(HeadDrafterTest, ChunksOfSeveralSequencesAreFedInSeveralForwards) {
  Make({.num_pages = 64, .max_rows = 16, .max_sequences = 2});
  for (int64_t id : {0, 1, 2}) tokens_[id] = Prompt(40, static_cast<int32_t>(id));
  for (int32_t position : {0, 10, 20, 30}) {
    Compute({{0, position, 4}, {1, position, 10}, {2, position, 10}});
    if (position == 30) tokens_[1].push_back(1), tokens_[2].push_back(2);
    drafter_->Propose({});
    Compute({{0, position + 4, 6}});
    if (position == 30) tokens_[0].push_back(3);
    drafter_->Propose({});
  }
  Compute({{0, 40, 1}, {1, 40, 1}, {2, 40, 1}});
  std::vector<std::vector<int32_t>> drafts(3);
  std::vector<BatchDrafter::Wish> wishes;
  for (int64_t id : {0, 1, 2}) {
    tokens_[id].push_back(7);
    wishes.push_back(
        {.sequence_id = id, .tokens = tokens_[id], .max_tokens = 1 + id, .drafts = &drafts[id]});
  }
  drafter_->Propose(wishes);
  for (int64_t id : {0, 1, 2}) EXPECT_EQ(drafts[id], Next(id, 1 + id)) << id;
  EXPECT_EQ(head_->num_misaligned(), 0);
}

TEST_F(HeadDrafterTest, StatesOfSequencesWithoutWishesAreFedInBulk) {
  Make();
  tokens_[0] = Prompt(20);
  Compute({{0, 0, 20}});
  tokens_[0].push_back(1);
  for (int32_t i = 0; i < 40; ++i) {
    drafter_->Propose({});
    Compute({{0, 20 + i, 1}});
    tokens_[0].push_back(i);
  }
  EXPECT_EQ(drafter_->num_forwards(), 3);
  EXPECT_EQ(drafter_->num_rows(), 20 + 2 * DraftHead::kBulk);
  tokens_[0].resize(57);  // some of what is kept is taken back, and computed again
  tokens_[0].push_back(5);
  Compute({{0, 57, 1}});
  tokens_[0].push_back(6);
  EXPECT_EQ(Guess(0, 4), Next(0, 4));
  EXPECT_EQ(head_->num_misaligned(), 0);
  EXPECT_EQ(drafter_->kv().length(0), 58);
}

TEST_F(HeadDrafterTest, WhatGoesOnFindsAllThatWasComputed) {
  Make();
  tokens_[0] = Prompt(40);
  Compute({{0, 0, 40}});
  tokens_[0].push_back(8);
  drafter_->Forget(0);  // feeds the last state, too
  drafter_->Forget(0);
  drafter_->Forget(7);
  drafter_->Audit();
  EXPECT_EQ(drafter_->kv().num_sequences(), 0);
  const int64_t rows = head_->num_rows();
  tokens_[1] = tokens_[0];
  tokens_[1].push_back(4);
  Compute({{1, 40, 2}});  // the target has the first 40 in its cache
  tokens_[1].push_back(6);
  EXPECT_EQ(Guess(1, 2), Next(1, 2));
  EXPECT_EQ(head_->num_rows() - rows, 2 + 1);
  EXPECT_EQ(head_->num_misaligned(), 0);
  EXPECT_EQ(drafter_->kv().length(1), 42);
}

TEST_F(HeadDrafterTest, WithoutTheFirstStatesItStartsWithThoseThatItSees) {
  Make();
  tokens_[0] = Prompt(40);
  Compute({{0, 30, 10}});
  tokens_[0].push_back(8);
  EXPECT_EQ(Guess(0, 3), Next(0, 3));
  EXPECT_EQ(drafter_->kv().length(0), 10);
  // A step was not watched.
  tokens_[0].insert(tokens_[0].end(), {1, 2, 3});
  Compute({{0, 43, 1}});
  tokens_[0].push_back(4);
  EXPECT_EQ(Guess(0, 3), Next(0, 3));
  EXPECT_EQ(drafter_->kv().length(0), 1);
  drafter_->Forget(0);
  tokens_[1] = tokens_[0];
  Compute({{1, 10, 5}});
  EXPECT_EQ(drafter_->kv().length(1), 0) << "nothing of it is cached";
  drafter_->Unwatch();
  EXPECT_TRUE(Guess(1, 1).empty());
  EXPECT_EQ(head_->num_misaligned(), 0);
}

TEST_F(HeadDrafterTest, TokensThatAreTakenBackAreReadAgain) {
  Make();
  tokens_[0] = Prompt(40);
  Compute({{0, 0, 40}});
  tokens_[0].push_back(8);
  Guess(0, 2);
  tokens_[0].resize(30);
  tokens_[0].insert(tokens_[0].end(), {1, 2, 3});
  Compute({{0, 30, 3}});
  tokens_[0].push_back(4);
  EXPECT_EQ(Guess(0, 3), Next(0, 3));
  EXPECT_EQ(head_->num_misaligned(), 1) << "the last row in front of them has read another token";
}

TEST_F(HeadDrafterTest, ForksGoOnFromTheirParent) {
  Make();
  tokens_[0] = Prompt(40);
  Compute({{0, 0, 40}});
  for (int64_t child : {1, 2, 3}) {
    tokens_[child] = tokens_[0];
    drafter_->Fork(0, child, tokens_[child]);
  }
  drafter_->Forget(0);
  std::vector<std::vector<int32_t>> drafts(4);
  std::vector<BatchDrafter::Wish> wishes;
  for (int64_t child : {1, 2, 3}) {
    tokens_[child].push_back(static_cast<int32_t>(child));
    wishes.push_back({.sequence_id = child,
                      .tokens = tokens_[child],
                      .max_tokens = 2,
                      .drafts = &drafts[child]});
  }
  drafter_->Propose(wishes);
  for (int64_t child : {1, 2, 3}) EXPECT_EQ(drafts[child], Next(child, 2)) << child;
  EXPECT_EQ(head_->num_rows(), 39 + 3 + 3);
  EXPECT_EQ(head_->num_misaligned(), 0);
}

TEST_F(HeadDrafterTest, AForkWithoutMemoryStartsAnew) {
  bool failed = true;
  for (int64_t k = 1; failed; ++k) {
    SCOPED_TRACE(k);
    Make();
    for (int64_t id : {0, 7}) tokens_[id] = Prompt(20);
    Compute({{0, 0, 20}});
    int64_t countdown = k;
    {
      const FailingAllocation failing(&countdown);
      drafter_->Fork(0, 7, tokens_[7]);
    }
    failed = countdown < 0;
    drafter_->Audit();
    drafter_->Forget(0);
    tokens_[0].clear();
    tokens_[7].push_back(5);
    Compute({{7, 20, 1}});
    tokens_[7].push_back(6);
    EXPECT_EQ(Guess(7, 4), Next(7, 4));
    EXPECT_EQ(head_->num_misaligned(), 0);
    drafter_->Forget(7);
    EXPECT_EQ(drafter_->kv().num_sequences(), 0);
  }
}

TEST_F(HeadDrafterTest, BehindARestItStartsWithTheStatesThatItSees) {
  Make();
  tokens_[0] = tokens_[1] = Prompt(20);
  Compute({{0, 0, 20}});
  tokens_[0].push_back(1);
  drafter_->Rest(true);
  const BatchDrafter::WatchedSlice slice{.sequence_id = 1, .tokens = &tokens_[1], .num_rows = 20};
  EXPECT_TRUE(drafter_->Watch({&slice, 1}).rows.empty());
  EXPECT_TRUE(Guess(0, 2).empty());
  drafter_->Forget(1);
  EXPECT_EQ(head_->num_forwards(), 0);
  EXPECT_EQ(drafter_->kv().num_sequences(), 0);
  drafter_->Rest(false);
  tokens_[0].push_back(2);
  Compute({{0, 21, 1}});
  tokens_[0].push_back(3);
  EXPECT_EQ(Guess(0, 2), Next(0, 2));
  EXPECT_EQ(drafter_->kv().length(0), 1);
  EXPECT_EQ(head_->num_misaligned(), 0);
}

TEST_F(HeadDrafterTest, StatesOfAStepInFlightAreNotRead) {
  Make();
  for (int64_t id : {0, 1}) tokens_[id] = Prompt(40, static_cast<int32_t>(id));
  Compute({{0, 0, 20}, {1, 0, 20}}, /*is_collected=*/false);
  EXPECT_TRUE(Guess(0, 2).empty());
  drafter_->Forget(1);
  EXPECT_EQ(head_->num_forwards(), 0);
  drafter_->Collected();
  Compute({{0, 20, 20}}, /*is_collected=*/false);
  tokens_[0].push_back(1);
  drafter_->Unwatch();  // it is lost
  EXPECT_TRUE(Guess(0, 2).empty());
  EXPECT_EQ(head_->num_forwards(), 1) << "what was there before is read";
  Compute({{0, 20, 21}});
  tokens_[0].push_back(2);
  EXPECT_EQ(Guess(0, 2), Next(0, 2));
  EXPECT_EQ(head_->num_misaligned(), 0);
}

TEST_F(HeadDrafterTest, ADeviceComputesTheNextForwardBeforeTheGuessIsKnown) {
  FakeModelOptions options = Head();
  options.run_ahead = true;
  Make(kRoomy, options);
  std::string calls;
  head_->set_on_forward([&](const ForwardBatch&) { calls += 'F'; });
  head_->steps().set_on_collect([&] { calls += 'C'; });
  tokens_[0] = Prompt(20);
  Compute({{0, 0, 20}});
  tokens_[0].push_back(7);
  EXPECT_EQ(Guess(0, 4), Next(0, 4));
  EXPECT_EQ(calls, "FFCFCFCC");
}

TEST_F(HeadDrafterTest, StatesOfTwoStepsMayBeOnTheirWay) {
  Make();
  for (int64_t id : {0, 1}) tokens_[id] = Prompt(40, static_cast<int32_t>(id));
  Compute({{0, 0, 20}, {1, 0, 10}}, /*is_collected=*/false);
  Compute({{0, 20, 20}, {1, 10, 10}}, /*is_collected=*/false);
  EXPECT_TRUE(Guess(0, 2).empty());
  EXPECT_EQ(head_->num_forwards(), 0);
  drafter_->Collected();
  EXPECT_TRUE(Guess(0, 2).empty());
  EXPECT_EQ(head_->num_rows(), 20) << "those of the first step";
  drafter_->Unwatch();  // the second step is lost
  Compute({{0, 20, 20}, {1, 10, 30}});
  for (int64_t id : {0, 1}) {
    tokens_[id].push_back(3);
    EXPECT_EQ(Guess(id, 2), Next(id, 2)) << id;
  }
  EXPECT_EQ(head_->num_rows(), 40 + 1 + 40 + 1) << "each state is read once";
  EXPECT_EQ(head_->num_misaligned(), 0);
}

// Behind guesses in flight, a position is the furthest that it can be.
TEST_F(HeadDrafterTest, WhatItHasNotSeenItBeginsWhereThePositionIsKnown) {
  Make();
  tokens_[0] = Prompt(20);
  const auto watch = [&](int64_t position) {
    const BatchDrafter::WatchedSlice slice{
        .sequence_id = 0, .tokens = &tokens_[0], .position = position, .num_rows = 4};
    const size_t num_rows = drafter_->Watch({&slice, 1}).rows.size();
    drafter_->Audit();
    return num_rows;
  };
  EXPECT_EQ(watch(23), 0) << "three guesses may be wrong";
  EXPECT_EQ(drafter_->kv().num_sequences(), 0);
  EXPECT_EQ(watch(20), 4) << "the step in flight has no guesses";
  EXPECT_EQ(watch(24), 4) << "it follows";
  EXPECT_EQ(watch(27), 0) << "one was not seen";
  drafter_->Collected();
  drafter_->Collected();
  Compute({{0, 16, 4}});
  tokens_[0].push_back(7);
  EXPECT_EQ(Guess(0, 4), Next(0, 4));
  EXPECT_EQ(head_->num_misaligned(), 0);
}

TEST_F(HeadDrafterTest, AnIdMayComeAgainWhileAStepOfItIsInFlight) {
  Make();
  tokens_[0] = Prompt(30);
  tokens_[1] = Prompt(30, 1);
  Compute({{0, 0, 20}, {1, 0, 30}}, /*is_collected=*/false);
  drafter_->Forget(0);
  tokens_[0] = Prompt(25, 7);
  Compute({{0, 0, 25}}, /*is_collected=*/false);
  drafter_->Collected();
  EXPECT_TRUE(Guess(0, 1).empty());
  EXPECT_EQ(head_->num_forwards(), 1) << "only what is known of the other sequence is read";
  drafter_->Collected();
  for (int64_t id : {0, 1}) {
    tokens_[id].push_back(5);
    EXPECT_EQ(Guess(id, 3), Next(id, 3)) << id;
  }
  EXPECT_EQ(head_->num_misaligned(), 0);
}

TEST_F(HeadDrafterTest, WithoutPlacesForNewStatesOldOnesAreForgotten) {
  FakeModelOptions options = Head();
  options.run_ahead = false;
  Make({.num_pages = 64, .max_rows = 40, .max_sequences = 1}, options);  // 56 places
  for (int64_t id : {0, 1}) tokens_[id] = Prompt(40, static_cast<int32_t>(id));
  Compute({{0, 0, 30}}, /*is_collected=*/false);
  Compute({{1, 0, 40}}, /*is_collected=*/false);
  EXPECT_FALSE(drafter_->kv().HasSequence(0));
  drafter_->Collected();
  drafter_->Collected();
  tokens_[1].push_back(1);
  EXPECT_EQ(Guess(1, 2), Next(1, 2));
  Compute({{0, 30, 10}});
  tokens_[0].push_back(2);
  EXPECT_EQ(Guess(0, 2), Next(0, 2)) << "with what it has seen since";
  EXPECT_EQ(head_->num_misaligned(), 0);
}

TEST_F(HeadDrafterTest, WithoutPagesThereAreNoGuesses) {
  Make({.num_pages = 3, .max_rows = 64, .max_sequences = 4});
  tokens_[0] = tokens_[1] = Prompt(20);
  Compute({{0, 0, 20}, {1, 0, 20}});
  for (int64_t id : {0, 1}) tokens_[id].push_back(1);
  EXPECT_EQ(Guess(0, 2), Next(0, 2));
  EXPECT_TRUE(Guess(1, 2).empty());
  drafter_->Forget(0);
  Compute({{1, 20, 1}});
  tokens_[1].push_back(2);
  EXPECT_EQ(Guess(1, 2), Next(1, 2)) << "the cache gives way";
}

TEST_F(HeadDrafterTest, BeyondItsLengthItForgetsTheOldTokens) {
  FakeModelOptions options = Head();
  options.context_window_size = 24;
  Make(kRoomy, options);
  tokens_[0] = Prompt(20);
  Compute({{0, 0, 20}});
  tokens_[0].push_back(1);
  EXPECT_EQ(Guess(0, 5), Next(0, 5)) << "24 tokens";
  Compute({{0, 20, 1}});
  tokens_[0].push_back(2);
  EXPECT_EQ(Guess(0, 5), Next(0, 5));
  EXPECT_EQ(drafter_->kv().length(0), 1);
  tokens_[1] = Prompt(30);
  Compute({{1, 0, 30}});
  EXPECT_TRUE(Guess(1, 1).empty());
}

TEST_F(HeadDrafterTest, AFailureForgetsTheSequences) {
  FakeModelOptions options = Head();
  options.fail_at_forward = {2};
  Make(kRoomy, options);
  tokens_[0] = Prompt(20);
  Compute({{0, 0, 20}});
  tokens_[0].push_back(1);
  EXPECT_THROW(Guess(0, 3), std::runtime_error);
  drafter_->Audit();
  EXPECT_EQ(drafter_->kv().num_sequences(), 0);
  Compute({{0, 20, 1}});
  tokens_[0].push_back(2);
  EXPECT_EQ(Guess(0, 3), Next(0, 3));
}

// ---- In an engine

TestEngineSetup MakeSetup(bool has_head, bool runs_ahead) {
  TestEngineSetup setup;
  setup.model = Target();
  setup.model.run_ahead = runs_ahead;
  if (!has_head) return setup;
  setup.speculative_mode = SpeculativeMode::kEagle3;
  setup.spec_draft_length = 4;
  setup.draft_model = Head();
  setup.draft_model->run_ahead = runs_ahead;
  return setup;
}

class HeadDrafting : public ::testing::TestWithParam<bool> {};

// On the host, and with models that compute alongside it.
INSTANTIATE_TEST_SUITE_P(RunsAhead, HeadDrafting, ::testing::Bool());

TEST_P(HeadDrafting, EveryGuessIsRight) {
  TestEngineSetup setup = MakeSetup(true, GetParam());
  setup.prefill_chunk_size = 16;
  TestEngine without(MakeSetup(false, GetParam()));
  TestEngine with(setup);
  for (TestEngine* engine : {&without, &with}) {
    for (int32_t i = 0; i < 4; ++i) {
      engine->Add(std::to_string(i), Prompt(15 + 10 * i, i), Greedy(50, i == 3 ? 2 : 1));
    }
    engine->Run();
    // A conversation goes on, and another one begins in the same way.
    std::vector<int32_t> tokens = Prompt(35, 2);
    const std::vector<int32_t>& answer = engine->Answer("2").token_ids;
    tokens.insert(tokens.end(), answer.begin(), answer.end());
    tokens.push_back(5);
    engine->Add("goes on", tokens, Greedy(30));
    engine->Run();
    tokens.resize(50);
    tokens.push_back(7);
    engine->Add("begins", tokens, Greedy(30));
    engine->Run();
  }
  for (const char* id : {"0", "1", "2", "3", "goes on", "begins"}) {
    EXPECT_EQ(with.Answer(id).token_ids, without.Answer(id).token_ids) << id;
  }
  EXPECT_EQ(with.draft_model().num_misaligned(), 1) << "behind what both conversations share";
  const json spec = json::parse(with.engine().JSONMetrics())["spec_decode"];
  EXPECT_EQ(spec["num_failures"], 0);
  EXPECT_GT(spec["num_draft_tokens"], 100);
  EXPECT_EQ(spec["num_accepted_tokens"], spec["num_draft_tokens"]);
  EXPECT_LT(3 * with.model().num_forwards(), 2 * without.model().num_forwards());
}

}  // namespace
}  // namespace mlc_native::testing
