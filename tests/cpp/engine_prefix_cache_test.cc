// The prefix cache in the engine: no prefix is computed twice, and the tokens are the same as
// without the cache.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "observe/event_trace.h"
#include "support/error.h"
#include "testing/test_engine.h"

namespace mlc_native::testing {
namespace {

using nlohmann::json;
using Tokens = std::vector<int32_t>;

json Usage(const TestEngine& engine, const std::string& id) {
  return json::parse(*engine.History(id).usage)["extra"];
}

Tokens Join(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Serves one request alone; returns how many tokens of its prompt were computed.
int64_t Serve(TestEngine& engine, const std::string& id, const Tokens& prompt,
              const GenerationConfig& config) {
  engine.Add(id, prompt, config);
  engine.Run();
  const json usage = Usage(engine, id);
  EXPECT_EQ(usage["cached_tokens"].get<int64_t>() + usage["prefill_tokens"].get<int64_t>(),
            std::ssize(prompt));
  return usage["prefill_tokens"];
}

TEST(EnginePrefixCache, ASecondRoundComputesOnlyTheNewTokens) {
  TestEngineSetup setup;
  TestEngine engine(setup);
  Tokens history = Prompt(40);
  EXPECT_EQ(Serve(engine, "1", history, Greedy(10)), 40);
  history = Join(history, engine.Answer("1").token_ids);
  history = Join(history, {1, 2, 3});
  EXPECT_EQ(Serve(engine, "2", history, Greedy(10)), 1 + 3) << "and the last token of the answer";
  EXPECT_EQ(engine.Answer("2").token_ids, Oracle(setup.model, history, 10));
  history = Join(history, engine.Answer("2").token_ids);
  history = Join(history, Prompt(100, 1));
  EXPECT_EQ(Serve(engine, "3", history, Greedy(10, 3)), 1 + 100);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(engine.Answer("3", i).token_ids, Oracle(setup.model, history, 10));
  }
  EXPECT_EQ(engine.Metric("prefix_cache_lookups"), 3);
  EXPECT_EQ(engine.Metric("prefix_cache_hits"), 2);
  EXPECT_EQ(engine.Metric("prefix_cache_tokens_saved"), 49 + 62);
  EXPECT_EQ(engine.Metric("cached_tokens_sum"), 49 + 62);
}

TEST(EnginePrefixCache, APromptIsSharedWhileItIsInUse) {
  TestEngineSetup setup{.prefill_chunk_size = 16};
  TestEngine engine(setup);
  engine.Add("a", Prompt(40), Greedy(30));
  for (int i = 0; i < 4; ++i) engine.Step();
  engine.Add("b", Prompt(40), Greedy(30));
  engine.Run();
  EXPECT_EQ(Usage(engine, "b")["cached_tokens"], 39);
  for (const char* id : {"a", "b"}) {
    EXPECT_EQ(engine.Answer(id).token_ids, Oracle(setup.model, Prompt(40), 30));
  }
}

TEST(EnginePrefixCache, DisabledItComputesEverything) {
  TestEngine engine({.prefix_cache_mode = PrefixCacheMode::kDisable});
  EXPECT_EQ(Serve(engine, "1", Prompt(40), Greedy(5)), 40);
  EXPECT_EQ(Serve(engine, "2", Prompt(40), Greedy(5)), 40);
  EXPECT_EQ(engine.Metric("prefix_cache_lookups"), 0);
  EXPECT_EQ(engine.Metric("kv_pages_free"), 256);
}

TEST(EnginePrefixCache, ColdWarmAndAfterEvictionTheTokensAreTheSame) {
  TestEngineSetup setup{.num_pages = 8};
  setup.model.peak = 3;
  TestEngine engine(setup);
  const GenerationConfig config = Sampled(20, 7, 2);
  EXPECT_EQ(Serve(engine, "cold", Prompt(50), config), 50);
  EXPECT_EQ(Serve(engine, "warm", Prompt(50), config), 1);
  EXPECT_EQ(Serve(engine, "other", Prompt(100, 1), Greedy(20)), 100);
  EXPECT_GT(engine.Metric("prefix_cache_evicted_pages"), 0);
  EXPECT_EQ(Serve(engine, "evicted", Prompt(50), config), 50);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(engine.Answer("warm", i).token_ids, engine.Answer("cold", i).token_ids);
    EXPECT_EQ(engine.Answer("evicted", i).token_ids, engine.Answer("cold", i).token_ids);
  }
}

TEST(EnginePrefixCache, WhatIsComputedAgainAfterAPreemptionIsMostlyAHit) {
  TestEngineSetup setup{.num_pages = 8};
  TestEngine engine(setup);
  for (int i = 0; i < 3; ++i) engine.Add(std::to_string(i), Prompt(20, i), Greedy(50));
  engine.Run();
  EXPECT_GT(engine.Metric("num_preemptions"), 0);
  EXPECT_GT(engine.Metric("prefix_cache_tokens_saved"), 0);
  EXPECT_EQ(engine.Metric("cached_tokens_sum"), 0) << "usage is about prompts";
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(engine.Answer(std::to_string(i)).token_ids, Oracle(setup.model, Prompt(20, i), 50));
  }
}

// Ten prompts, room for five: the oldest are forgotten.
TEST(EnginePrefixCache, TheLeastRecentlyUsedSequencesAreForgotten) {
  TestEngine engine({.max_num_recycling_seqs = 5});
  for (int32_t i = 0; i < 10; ++i) Serve(engine, std::to_string(i), Prompt(30, i), Greedy(3));
  for (int32_t i = 9; i >= 5; --i) {
    EXPECT_EQ(Serve(engine, "hit " + std::to_string(i), Prompt(30, i), Greedy(3)), 1);
  }
  for (int32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(Serve(engine, "gone " + std::to_string(i), Prompt(30, i), Greedy(3)), 30);
  }
}

TEST(EnginePrefixCache, AbortLeavesWhatWasComputed) {
  TestEngine engine({.model = Waited(), .prefill_chunk_size = 16});
  engine.Add("a", Prompt(60), Greedy(10));
  engine.Step();
  engine.Step();
  engine.engine().AbortRequest("a");
  engine.ExpectIdle();
  EXPECT_EQ(Serve(engine, "b", Prompt(60), Greedy(3)), 60 - 32);
}

TEST(EnginePrefixCache, ResetForgetsEverything) {
  TestEngine engine({});
  Serve(engine, "1", Prompt(40), Greedy(5));
  engine.Add("live", Prompt(20, 1), Greedy(5));
  engine.Step();
  engine.engine().Reset();
  EXPECT_EQ(engine.Metric("kv_pages_free"), 256);
  EXPECT_EQ(Serve(engine, "2", Prompt(40), Greedy(5)), 40);
}

TEST(EnginePrefixCache, AHitIsInTheTrace) {
  TestEngineSetup setup;
  setup.trace = std::make_shared<EventTraceRecorder>();
  TestEngine engine(setup);
  Serve(engine, "1", Prompt(40), Greedy(5));
  EXPECT_EQ(setup.trace->DumpJSON().find("prefix cache hit"), std::string::npos);
  Serve(engine, "2", Prompt(40), Greedy(5));
  EXPECT_NE(setup.trace->DumpJSON().find("prefix cache hit"), std::string::npos);
}

// The pool has exactly the pages of one sequence, and every sequence would like a copy of the page
// that it shares with the cache or its siblings.
TEST(EnginePrefixCache, ALoneSequenceFitsWhateverItShares) {
  for (int64_t prompt_len : {33, 40, 47, 48}) {
    for (int32_t n : {1, 2, 3}) {
      SCOPED_TRACE(prompt_len);
      TestEngineSetup setup{.num_pages = 3};
      TestEngine engine(setup);
      for (const char* id : {"cold", "warm", "again"}) {
        engine.Add(id, Prompt(prompt_len), Greedy(-1, n));
        engine.Run(1000);
        for (int i = 0; i < n; ++i) {
          EXPECT_EQ(engine.Answer(id, i).token_ids,
                    Oracle(setup.model, Prompt(prompt_len), std::max<int64_t>(48 - prompt_len, 1)));
        }
      }
    }
  }
}

GenerationConfig Pinned() {
  GenerationConfig config = Greedy(3);
  config.debug_config.pinned_system_prompt = true;
  return config;
}

TEST(EnginePrefixCache, APinnedPromptStaysWhateverComes) {
  TestEngine engine({.num_pages = 12, .max_single_sequence_length = 128});
  Serve(engine, "system", Prompt(40), Pinned());
  ASSERT_EQ(engine.engine().PinnedPrefixes().size(), 1u);
  const PinnedPrefix pin = engine.engine().PinnedPrefixes()[0];
  EXPECT_EQ(pin.num_tokens, 40);
  EXPECT_EQ(pin.num_pages, 3);
  EXPECT_EQ(engine.Metric("kv_pages_pinned"), 3);
  EXPECT_EQ(engine.Metric("kv_pages_used"), 3);
  for (int32_t i = 1; i < 5; ++i) Serve(engine, std::to_string(i), Prompt(100, i), Greedy(28));
  EXPECT_EQ(Serve(engine, "hit", Join(Prompt(40), {1, 2, 3}), Greedy(3)), 3);
  EXPECT_EQ(engine.engine().PinPrefix(Prompt(40)), pin.id) << "it is pinned already";
  engine.engine().UnpinPrefix(pin.id);
  EXPECT_EQ(engine.Metric("kv_pages_used"), 0);
  EXPECT_THROW(engine.engine().UnpinPrefix(pin.id), InvalidRequest);
  for (int32_t i = 5; i < 9; ++i) Serve(engine, std::to_string(i), Prompt(100, i), Greedy(28));
  EXPECT_EQ(Serve(engine, "gone", Prompt(40), Greedy(3)), 40);
}

TEST(EnginePrefixCache, PinsLeaveRoomForTheLongestSequence) {
  TestEngineSetup setup{.num_pages = 12, .max_single_sequence_length = 128};
  TestEngine engine(setup);
  Serve(engine, "a", Prompt(40, 1), Pinned());
  Serve(engine, "b", Prompt(30, 2), Pinned());
  ASSERT_EQ(engine.engine().PinnedPrefixes().size(), 1u) << "served, but not pinned";
  EXPECT_EQ(Usage(engine, "a")["pinned_tokens"], 40);
  EXPECT_EQ(Usage(engine, "b")["pinned_tokens"], 0) << "its usage reports it";
  EXPECT_EQ(engine.engine().request_limits().max_pinned_length, 64);
  EXPECT_THROW(engine.engine().CreateRequest("c", {TokenData{Prompt(65)}}, Pinned()),
               InvalidRequest);
  EXPECT_THROW(engine.engine().PinPrefix(Prompt(30, 2)), InvalidRequest);
  EXPECT_THROW(engine.engine().PinPrefix(Prompt(9, 3)), InvalidRequest) << "not in the cache";
  engine.Add("longest", Prompt(60), Greedy(-1, 2));
  engine.Run(10000);
  EXPECT_EQ(engine.Answer("longest", 1).token_ids, Oracle(setup.model, Prompt(60), 68));
}

TEST(EnginePrefixCache, ResetUnpins) {
  TestEngine full({.num_pages = 8, .max_single_sequence_length = 128});
  EXPECT_THROW(Serve(full, "a", Prompt(40), Pinned()), InvalidRequest)
      << "one sequence may fill the pool";
  TestEngine roomy({.max_single_sequence_length = 128});
  Serve(roomy, "a", Prompt(40), Pinned());
  EXPECT_EQ(roomy.engine().PinnedPrefixes().size(), 1u);
  roomy.engine().Reset();
  EXPECT_TRUE(roomy.engine().PinnedPrefixes().empty());
  EXPECT_EQ(roomy.Metric("kv_pages_free"), 256);
}

TEST(EnginePrefixCache, WithoutACacheThereAreNoPins) {
  TestEngine engine({.prefix_cache_mode = PrefixCacheMode::kDisable});
  EXPECT_THROW(Serve(engine, "a", Prompt(40), Pinned()), InvalidRequest);
  EXPECT_THROW(engine.engine().PinPrefix(Prompt(40)), InvalidRequest);
  EXPECT_THROW(engine.engine().UnpinPrefix(0), InvalidRequest);
  EXPECT_TRUE(engine.engine().PinnedPrefixes().empty());
}

// Requests whose prompts begin alike, on engines with too few pages, with aborts and faults.
class SharedPrompts {
 public:
  explicit SharedPrompts(uint32_t seed) : rng_(seed) {
    setup_.prefill_chunk_size = Random(4, 64);
    setup_.max_num_sequence = Random(1, 4);
    setup_.num_pages = Random(7, 30);
    setup_.prefill_mode = Random(0, 1) == 0 ? PrefillMode::kHybrid : PrefillMode::kChunked;
    setup_.max_num_recycling_seqs = Random(0, 2) == 0 ? Random(0, 3) : -1;
    setup_.model.peak = 5;
    for (int i = 0; i < 25; ++i) AddRandomRequest(i);
  }

  void Run() {
    TestEngine engine(setup_);
    if (Random(0, 2) == 0) {
      engine.model().options().fail_at_forward = {Random(1, 40), Random(1, 40)};
      may_fail_ = true;
    }
    for (int64_t step = 0; step <= 100; ++step) {
      for (size_t i = 0; i < requests_.size(); ++i) {
        const std::string id = std::to_string(i);
        if (requests_[i].add_before_step == step) {
          engine.Add(id, requests_[i].prompt, requests_[i].config);
        }
        if (requests_[i].abort_before_step == step) engine.engine().AbortRequest(id);
      }
      engine.Step();
    }
    engine.Run();
    for (size_t i = 0; i < requests_.size(); ++i) ExpectSameAlone(engine, i);
    saved_ = engine.Metric("prefix_cache_tokens_saved");
    evicted_ = engine.Metric("prefix_cache_evicted_pages");
    preemptions_ = engine.Metric("num_preemptions");
  }

  int64_t saved_ = 0;
  int64_t evicted_ = 0;
  int64_t preemptions_ = 0;

 private:
  struct Planned {
    Tokens prompt;
    GenerationConfig config;
    int64_t add_before_step = 0;
    int64_t abort_before_step = -1;
  };

  void AddRandomRequest(int32_t index) {
    Tokens prompt = Prompt(Random(1, 60), static_cast<int32_t>(Random(0, 1)));
    if (Random(0, 1) == 0) prompt = Join(prompt, Prompt(Random(1, 40), index));
    const int32_t n = Random(0, 3) == 0 ? Random(1, setup_.max_num_sequence) : 1;
    Planned request{.prompt = prompt,
                    .config = Random(0, 1) == 0 ? Greedy(Random(1, 30), n)
                                                : Sampled(Random(1, 30), index % 3, n),
                    .add_before_step = Random(0, 100)};
    if (Random(0, 5) == 0) request.abort_before_step = request.add_before_step + Random(0, 20);
    requests_.push_back(std::move(request));
  }

  // What came is a beginning of what the request gets alone, without a cache.
  void ExpectSameAlone(TestEngine& engine, size_t index) {
    const std::string id = std::to_string(index);
    const Planned& request = requests_[index];
    TestEngineSetup roomy{.prefix_cache_mode = PrefixCacheMode::kDisable};
    roomy.model = setup_.model;
    roomy.max_single_sequence_length = setup_.num_pages * kKvPageSize;
    TestEngine alone(roomy);
    alone.Add(id, request.prompt, request.config);
    alone.Run();
    for (int i = 0; i < request.config.n; ++i) {
      const Tokens& expected = alone.Answer(id, i).token_ids;
      const Tokens& tokens = engine.Answer(id, i).token_ids;
      ASSERT_LE(tokens.size(), expected.size());
      EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), expected.begin())) << id;
      if (may_fail_ || request.abort_before_step >= 0) continue;
      EXPECT_EQ(tokens.size(), expected.size()) << id;
    }
  }

  int64_t Random(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(rng_);
  }

  std::mt19937 rng_;
  TestEngineSetup setup_;
  std::vector<Planned> requests_;
  bool may_fail_ = false;
};

TEST(EnginePrefixCache, RandomMixesAnswerAsEachRequestAlone) {
  int64_t saved = 0;
  int64_t evicted = 0;
  int64_t preemptions = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    SharedPrompts workload(seed);
    workload.Run();
    if (::testing::Test::HasFailure()) return;
    saved += workload.saved_;
    evicted += workload.evicted_;
    preemptions += workload.preemptions_;
  }
  EXPECT_GT(saved, 1000);
  EXPECT_GT(evicted, 1000);
  EXPECT_GT(preemptions, 50);
}

}  // namespace
}  // namespace mlc_native::testing
