// Speculation takes only what is left over: no time that it does not save, no rows and pages that
// others need.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "testing/speculation.h"
#include "testing/virtual_clock.h"

namespace mlc_native::testing {
namespace {

// Times are those of a clock that the forwards move: the target takes 1 ms and 0.1 ms a row.
struct Costs {
  double draft_ms = 0;  // of a forward
  bool is_right = true;
  double max_share = 0;  // of the time without a draft model
  int64_t num_requests = 3;
  int64_t prompt_len = 8;
  int64_t num_tokens = 600;
};

class SpeculationCosts : public ::testing::TestWithParam<Costs> {};

TEST_P(SpeculationCosts, AreNotHigherThanWithout) {
  const auto seconds = [&](Drafts drafts) {
    VirtualClock clock;
    TestEngineSetup setup = SpeculationSetup({.drafts = drafts});
    setup.model.run_ahead = false;
    setup.max_single_sequence_length = 700;
    setup.prefill_chunk_size = 512;
    setup.now = clock.function();
    if (setup.draft_model) {
      setup.draft_model->run_ahead = false;
      if (!GetParam().is_right) setup.draft_model->history_window = 3;
    }
    TestEngine engine(setup);
    engine.model().set_on_forward([&](const ForwardBatch& batch) {
      clock.Advance(1e-3 + 1e-4 * static_cast<double>(batch.token_ids.size()));
    });
    if (setup.draft_model) {
      engine.draft_model().set_on_forward([&](const ForwardBatch& batch) {
        const auto num_rows = static_cast<double>(batch.token_ids.size());
        clock.Advance(1e-3 * GetParam().draft_ms * (0.9 + 0.1 * num_rows));
      });
    }
    const TimePoint start = clock.now();
    for (int i = 0; i < GetParam().num_requests; ++i) {
      std::vector<int32_t> prompt(GetParam().prompt_len, i % 30);
      engine.Add(std::to_string(i), std::move(prompt), Endless(Greedy(GetParam().num_tokens)));
      if (GetParam().prompt_len > 100) engine.Run();
    }
    engine.Run();
    return std::chrono::duration<double>(clock.now() - start).count();
  };
  EXPECT_LT(seconds(Drafts::kModel), GetParam().max_share * seconds(Drafts::kNone));
}

INSTANTIATE_TEST_SUITE_P(DraftModels, SpeculationCosts,
                         ::testing::Values(Costs{0.1, true, 0.5}, Costs{0.1, false, 1.03},
                                           Costs{0.5, false, 1.03}, Costs{2, true, 1.03},
                                           Costs{2, false, 1.05},
                                           // Prompts that are long for such answers.
                                           Costs{0.2, true, 1.05, 20, 500, 3}));

// Drafts take pages that are free and rows that nothing else needs.
TEST(SpeculationMemory, NothingIsPreemptedForDrafts) {
  // Two sequences fill the pool to the last page.
  DraftSettings settings{.drafts = Drafts::kLookup, .length = 10, .num_pages = 8};
  TestEngine engine(SpeculationSetup(settings));
  for (int i = 0; i < 2; ++i) {
    const std::vector<int32_t> prompt = LetterPrompt(i);
    engine.Add(std::to_string(i), prompt, Endless(Greedy(4 * kKvPageSize - std::ssize(prompt))));
  }
  engine.Run();
  EXPECT_EQ(engine.Metric("num_preemptions"), 0);
  EXPECT_GT(SpecDecode(engine)["num_accepted_tokens"], 0);
}

}  // namespace
}  // namespace mlc_native::testing
