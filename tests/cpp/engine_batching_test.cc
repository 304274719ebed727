// Requests that share the engine: tokens never depend on batch mates, chunks, page shortage or
// preemption, and limits hold in every forward.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include <nlohmann/json.hpp>

#include "testing/test_engine.h"

namespace mlc_native::testing {
namespace {

using nlohmann::json;

TEST(EngineBatching, ChunkSizesDoNotChangeTokens) {
  for (int64_t chunk = 1; chunk <= 64; ++chunk) {
    TestEngineSetup setup{.max_num_sequence = std::min<int64_t>(chunk, 4),
                          .prefill_chunk_size = chunk};
    for (PrefillMode mode : {PrefillMode::kChunked, PrefillMode::kHybrid}) {
      SCOPED_TRACE(chunk);
      setup.prefill_mode = mode;
      TestEngine engine(setup);
      for (int i = 0; i < 5; ++i) {
        engine.Add(std::to_string(i), Prompt(1 + 13 * i, i), Greedy(6 + i));
      }
      engine.Run();
      for (int i = 0; i < 5; ++i) {
        EXPECT_EQ(engine.Answer(std::to_string(i)).token_ids,
                  Oracle(setup.model, Prompt(1 + 13 * i, i), 6 + i));
      }
    }
  }
}

TEST(EngineBatching, PreemptionIsCountedAndDoesNotChangeTokens) {
  TestEngineSetup setup{.num_pages = 8};
  TestEngine engine(setup);
  for (int i = 0; i < 4; ++i) engine.Add(std::to_string(i), Prompt(16, i), Greedy(60));
  engine.Run();
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(engine.Answer(std::to_string(i)).token_ids, Oracle(setup.model, Prompt(16, i), 60));
    const json usage = json::parse(*engine.History(std::to_string(i)).usage);
    EXPECT_EQ(usage["completion_tokens"], 60);
    EXPECT_EQ(usage["extra"]["prefill_tokens"], 16) << "recomputation is not counted";
    EXPECT_EQ(usage["extra"]["decode_tokens"], 59);
  }
  EXPECT_GT(engine.Metric("num_preemptions"), 0);
  EXPECT_EQ(engine.Metric("prefill_tokens_sum"), 64);
}

TEST(EngineBatching, TheLastRunningRequestIsPreemptedAndTheFirstFinishesFirst) {
  TestEngineSetup setup{.num_pages = 6};
  TestEngine engine(setup);
  std::vector<std::string> finished;
  engine.on_outputs = [&](const std::vector<RequestStreamOutput>& outputs) {
    for (const RequestStreamOutput& output : outputs) {
      if (output.is_final()) finished.push_back(output.request_id);
    }
  };
  for (const char* id : {"a", "b", "c"}) engine.Add(id, Prompt(16), Greedy(60));
  engine.Run();
  EXPECT_EQ(finished, (std::vector<std::string>{"a", "b", "c"}));
}

// W5, W7: a lone sequence is never preempted, and ends where the pool ends.
TEST(EngineBatching, ALoneSequenceFillsThePoolAndEndsWithLength) {
  TestEngineSetup setup{.num_pages = 3, .max_single_sequence_length = 1000};
  TestEngine engine(setup);
  engine.Add("a", Prompt(20), Greedy(-1));
  engine.Run(200);
  EXPECT_EQ(engine.Answer("a").token_ids, Oracle(setup.model, Prompt(20), 28));
  EXPECT_EQ(engine.Answer("a").finish_reason, FinishReason::kLength);
  EXPECT_EQ(engine.Metric("num_preemptions"), 0);
}

TEST(EngineBatching, BranchesShareThePromptAndDivergeBySeed) {
  TestEngineSetup setup;
  setup.model.peak = 2;
  TestEngine engine(setup);
  engine.Add("a", Prompt(40), Sampled(20, 7, 3));
  engine.Step();
  EXPECT_EQ(json::parse(engine.engine().DebugCall("audit_pages"))["kv_pages_used"], 3);
  engine.Run();
  EXPECT_NE(engine.Answer("a", 0).token_ids, engine.Answer("a", 1).token_ids);
  EXPECT_NE(engine.Answer("a", 1).token_ids, engine.Answer("a", 2).token_ids);
  EXPECT_EQ(engine.model().num_copies(), 1) << "one copy-on-write for all branches";

  TestEngine alone(setup);
  alone.Add("a", Prompt(40), Sampled(20, 7));
  alone.Run();
  EXPECT_EQ(alone.Answer("a").token_ids, engine.Answer("a", 0).token_ids)
      << "sequence 0 draws as a lone sequence does";
}

TEST(EngineBatching, GreedyBranchesAreAllTheOracle) {
  for (int64_t prompt_len : {1, 15, 16, 17, 33}) {
    TestEngineSetup setup;
    TestEngine engine(setup);
    engine.Add("a", Prompt(prompt_len), Greedy(40, 5));
    engine.Run();
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(engine.Answer("a", i).token_ids, Oracle(setup.model, Prompt(prompt_len), 40));
    }
  }
}

TEST(EngineBatching, BranchesThatDoNotFitTogetherAreComputedOneAfterTheOther) {
  TestEngineSetup setup{.num_pages = 5};
  TestEngine engine(setup);
  engine.Add("a", Prompt(20), Greedy(50, 4));
  engine.Run();
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(engine.Answer("a", i).token_ids, Oracle(setup.model, Prompt(20), 50));
  }
  EXPECT_GT(engine.Metric("num_preemptions"), 0);
  EXPECT_EQ(engine.Metric("prefill_tokens_sum"), 20);
}

// The first tokens of branches are drawn before the branches have tokens of their own.
TEST(EngineBatching, TheFirstTokensOfBranchesRepeatNothingOfThePrompt) {
  TestEngineSetup setup;
  setup.model.vocab_size = 20;
  TestEngine engine(setup);
  for (int32_t salt = 0; salt < 10; ++salt) {
    std::vector<int32_t> prompt;
    for (int32_t i = 0; i < 17; ++i) prompt.push_back((i + salt) % 20);
    for (const int32_t n : {1, 4, 12}) {
      GenerationConfig config = Greedy(3, n);
      config.no_repeat_ngram_size = 1;
      const std::string id = std::to_string(salt) + '/' + std::to_string(n);
      engine.Add(id, prompt, config);
      engine.Run();
      for (int i = 0; i < n; ++i) {
        EXPECT_EQ(engine.Answer(id, i).token_ids,
                  engine.Answer(std::to_string(salt) + "/1").token_ids)
            << id << ", answer " << i;
      }
    }
  }
}

// W16: ids come back from preempted requests and from those that are aborted while they wait.
TEST(EngineBatching, InternalIdsAreReused) {
  TestEngine engine({.max_num_sequence = 4, .num_pages = 6});
  for (int i = 0; i < 60; ++i) {
    const std::string id = std::to_string(i);
    engine.Add(id, Prompt(16, i), Greedy(40));
    engine.Step();
    if (i % 3 != 0) engine.engine().AbortRequest(id);
    const json state = json::parse(engine.engine().DebugCall("dump_state"));
    for (const auto& [request, entries] : state["requests"].items()) {
      for (const json& entry : entries) EXPECT_LT(entry["internal_id"], 5) << request;
    }
  }
  engine.Run();
  const json metrics = json::parse(engine.engine().JSONMetrics());
  EXPECT_GT(metrics["num_preemptions"], 0);
  EXPECT_EQ(json::parse(engine.engine().DebugCall("audit_pages"))["num_live_ids"], 0);
}

TEST(EngineBatching, NothingOvertakesTheHeadOfTheQueue) {
  TestEngineSetup setup{.num_pages = 8};
  TestEngine engine(setup);
  engine.Add("running", Prompt(60), Greedy(30));
  engine.Step();
  engine.Add("large", Prompt(70, 1), Greedy(1));
  engine.Add("small", Prompt(1, 2), Greedy(1));
  std::vector<std::string> finished;
  engine.on_outputs = [&](const std::vector<RequestStreamOutput>& outputs) {
    for (const RequestStreamOutput& output : outputs) {
      if (output.is_final()) finished.push_back(output.request_id);
    }
  };
  engine.Run();
  EXPECT_EQ(finished, (std::vector<std::string>{"running", "large", "small"}));
}

// A random workload on a random engine. What is asked for is drawn from the seed, so that the same
// request can be run alone.
class RandomWorkload {
 public:
  explicit RandomWorkload(uint32_t seed) : rng_(seed) {
    setup_.prefill_chunk_size = Random(1, 64);
    setup_.max_num_sequence = Random(1, std::min<int64_t>(setup_.prefill_chunk_size, 8));
    setup_.num_pages = Random(8, 40);
    setup_.prefill_mode = Random(0, 1) == 0 ? PrefillMode::kHybrid : PrefillMode::kChunked;
    setup_.model.peak = 5;
    const int num_requests = Random(1, 25);
    for (int i = 0; i < num_requests; ++i) {
      const int32_t n = Random(0, 3) == 0 ? Random(1, setup_.max_num_sequence) : 1;
      requests_.push_back(
          {.prompt = Prompt(Random(1, 100), i),
           .config = Random(0, 1) == 0 ? Greedy(Random(1, 40), n) : Sampled(Random(1, 40), i, n),
           .add_before_step = Random(0, 60)});
    }
  }

  void Run() {
    TestEngine engine(setup_);
    engine.model().set_on_forward([this](const ForwardBatch& batch) {
      EXPECT_LE(std::ssize(batch.token_ids), setup_.prefill_chunk_size);
      EXPECT_LE(std::ssize(batch.logits_rows), setup_.max_num_sequence);
    });
    for (int64_t step = 0; step <= 60; ++step) {
      for (size_t i = 0; i < requests_.size(); ++i) {
        if (requests_[i].add_before_step != step) continue;
        engine.Add(std::to_string(i), requests_[i].prompt, requests_[i].config);
      }
      engine.Step();
    }
    engine.Run();
    preemptions_ = engine.Metric("num_preemptions");
    for (size_t i = 0; i < requests_.size(); ++i) ExpectSameAlone(engine, std::to_string(i), i);
  }

  int64_t preemptions() const { return preemptions_; }

 private:
  struct Planned {
    std::vector<int32_t> prompt;
    GenerationConfig config;
    int64_t add_before_step;
  };

  void ExpectSameAlone(TestEngine& engine, const std::string& id, size_t index) {
    const Planned& request = requests_[index];
    TestEngineSetup roomy;
    roomy.model = setup_.model;
    roomy.max_single_sequence_length = setup_.num_pages * kKvPageSize;
    TestEngine alone(roomy);
    alone.Add(id, request.prompt, request.config);
    alone.Run();
    for (int i = 0; i < request.config.n; ++i) {
      EXPECT_EQ(engine.Answer(id, i).token_ids, alone.Answer(id, i).token_ids)
          << "request " << id << " sequence " << i;
      EXPECT_EQ(engine.Answer(id, i).finish_reason, alone.Answer(id, i).finish_reason);
    }
  }

  int64_t Random(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(rng_);
  }

  std::mt19937 rng_;
  TestEngineSetup setup_;
  std::vector<Planned> requests_;
  int64_t preemptions_ = 0;
};

TEST(EngineBatching, RandomMixesAnswerAsEachRequestAlone) {
  int64_t preemptions = 0;
  for (uint32_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    RandomWorkload workload(seed);
    workload.Run();
    preemptions += workload.preemptions();
    if (HasFailure()) return;
  }
  EXPECT_GT(preemptions, 100) << "the workloads are too easy";
}

}  // namespace
}  // namespace mlc_native::testing
