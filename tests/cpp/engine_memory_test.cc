// Every single allocation of the engine's steps fails once.
#include <gtest/gtest.h>

#include <new>
#include <string>

#include "mlc_native/tokenizer.h"
#include "testing/failing_steps.h"
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

// A request is refused as a whole: nothing is heard of it.
TEST(EngineMemory, EveryAllocationOfAnAddMayFail) {
  for (const int64_t max_tokens : {0, 3}) {
    bool failed = true;
    for (int64_t k = 1; failed; ++k) {
      SCOPED_TRACE(k);
      TestEngine engine(SmallEngine());
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
