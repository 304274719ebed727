// Every single allocation of the engine's steps fails once.
#include <gtest/gtest.h>

#include <new>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "mlc_native/tokenizer.h"
#include "observe/event_trace.h"
#include "testing/failing_steps.h"
#include "testing/speculation.h"
#include "testing/test_engine.h"

namespace mlc_native::testing {
namespace {

TestEngineSetup SmallEngine() {
  TestEngineSetup setup{.prefill_chunk_size = 24, .num_pages = 8};
  std::vector<std::string> bytes(256, "some text that is not short");
  setup.token_table = std::make_shared<TokenTable>(bytes, std::vector<bool>(), false);
  return setup;
}

// Pages shortage, branches, stop strings and logprobs, with the k-th allocation of all steps
// failing. False when there were fewer.
bool RunScenario(int64_t k) {
  const TestEngineSetup setup = SmallEngine();
  TestEngine engine(setup);
  GenerationConfig rich = Greedy(12, 3);
  rich.stop_strs = {"not shorter"};  // withheld at the end of every token
  rich.logprobs = true;
  rich.top_logprobs = 2;
  engine.Add("a name that does not fit into a small string", Prompt(50, 1), Greedy(25));
  engine.Add("b", Prompt(20, 2), rich);
  engine.Add("c", Prompt(9, 3), Greedy(15));
  const bool failed = RunWithFailingAllocation(engine, k);
  for (const auto& [id, history] : engine.checker().all()) {
    const std::vector<int32_t> prompt = id == "b"   ? Prompt(20, 2)
                                        : id == "c" ? Prompt(9, 3)
                                                    : Prompt(50, 1);
    for (const SequenceHistory& sequence : history.sequences) {
      const std::vector<int32_t> expected =
          Oracle(setup.model, prompt, static_cast<int64_t>(sequence.token_ids.size()));
      EXPECT_EQ(sequence.token_ids, expected);
    }
  }
  engine.Add("next", Prompt(30, 4), Greedy(5));
  engine.Run();
  EXPECT_EQ(engine.Answer("next").token_ids, Oracle(setup.model, Prompt(30, 4), 5));
  return failed;
}

TEST(EngineMemory, EveryAllocationOfAStepMayFail) {
  int64_t k = 1;
  // All of the first steps, where buffers grow; then a stride without a common pattern.
  while (RunScenario(k) && !HasFailure()) k += k < 400 ? 1 : 7;
  EXPECT_GT(k, 400) << "the scenario is too small";
  EXPECT_FALSE(HasFailure()) << "allocation " << k;
}

struct Speculating {
  SpeculativeMode mode = SpeculativeMode::kNGram;
  bool run_ahead = false;
};

class SpeculatingEngineMemory : public ::testing::TestWithParam<Speculating> {};

INSTANTIATE_TEST_SUITE_P(Kinds, SpeculatingEngineMemory,
                         ::testing::Values(Speculating{SpeculativeMode::kNGram, false},
                                           Speculating{SpeculativeMode::kSmallDraft, false},
                                           Speculating{SpeculativeMode::kSmallDraft, true},
                                           Speculating{SpeculativeMode::kEagle3, false},
                                           Speculating{SpeculativeMode::kEagle3, true}));

// Where guesses are made, verified and given back, and where steps follow them.
bool RunGuesses(const Speculating& kind, int64_t k, bool* has_guessed) {
  TestEngineSetup setup = SpeculationSetup({.length = 3, .chunk = 24, .run_ahead = kind.run_ahead});
  setup.speculative_mode = kind.mode;
  if (kind.mode == SpeculativeMode::kEagle3) setup.model.history_window = 2;  // as the head's
  setup.model.gives_states = true;
  if (kind.mode != SpeculativeMode::kNGram) setup.draft_model = setup.model;
  if (kind.mode == SpeculativeMode::kEagle3) setup.draft_model->is_draft_head = true;
  TestEngine engine(setup);
  engine.Add("a name that does not fit into a small string", LetterPrompt(9), Endless(Greedy(25)));
  engine.Add("b", LetterPrompt(2), Endless(Greedy(12, 3)));
  engine.Add("c", LetterPrompt(3), Endless(Greedy(15)));
  const bool failed = RunWithFailingAllocation(engine, k);
  for (const auto& [id, history] : engine.checker().all()) {
    const std::vector<int32_t> prompt = LetterPrompt(id == "b" ? 2 : id == "c" ? 3 : 9);
    for (const SequenceHistory& sequence : history.sequences) {
      const int64_t length = std::ssize(sequence.token_ids);
      EXPECT_EQ(sequence.token_ids, Oracle(setup.model, prompt, length));
    }
  }
  engine.Add("next", LetterPrompt(4), Endless(Greedy(5)));
  engine.Run();
  EXPECT_EQ(engine.Answer("next").token_ids, Oracle(setup.model, LetterPrompt(4), 5));
  const nlohmann::json spec = SpecDecode(engine);
  *has_guessed = spec.value("num_accepted_tokens", 0) > 0 &&
                 (!kind.run_ahead || spec.value("num_steps_ahead", 0) > 2);
  return failed;
}

TEST_P(SpeculatingEngineMemory, EveryAllocationOfAStepMayFail) {
  int64_t k = 1;
  bool has_guessed = false;
  while (RunGuesses(GetParam(), k, &has_guessed) && !HasFailure()) k += k < 300 ? 1 : 7;
  EXPECT_TRUE(has_guessed);
  EXPECT_GT(k, 300) << "the scenario is too small";
  EXPECT_FALSE(HasFailure()) << "allocation " << k;
}

// A request is refused as a whole: nothing is heard of it.
TEST(EngineMemory, EveryAllocationOfAnAddMayFail) {
  for (const int64_t max_tokens : {0, 3}) {
    bool failed = true;
    for (int64_t k = 1; failed; ++k) {
      SCOPED_TRACE(k);
      TestEngineSetup setup = SmallEngine();
      setup.trace = std::make_shared<EventTraceRecorder>();
      TestEngine engine(setup);
      const RequestPtr request = CreateRequest("a", {TokenData{Prompt(20)}}, Greedy(max_tokens, 2),
                                               engine.engine().request_limits());
      engine.checker().Add(*request);
      int64_t countdown = k;
      try {
        const FailingAllocation failing(&countdown);
        engine.engine().AddRequest(request);
      } catch (const std::bad_alloc&) {
        engine.checker().Forget("a");
      }
      failed = countdown < 0;
      engine.Add("b", Prompt(20), Greedy(3));
      engine.Run();
    }
  }
}

}  // namespace
}  // namespace mlc_native::testing
