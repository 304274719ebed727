// Prompts and answers that end within 10 tokens of a limit: the right finish reason, the right
// number of tokens, in a bounded number of steps, each of which computes something. With guesses of
// every kind, the same requests are admitted and end alike, within the same number of steps.
//
// These cases come from defects of other engines: requests near the capacity of the KV cache are
// admitted and then never scheduled, or preempted for ever (mlc-llm#3057: stuck at 4088 of 4096
// tokens), and a decode step without a sequence to decode.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/error.h"
#include "testing/adversarial_drafter.h"
#include "testing/speculation.h"
#include "testing/test_engine.h"

namespace mlc_native::testing {
namespace {

constexpr int64_t kNear = 10;  // tokens

// One way in which an engine is limited.
struct Limits {
  int64_t max_total;   // tokens
  int64_t max_single;  // tokens
  int64_t chunk;       // rows of a forward
  int64_t max_num_sequence;

  int64_t longest() const { return std::min(max_total, max_single); }
};

std::ostream& operator<<(std::ostream& out, const Limits& limits) {
  return out << "total " << limits.max_total << ", single " << limits.max_single << ", chunk "
             << limits.chunk << ", sequences " << limits.max_num_sequence;
}

TestEngineSetup SetupOf(const Limits& limits, PrefillMode mode, PrefixCacheMode cache,
                        bool has_guesses) {
  TestEngineSetup setup;
  setup.max_total_sequence_length = limits.max_total;
  setup.max_single_sequence_length = limits.max_single;
  setup.prefill_chunk_size = limits.chunk;
  setup.max_num_sequence = limits.max_num_sequence;
  setup.prefill_mode = mode;
  setup.prefix_cache_mode = cache;
  if (has_guesses) {
    setup.speculative_mode = SpeculativeMode::kNGram;
    setup.spec_draft_length = 4;
    setup.make_drafter = [model = setup.model](const DraftSource&) {
      return std::make_unique<AdversarialDrafter>(model, 1);
    };
  }
  return setup;
}

// A prompt of the greatest length still gets one token.
int64_t ExpectedTokens(const Limits& limits, int64_t prompt_len, int64_t max_tokens) {
  const int64_t room = std::max<int64_t>(1, limits.longest() - prompt_len);
  return max_tokens < 0 ? room : std::min(room, max_tokens);
}

// Steps until idle; no step may leave everything as it was.
void RunWithoutSpinning(TestEngine& engine, int64_t max_steps) {
  while (!engine.engine().Empty()) {
    const auto num_calls = [&model = engine.model()] {
      return model.num_forwards() + model.steps().num_collects();
    };
    const int64_t before = num_calls();
    engine.Step();
    ASSERT_GT(num_calls(), before) << "a step that computed nothing";
    ASSERT_LE(engine.num_steps(), max_steps) << engine.engine().DebugCall("dump_state");
  }
  engine.ExpectIdle();
}

void ExpectAnswer(const TestEngine& engine, const TestEngineSetup& setup, const std::string& id,
                  const std::vector<int32_t>& prompt, int64_t num_tokens) {
  for (const SequenceHistory& sequence : engine.History(id).sequences) {
    EXPECT_EQ(sequence.finish_reason, FinishReason::kLength) << id;
    EXPECT_EQ(sequence.token_ids, Oracle(setup.model, prompt, num_tokens)) << id;
  }
}

// Every limit is the one that binds in one of these; totals that are no multiple of the page size
// too.
const std::vector<Limits>& AllLimits() {
  static const std::vector<Limits> limits = {
      {.max_total = 64, .max_single = 64, .chunk = 64, .max_num_sequence = 4},
      {.max_total = 64, .max_single = 1000, .chunk = 4, .max_num_sequence = 4},  // pages bind
      {.max_total = 61, .max_single = 1000, .chunk = 17, .max_num_sequence = 3},
      {.max_total = 128, .max_single = 50, .chunk = 48, .max_num_sequence = 2},  // single binds
      {.max_total = 200, .max_single = 33, .chunk = 32, .max_num_sequence = 1},
      {.max_total = 20, .max_single = 20, .chunk = 16, .max_num_sequence = 8},
      {.max_total = 16, .max_single = 16, .chunk = 8, .max_num_sequence = 8},  // one page
      {.max_total = 11, .max_single = 40, .chunk = 2, .max_num_sequence = 2},
  };
  return limits;
}

class NearCapacity
    : public ::testing::TestWithParam<std::tuple<Limits, PrefillMode, PrefixCacheMode, bool>> {
 protected:
  const Limits limits_ = std::get<0>(GetParam());
  const bool has_guesses_ = std::get<3>(GetParam());
  const TestEngineSetup setup_ =
      SetupOf(limits_, std::get<1>(GetParam()), std::get<2>(GetParam()), std::get<3>(GetParam()));

  // Everything once, and again for every preemption of a branch.
  int64_t MaxSteps(int64_t num_sequences) const {
    const int64_t rows = std::max<int64_t>(1, limits_.chunk - limits_.max_num_sequence);
    const int64_t once = limits_.longest() / rows + 1 + kNear + 1;
    return 2 * num_sequences * num_sequences * once + limits_.longest() * num_sequences + 10;
  }
};

// mlc-llm#3057: all combinations of (prompt, max_tokens) around the limit, in one engine, so
// that with the cache on each prompt finds the pages of those before it.
TEST_P(NearCapacity, ARequestAloneEndsAtItsLimit) {
  TestEngine engine(setup_);
  const int64_t longest = limits_.longest();
  for (int64_t prompt_len = std::max<int64_t>(1, longest - kNear); prompt_len <= longest;
       ++prompt_len) {
    for (int64_t max_tokens = -1; max_tokens <= kNear + 2; ++max_tokens) {
      const std::string id = std::to_string(prompt_len) + '+' + std::to_string(max_tokens);
      engine.Add(id, Prompt(prompt_len), Greedy(max_tokens));
      RunWithoutSpinning(engine, engine.num_steps() + MaxSteps(1));
      if (HasFatalFailure()) return;
      ExpectAnswer(engine, setup_, id, Prompt(prompt_len),
                   ExpectedTokens(limits_, prompt_len, max_tokens));
    }
  }
  EXPECT_EQ(SpecDecode(engine).empty(), !has_guesses_);
}

TEST_P(NearCapacity, APromptThatIsTooLongIsRefused) {
  TestEngine engine(setup_);
  for (int64_t excess = 1; excess <= kNear; ++excess) {
    EXPECT_THROW(engine.Add("long", Prompt(limits_.longest() + excess), Greedy(1)), InvalidRequest);
  }
  engine.checker().Forget("long");
  engine.ExpectIdle();
}

// Branches that together need more pages than there are preempt each other, and all come to the
// end.
TEST_P(NearCapacity, BranchesEndAtTheirLimit) {
  const auto n = static_cast<int32_t>(std::min<int64_t>(limits_.max_num_sequence, 4));
  TestEngine engine(setup_);
  for (int64_t prompt_len = std::max<int64_t>(1, limits_.longest() - kNear);
       prompt_len <= limits_.longest(); ++prompt_len) {
    for (int64_t max_tokens : {int64_t{-1}, int64_t{1}, int64_t{2}, kNear, kNear + 1}) {
      const std::string id = std::to_string(prompt_len) + '+' + std::to_string(max_tokens);
      engine.Add(id, Prompt(prompt_len), Greedy(max_tokens, n));
      RunWithoutSpinning(engine, engine.num_steps() + MaxSteps(n));
      if (HasFatalFailure()) return;
      ExpectAnswer(engine, setup_, id, Prompt(prompt_len),
                   ExpectedTokens(limits_, prompt_len, max_tokens));
    }
  }
}

// Two requests that each fit alone compete for the last page. The later one is preempted, returns
// and is not forgotten. No request stays in the running queue when none can run.
TEST_P(NearCapacity, TwoRequestsCompeteForTheLastPage) {
  const int64_t longest = limits_.longest();
  for (int64_t first : {longest / 2 - 2, longest / 2, longest - kNear, longest - 1, longest}) {
    for (int64_t second : {int64_t{1}, longest / 2 - 1, longest / 2 + 1, longest - 1}) {
      for (int64_t max_tokens : {int64_t{-1}, kNear}) {
        if (first < 1 || second < 1) continue;
        TestEngine engine(setup_);
        engine.Add("first", Prompt(first, 1), Greedy(max_tokens));
        engine.Add("second", Prompt(second, 2), Greedy(max_tokens));
        RunWithoutSpinning(engine, 4 * MaxSteps(2) + 2 * longest);
        if (HasFatalFailure()) return;
        ExpectAnswer(engine, setup_, "first", Prompt(first, 1),
                     ExpectedTokens(limits_, first, max_tokens));
        ExpectAnswer(engine, setup_, "second", Prompt(second, 2),
                     ExpectedTokens(limits_, second, max_tokens));
      }
    }
  }
}

// More requests than sequences, each up to the limit: FIFO, no spinning, and an answer to each.
TEST_P(NearCapacity, MoreRequestsThanSequences) {
  TestEngine engine(setup_);
  const int64_t num_requests = limits_.max_num_sequence + 2;
  const int64_t prompt_len = std::max<int64_t>(1, limits_.longest() - kNear);
  for (int64_t i = 0; i < num_requests; ++i) {
    engine.Add(std::to_string(i), Prompt(prompt_len, static_cast<int32_t>(i)), Greedy(-1));
  }
  RunWithoutSpinning(engine, 4 * MaxSteps(num_requests));
  if (HasFatalFailure()) return;
  for (int64_t i = 0; i < num_requests; ++i) {
    const std::vector<int32_t> prompt = Prompt(prompt_len, static_cast<int32_t>(i));
    ExpectAnswer(engine, setup_, std::to_string(i), prompt,
                 ExpectedTokens(limits_, prompt_len, -1));
  }
}

INSTANTIATE_TEST_SUITE_P(
    EveryLimit, NearCapacity,
    ::testing::Combine(::testing::ValuesIn(AllLimits()),
                       ::testing::Values(PrefillMode::kHybrid, PrefillMode::kChunked),
                       ::testing::Values(PrefixCacheMode::kDisable, PrefixCacheMode::kRadix),
                       ::testing::Bool()));

}  // namespace
}  // namespace mlc_native::testing
