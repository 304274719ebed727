// ForwardStep carries out a plan as one transaction: reserve pages, copy, forward, sample, commit.
//
// Until everything is sampled nothing is visible: what throws before is undone (reservations
// dropped, kv_len unchanged), and the requests at fault end with an error. Shared by all actions
// that compute tokens. Buffers are reused, so a step in steady state allocates nothing here.
// Engine's thread only.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "actions/action.h"
#include "actions/grammar_masks.h"

namespace mlc_native {

class ForwardStep {
 public:
  enum class Outcome {
    kDone,      // committed, or all requests of the plan were ended
    kPlanAnew,  // one request was ended, nothing was computed for the others
  };

  explicit ForwardStep(const EngineParts& parts) : parts_(parts), masks_(parts) {}
  Outcome Run(const EngineState& estate, const StepPlan& plan);

 private:
  struct Sampled {
    RequestStateEntry* leaf = nullptr;
    SampleResult result;
  };

  void ReservePages(const EngineState& estate, const StepPlan& plan, TimePoint now);
  // The model computes and the masks are filled at the same time; also when this throws, nothing
  // goes on afterwards.
  LogitsView ForwardAndFillMasks(const StepPlan& plan);
  LogitsView Forward(const StepPlan& plan);
  void AddSlice(const PlannedSlice& slice);
  void Sample(const StepPlan& plan, const LogitsView& logits);
  void SampleRow(RequestStateEntry& entry, std::span<float> row);
  void SampleToken(RequestStateEntry& leaf, int64_t position, std::span<float> row);

  void Undo(const EngineState& estate, const StepPlan& plan);
  Outcome FailSequence(const EngineState& estate, const StepPlan& plan, const SequenceError& error);
  Outcome FailAll(const EngineState& estate, const StepPlan& plan, const std::string& message);

  void Commit(const EngineState& estate, const StepPlan& plan, TimePoint start);
  void CountPromptTokens(const PlannedSlice& slice);
  void CommitSlice(const EngineState& estate, const PlannedSlice& slice);
  void CommitToken(const EngineState& estate, Sampled& sampled, TimePoint now);
  void UpdateMetrics(const EngineState& estate, const StepPlan& plan, double seconds);
  void Trace(const StepPlan& plan, bool is_decode, std::string_view event);

  const EngineParts parts_;
  GrammarMasks masks_;
  std::vector<RequestStateEntry*> started_;  // whose sequences exist since this step
  std::vector<PageCopy> copies_;
  std::vector<int32_t> token_ids_;        // [num_rows]
  std::vector<SequenceSlice> sequences_;  // as the plan's slices
  std::vector<int32_t> logits_rows_;      // rows of slices that complete their input
  std::vector<float> row_copy_;           // [vocab_size]
  std::vector<Sampled> sampled_;
  std::vector<std::pair<RequestState*, std::string>> sampling_errors_;
  std::vector<std::string_view> trace_ids_;
};

}  // namespace mlc_native
