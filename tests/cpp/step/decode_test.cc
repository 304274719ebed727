// Running sequences with several tokens to compute: chunks, pages, preemption and failing forwards
// never change what comes after them.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "engine_debug.h"
#include "request/scheduler.h"
#include "step/make_room.h"
#include "step/post_process.h"
#include "step/step_pipeline.h"
#include "testing/test_engine.h"

namespace mlc_native::testing {
namespace {

// The engine's steps on the fake model. Audits after every step.
class StepBench {
 public:
  explicit StepBench(int64_t num_pages, int64_t prefill_chunk_size, FakeModelOptions model = {})
      : model_(std::move(model)), kv_(num_pages, kKvPageSize) {
    model_.Allocate(num_pages, prefill_chunk_size, kMaxNumSequence);
    limits_ = {.max_num_sequence = kMaxNumSequence, .prefill_chunk_size = prefill_chunk_size};
    context_.max_sequence_length = num_pages * kKvPageSize;
    steps_.emplace(context_);
  }

  RequestStateEntry& Add(const std::string& id, std::vector<int32_t> prompt) {
    const RequestLimits limits{.vocab_size = model_.metadata().vocab_size,
                               .max_num_sequence = kMaxNumSequence,
                               .max_sequence_length = context_.max_sequence_length};
    auto request = CreateRequest(id, {TokenData{std::move(prompt)}}, Greedy(-1), limits);
    auto rstate = std::make_unique<RequestState>(request, nullptr, false, Clock::now());
    RequestState& added = *estate_->request_states.emplace(id, std::move(rstate)).first->second;
    estate_->PushWaiting(added);
    return added.entries[0];
  }

  void Step() {
    do {
      Plan();
    } while (!plan_.empty() && steps_->Submit(plan_) == StepPipeline::Outcome::kPlanAnew);
    steps_->CollectUntil(0);
    PostProcess(context_);
    AuditState(*estate_, kv_);
  }

  void StepUntilComputed(const RequestStateEntry& entry) {
    const size_t num_tokens = entry.tokens.size();
    for (int i = 0; i < 1000 && entry.tokens.size() == num_tokens; ++i) Step();
    EXPECT_EQ(entry.tokens.size(), num_tokens + 1);
  }

  static void Force(RequestStateEntry& entry, const std::vector<int32_t>& tokens) {
    for (int32_t token : tokens) {
      SampleResult result;
      result.token.token_id = token;
      entry.CommitToken(std::move(result));
    }
  }

  // The last token is what the model says to all before it.
  void ExpectLastToken(const RequestStateEntry& entry) {
    const std::span<const int32_t> history(entry.tokens.data(), entry.tokens.size() - 1);
    EXPECT_EQ(entry.tokens.back(), FakeModel::NextToken(model_.options(), history));
  }

  FakeModel& model() { return model_; }
  const EngineMetrics& metrics() const { return estate_->metrics; }

 private:
  static constexpr int64_t kMaxNumSequence = 4;

  void Plan() {
    PlanPrefill(*estate_, kv_, limits_, &plan_);
    if (!plan_.empty()) return;
    MakeRoomForDecode(context_, *steps_);
    PlanDecode(*estate_, limits_.prefill_chunk_size, &plan_);
  }

  FakeModel model_;
  PagedKvCache kv_;
  std::vector<int32_t> eos_token_ids_;
  EngineState estate_;
  MaskFiller mask_filler_;
  SchedulerLimits limits_;
  StepContext context_{.state = *estate_,
                       .kv = kv_,
                       .model = model_,
                       .mask_filler = mask_filler_,
                       .eos_token_ids = eos_token_ids_,
                       .limits = limits_,
                       .max_sequence_length = 0,
                       .now = Clock::now};
  std::optional<StepPipeline> steps_;
  StepPlan plan_;
};

TEST(DecodeTails, OneForwardComputesThem) {
  StepBench bench(16, 64);
  RequestStateEntry& a = bench.Add("a", Prompt(20));
  bench.Step();
  StepBench::Force(a, Prompt(30, 1));
  const int64_t num_forwards = bench.model().num_forwards();
  bench.Step();
  EXPECT_EQ(a.tokens.size(), 20 + 1 + 30 + 1);
  EXPECT_EQ(bench.model().num_forwards(), num_forwards + 1);
  bench.ExpectLastToken(a);
}

TEST(DecodeTails, ChunksDoNotChangeTokens) {
  for (int64_t chunk = 4; chunk < 40; ++chunk) {
    SCOPED_TRACE(chunk);
    StepBench bench(16, chunk);
    RequestStateEntry& a = bench.Add("a", Prompt(5));
    RequestStateEntry& b = bench.Add("b", Prompt(3, 1));
    bench.StepUntilComputed(b);
    StepBench::Force(a, Prompt(30, 2));
    StepBench::Force(b, Prompt(17, 3));
    bench.StepUntilComputed(b);
    EXPECT_EQ(a.num_tokens_to_compute(), 1) << "first come, first served";
    bench.ExpectLastToken(a);
    bench.ExpectLastToken(b);
  }
}

TEST(DecodeTails, NeighboursAdvanceEveryStep) {
  StepBench bench(16, 4);
  RequestStateEntry& a = bench.Add("a", Prompt(2));
  RequestStateEntry& b = bench.Add("b", Prompt(2, 1));
  bench.StepUntilComputed(b);
  StepBench::Force(a, Prompt(12, 2));
  const size_t num_tokens = b.tokens.size();
  bench.StepUntilComputed(a);
  EXPECT_EQ(b.tokens.size(), num_tokens + 5) << "13 tokens of a by three and one of b, five times";
  bench.ExpectLastToken(b);
}

TEST(DecodeTails, PreemptionMakesRoomForThem) {
  StepBench bench(6, 64);
  RequestStateEntry& a = bench.Add("a", Prompt(15));
  RequestStateEntry& b = bench.Add("b", Prompt(15, 1));
  bench.StepUntilComputed(b);
  StepBench::Force(a, Prompt(70, 2));  // 86 of the 96 tokens that there is room for
  bench.StepUntilComputed(a);
  bench.ExpectLastToken(a);
  EXPECT_EQ(bench.metrics().num_preemptions, 1);
  EXPECT_EQ(b.status, RequestStateStatus::kPending);
}

TEST(DecodeTails, AFailingNeighbourLeavesThemUntouched) {
  FakeModelOptions model;
  model.poison_token = 255;
  StepBench bench(16, 8, model);
  RequestStateEntry& a = bench.Add("a", Prompt(2));
  RequestStateEntry& b = bench.Add("b", Prompt(2, 1));
  bench.StepUntilComputed(b);
  StepBench::Force(a, Prompt(20, 2));
  StepBench::Force(b, {255});
  bench.StepUntilComputed(a);
  bench.ExpectLastToken(a);
  EXPECT_EQ(bench.metrics().num_errors, 1);
  EXPECT_FALSE(a.finish_reason.has_value());
}

}  // namespace
}  // namespace mlc_native::testing
