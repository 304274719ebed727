// StepPipeline carries out plans: reserve pages, copy, forward, sample, commit, collect.
//
// Submit is a transaction: if anything throws before the step is in flight, Submit undoes it (drops
// reservations, leaves kv_len unchanged). Then it commits everything except the tokens: pages,
// kv_len, status and queues look as after the step, and the tokens are pending (request_state.h).
// Collect takes the tokens of the oldest step. A model that computes on the host is collected right
// after each Submit; a device computes one step while the engine processes the tokens of the step
// before. The prefix cache gets nothing of a step before the step is collected. Results of
// sequences that have ended meanwhile are dropped; their pages are free at once, because the next
// owner writes to them in a later step.
//
// A step may yield several tokens of a sequence: those that equal its draft tokens, and one more.
// They are collected one after another, and what happens between two steps happens between them, so
// that an answer cannot depend on which steps its tokens came from. A step may also follow draft
// tokens that are in flight (token_blocks.h): then the device finds where it begins, the pages and
// numbers of the sequence are those with all of them, and what is wrong is given back when they are
// collected. A sequence whose mask is not
// there when its prompt is computed gives its last row back (slow_grammars.h). Buffers are reused,
// so a step in steady state allocates nothing here. Owned by the engine; engine's thread only.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kv/paged_kv_cache.h"
#include "request/scheduler.h"
#include "step/batch_drafter.h"
#include "step/grammar_masks.h"
#include "step/host_steps.h"
#include "step/jump_forward.h"
#include "step/row_limits.h"
#include "step/state_pooling.h"
#include "step/step_batch.h"
#include "step/step_context.h"
#include "step/step_trace.h"

namespace mlc_native {

struct RequestState;

class StepPipeline {
 public:
  enum class Outcome {
    kDone,  // the step is in flight, or all requests of the plan were ended
    // Nothing was computed. A request was ended, the steps in flight were collected, or the plan
    // had draft tokens, without which it may succeed.
    kPlanAnew,
  };

  explicit StepPipeline(StepContext& context);

  // A step may stay in flight until the next one is submitted.
  bool runs_ahead() const { return !host_steps_.has_value(); }
  int num_in_flight() const { return num_in_flight_; }
  // True if the next plan depends on results that are not known yet: the token from which a grammar
  // goes on, or a prompt whose branches start when it is computed.
  // Or prompts wait, which must not lack pages because of guesses that may be wrong.
  bool MustCollect() const;

  // Requires: !MustCollect(). A failure ends a request only if nothing was in flight; otherwise the
  // steps in flight are collected and the attempt is repeated (kPlanAnew).
  Outcome Submit(const StepPlan& plan);
  // Collects the oldest steps; the next post-process processes their tokens. Requests of steps that
  // are lost end with an error.
  void CollectUntil(int num_left);
  // Collects and post-processes all steps in flight. False if there is none.
  bool CatchUp();
  // Waits for the steps in flight and drops their results.
  void Discard() noexcept;
  // The same if all their sequences have ended.
  void DiscardDead() noexcept;

 private:
  // A step between Submit and Collect.
  struct Flight {
    StepPlan plan;
    StepBatch batch;
    std::vector<std::pair<size_t, std::string>> mask_errors;  // of rows that have no mask
    // Keeps the plan's requests alive until the step is collected. On the host, those with drafts.
    std::vector<std::shared_ptr<RequestState>> kept;
    int64_t num_started = 0;  // sequences that this step started
    bool is_traced = false;   // the trace has its "start" and not yet its "finish"
    bool is_watched = false;  // the batch drafter waits for hidden states of it
    int64_t place = 0;        // in flights_
    int64_t num_masks = 0;    // rows of sequences with a grammar
    double mask_seconds = 0;  // that the masks were waited for
    TimePoint start;
  };

  Flight& OldestFlight(int64_t i = 0) { return flights_[(oldest_ + i) % flights_.size()]; }

  void Prepare(const StepPlan& plan, Flight* flight);
  void ReservePages(Flight* flight);
  void ReserveForDrafts(const PlannedSlice& slice);
  void ReserveStates(const PlannedSlice& slice);
  // Masks are filled while the model computes; filling has ended even if this throws.
  void ForwardAndFillMasks(Flight* flight);
  // The hidden states that embeddings are made of; else those that the batch drafter asks for, if
  // there is one, which does without those of other steps.
  HiddenStates States(Flight* flight);
  HiddenStates Watch(const StepPlan& plan);
  void Sample(Flight* flight);
  void Commit(Flight* flight);
  void CommitSlice(const PlannedSlice& slice);

  void Undo(const StepPlan& plan, Flight* flight);
  // A C string, so that nothing is allocated before the step is undone.
  Outcome Fail(const StepPlan& plan, Flight* flight, int sequence_idx, const char* message);

  Flight& PopOldest();
  void Collect();
  void FailInFlight(const char* message);
  // The batch drafter gets no hidden states of the steps in flight.
  void UnwatchInFlight() noexcept;
  TokenBlock NextBlock(const PlannedSlice& slice, int64_t* num_blocks) const;
  void MarkRejected(std::span<StepBatch::Row> rows) const;
  void CollectRound(const Flight& flight, size_t num_drafts, TimePoint now);
  void EndFailed(const Flight& flight, size_t num_drafts);
  void CollectSlice(const PlannedSlice& slice);
  void CollectRow(const StepBatch::Row& row, SampleResult* result, TimePoint now);
  void KeepCollected(const Flight& flight);
  void CountDrafts(const PlannedSlice& slice);
  void CountVerified(const StepBatch::Row& row, int32_t token_id);
  void CommitToken(RequestStateEntry& leaf, SampleResult* result, TimePoint now);
  void UpdateMetrics(const Flight& flight, TimePoint now);
  void ObserveCosts(const Flight& flight, double seconds);

  // Spans of one request do not overlap: the span of a step begins when it is the oldest.
  void TraceStart(Flight* flight);
  void TraceFinish(Flight* flight);

  StepContext& context_;
  GrammarMasks masks_;
  RowLimits limits_;
  StatePooling pooling_;
  JumpForward jump_forward_;
  StepTrace trace_;
  std::optional<HostSteps> host_steps_;                  // of a model without a queue
  StepQueue* queue_;                                     // the model's or host_steps_
  std::array<Flight, StepQueue::kMaxInFlight> flights_;  // a ring
  int64_t oldest_ = 0;
  int num_in_flight_ = 0;
  TimePoint last_collect_;

  // Of the step that is being submitted.
  std::vector<RequestStateEntry*> started_;  // entries whose sequences it has started
  std::vector<PageCopy> copies_;
  std::vector<StatePlace> state_places_;  // of a slice
  std::vector<BatchDrafter::WatchedSlice> watched_;
  // Of the step that is being collected.
  std::vector<DrawnToken> drawn_;  // as its rows
};

}  // namespace mlc_native
