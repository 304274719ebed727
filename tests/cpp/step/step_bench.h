// StepBench: the engine's steps on the fake model, with the entries of requests in reach. Audits
// after every step. One thread.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine_debug.h"
#include "engine_state.h"
#include "grammar/mask_filler.h"
#include "kv/paged_kv_cache.h"
#include "request/scheduler.h"
#include "step/make_room.h"
#include "step/post_process.h"
#include "step/step_pipeline.h"
#include "testing/test_engine.h"

namespace mlc_native::testing {

class StepBench {
 public:
  explicit StepBench(int64_t num_pages, int64_t prefill_chunk_size, FakeModelOptions model = {})
      : model_(std::move(model)), kv_(num_pages, kKvPageSize) {
    model_.Allocate(num_pages, prefill_chunk_size, kMaxNumLogits);
    limits_ = {.max_num_sequence = kMaxNumSequence,
               .prefill_chunk_size = prefill_chunk_size,
               .max_num_scored = kMaxNumScored};
    context_.max_sequence_length = num_pages * kKvPageSize;
    steps_.emplace(context_);
  }

  // Changes each plan before it is submitted.
  std::function<void(StepPlan*)> on_plan;

  RequestStateEntry& Add(const std::string& id, std::vector<int32_t> prompt,
                         const GenerationConfig& config = Greedy(-1)) {
    const RequestLimits limits{.vocab_size = model_.metadata().vocab_size,
                               .max_num_sequence = kMaxNumSequence,
                               .max_sequence_length = context_.max_sequence_length};
    auto request = CreateRequest(id, {TokenData{std::move(prompt)}}, config, limits);
    auto rstate = std::make_unique<RequestState>(request, nullptr, false, Clock::now());
    RequestState& added = *estate_->request_states.emplace(id, std::move(rstate)).first->second;
    estate_->PushWaiting(added);
    return added.entries[0];
  }

  void Step() {
    do {
      Plan();
      if (on_plan) on_plan(&plan_);
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
  const std::vector<RequestStreamOutput>& outputs() const {
    return estate_->postproc_workspace.outputs;
  }

 private:
  static constexpr int64_t kMaxNumSequence = 4;
  static constexpr int64_t kMaxNumLogits = 64;
  static constexpr int64_t kMaxNumScored = 16;

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
                       .now = Clock::now,
                       .token_table = nullptr};
  std::optional<StepPipeline> steps_;
  StepPlan plan_;
};

}  // namespace mlc_native::testing
