// An engine with a draft head answers as without one, in fewer steps.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "step/head_drafter_fixture.h"

namespace mlc_native::testing {
namespace {

using nlohmann::json;

TestEngineSetup MakeSetup(bool has_head, bool runs_ahead) {
  TestEngineSetup setup;
  setup.model = HeadTarget();
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
