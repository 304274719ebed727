// StepPipeline carries out plans: reserve pages, copy, forward, sample, commit, collect. Shared by
// all actions that compute tokens.
//
// Submit is a transaction: what throws before the step is under way is undone (reservations
// dropped, kv_len unchanged). Then everything but the tokens is committed at once: pages, kv_len,
// status and queues look as after the step, and the tokens are pending (request_state.h). Collect
// takes the tokens of the oldest step. A model that computes on the host is collected right after
// each Submit; a device has one step under way while the engine looks at the tokens of the one
// before. Until a step is collected, nothing that it computes is shown to the prefix cache. Results
// of sequences that have ended meanwhile are dropped; their pages are given back at once, because
// whoever gets them writes in a later step. Buffers are reused, so a step in steady state allocates
// nothing here. Owned by the engine; engine's thread only.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "step/action.h"
#include "step/grammar_masks.h"
#include "step/host_steps.h"
#include "step/step_trace.h"

namespace mlc_native {

class StepPipeline {
 public:
  enum class Outcome {
    kDone,      // the step is under way, or all requests of the plan were ended
    kPlanAnew,  // nothing was computed; a request was ended, or what was under way is collected
  };

  explicit StepPipeline(const EngineParts& parts);

  // Steps may stay under way until the next one is submitted.
  bool runs_ahead() const { return !host_steps_.has_value(); }
  int num_under_way() const { return num_under_way_; }
  // The next plan depends on what is not known yet: a token that a grammar goes on from, a prompt
  // whose branches start when it is computed.
  bool MustCollect() const;

  // Not while MustCollect. A failure is a request's own only when nothing was under way: otherwise
  // the attempt is repeated when everything is known.
  Outcome Submit(const EngineState& estate, const StepPlan& plan);
  // Collects the oldest steps; the next post-process looks at their tokens. Requests of steps that
  // are lost end with an error.
  void CollectUntil(const EngineState& estate, int num_left);
  // Collects everything and post-processes it. False when nothing was under way.
  bool CatchUp(const EngineState& estate);
  // Waits for the steps under way and forgets them.
  void Discard() noexcept;
  // The same when nobody waits for them any more.
  void DiscardDead() noexcept;

 private:
  // A step between Submit and Collect.
  struct Flight {
    StepPlan plan;
    std::vector<RequestStateEntry*> rows;                     // who gets what is drawn
    std::vector<std::pair<size_t, std::string>> mask_errors;  // rows without a mask: they fail
    // Of the plan's requests: they may be gone when the step is collected. Empty on the host.
    std::vector<std::shared_ptr<RequestState>> kept;
    int64_t num_started = 0;  // sequences that exist since this step
    bool must_collect = false;
    bool is_traced = false;  // its "start" without its "finish" is in the trace
    TimePoint start;
  };

  Flight& OldestFlight(int64_t i = 0) { return flights_[(oldest_ + i) % flights_.size()]; }

  void Prepare(const StepPlan& plan, Flight* flight);
  void ReservePages(const EngineState& estate, Flight* flight);
  // Masks are filled while the model computes; also when this throws, nothing goes on afterwards.
  void ForwardAndFillMasks(Flight* flight);
  void AddSlice(const PlannedSlice& slice, Flight* flight);
  void AddRow(RequestStateEntry& leaf, int64_t position, Flight* flight);
  void Sample(Flight* flight);
  void Commit(const EngineState& estate, const Flight& flight);
  void CommitSlice(const EngineState& estate, const PlannedSlice& slice);

  void Undo(const EngineState& estate, const StepPlan& plan, Flight* flight);
  Outcome Fail(const EngineState& estate, const StepPlan& plan, Flight* flight, int sequence_idx,
               const std::string& message);

  Flight& PopOldest();
  void Collect(const EngineState& estate);
  void FailUnderWay(const EngineState& estate, const std::string& message);
  void EndFailed(const EngineState& estate, const Flight& flight);
  void CollectSlice(const EngineState& estate, const PlannedSlice& slice);
  void CommitToken(const EngineState& estate, RequestStateEntry& leaf, SampleResult* result,
                   TimePoint now);
  void UpdateMetrics(const EngineState& estate, const Flight& flight, TimePoint now);

  // Spans of one request do not overlap: a step's begins when it is the oldest.
  void TraceStart(Flight* flight);
  void TraceFinish(Flight* flight);

  const EngineParts parts_;
  GrammarMasks masks_;
  StepTrace trace_;
  std::optional<HostSteps> host_steps_;                  // of a model without a queue
  StepQueue* queue_;                                     // the model's or host_steps_
  std::array<Flight, StepQueue::kMaxUnderWay> flights_;  // used in turn
  int64_t oldest_ = 0;
  int num_under_way_ = 0;
  TimePoint last_collect_;

  // Of the step that is being submitted.
  std::vector<RequestStateEntry*> started_;  // whose sequences exist since then
  std::vector<PageCopy> copies_;
  std::vector<int32_t> token_ids_;        // [num_rows]
  std::vector<SequenceSlice> sequences_;  // as the plan's slices
  std::vector<int32_t> logits_rows_;      // as Flight::rows
  std::vector<TokenRow> token_rows_;      // as Flight::rows
  // Of the step that is being collected.
  std::vector<DrawnToken> drawn_;  // as Flight::rows
};

}  // namespace mlc_native
