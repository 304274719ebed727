// StepPipeline, continued: collecting steps.
#include <exception>
#include <utility>

#include "engine_state.h"
#include "kv/paged_kv_cache.h"
#include "observe/step_profiler.h"
#include "step/grammar_timer.h"
#include "step/post_process.h"
#include "step/sequence_life.h"
#include "step/slow_grammars.h"
#include "step/step_pipeline.h"
#include "support/check.h"

namespace mlc_native {

StepPipeline::Flight& StepPipeline::PopOldest() {
  Flight& oldest = OldestFlight();
  oldest_ = (oldest_ + 1) % std::ssize(flights_);
  --num_in_flight_;
  return oldest;
}

void StepPipeline::CollectUntil(int num_left) {
  while (num_in_flight_ > num_left) Collect();
}

bool StepPipeline::CatchUp() {
  if (num_in_flight_ == 0) return false;
  CollectUntil(0);
  const StepProfiler::Scope scope(context_.profiler, StepPhase::kPostProcess);
  PostProcess(context_);
  return true;
}

void StepPipeline::Collect() {
  const StepProfiler::Scope scope(context_.profiler, StepPhase::kCollect);
  try {
    queue_->Collect(&drawn_);
  } catch (const std::exception& error) {
    return FailInFlight(error.what());
  } catch (...) {
    return FailInFlight("the model threw what is no std::exception");
  }
  Flight& flight = PopOldest();
  const std::span<StepBatch::Row> rows = flight.batch.rows();
  MLC_CHECK(drawn_.size() == rows.size()) << drawn_.size() << " of " << rows.size();
  if (std::exchange(flight.is_watched, false)) context_.batch_drafter->Collected();
  TraceFinish(&flight);
  if (num_in_flight_ > 0) TraceStart(&OldestFlight());
  const TimePoint now = context_.now();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (IsTokenAt(rows[i].draft_token)) rows[i].draft_token = drawn_[i].draft_token;
  }
  MarkRejected(rows);
  EndFailed(flight, 0);
  for (const PlannedSlice& slice : flight.plan.slices) CollectSlice(slice);
  pooling_.Collect(flight.batch, flight.place);
  CollectRound(flight, 0, now);
  for (size_t num_drafts = 1; num_drafts <= flight.batch.max_drafts(); ++num_drafts) {
    PostProcess(context_);
    jump_forward_.Run();
    EndFailed(flight, num_drafts);
    CollectRound(flight, num_drafts, now);
  }
  KeepCollected(flight);
  UpdateMetrics(flight, now);
  flight.kept.clear();
}

// The batch drafter has taken down what the next step computes behind rows that are given back now.
void StepPipeline::KeepCollected(const Flight& flight) {
  if (num_in_flight_ == 0 || flight.batch.max_drafts() == 0) return;
  for (const PlannedSlice& slice : flight.plan.slices) {
    const RequestStateEntry& entry = *slice.entry;
    if (slice.num_drawn == 1 || entry.mstate.internal_id == RequestModelState::kNoId) continue;
    if (context_.batch_drafter == nullptr) continue;
    context_.batch_drafter->Keep(entry.mstate.internal_id, entry.mstate.num_collected());
  }
}

// The rows behind this number of draft tokens: at most one of each sequence.
void StepPipeline::CollectRound(const Flight& flight, size_t num_drafts, TimePoint now) {
  const std::span<const StepBatch::Row> rows = flight.batch.rows();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].num_drafts == num_drafts) CollectRow(rows[i], &drawn_[i].result, now);
  }
}

void StepPipeline::UnwatchInFlight() noexcept {
  for (int i = num_in_flight_; i > 0; --i) {
    if (std::exchange(OldestFlight(i - 1).is_watched, false)) context_.batch_drafter->Unwatch();
  }
}

void StepPipeline::FailInFlight(const char* message) {
  UnwatchInFlight();
  const int num_lost = std::exchange(num_in_flight_, 0);
  for (int i = 0; i < num_lost; ++i) {
    Flight& flight = OldestFlight(i);
    TraceFinish(&flight);
    for (const PlannedSlice& slice : flight.plan.slices) {
      if (slice.entry->finished()) continue;
      EndRequest(context_, *slice.entry->rstate, FinishReason::kError, message);
    }
    flight.kept.clear();
  }
}

// Rejects the rows behind a draft token that is not the token drawn before it.
void StepPipeline::MarkRejected(std::span<StepBatch::Row> rows) const {
  bool rejects = false;
  for (size_t i = 0; i < rows.size(); ++i) {
    StepBatch::Row& row = rows[i];
    row.is_rejected = rejects || row.is_withheld;
    const bool is_right =
        drawn_[i].error.empty() && drawn_[i].result.token.token_id == row.draft_token;
    rejects = row.draft_token != StepBatch::kNoToken && (rejects || !is_right);
  }
}

// Called before the rows of a round are collected, so that nothing that they have computed for
// these requests is kept.
void StepPipeline::EndFailed(const Flight& flight, size_t num_drafts) {
  const std::span<const StepBatch::Row> rows = flight.batch.rows();
  const auto end = [&](const StepBatch::Row& row, const std::string& error) {
    if (row.num_drafts != num_drafts || row.is_rejected || row.entry->finished()) return;
    if (num_drafts > 0 && row.entry->pending_rows.empty()) return;  // a jump gave the row back
    EndRequest(context_, *row.entry->rstate, FinishReason::kError, error);
  };
  for (const auto& [row, error] : flight.mask_errors) end(rows[row], error);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!drawn_[i].error.empty()) end(rows[i], drawn_[i].error);
  }
}

void StepPipeline::CollectSlice(const PlannedSlice& slice) {
  RequestStateEntry& entry = *slice.entry;
  if (entry.finished()) return;
  // The draft tokens are collected with the rows behind them.
  entry.mstate.kv_in_flight -= slice.num_tokens - (slice.num_drawn - 1);
  if (slice.num_drawn > 1) CountDrafts(slice);
  if (slice.is_decode) return;

  RequestState& rstate = *entry.rstate;
  CachePrefix(context_, entry);
  entry.CountPromptTokens(slice.num_cached);
  if (!slice.completes_input) return;
  if (rstate.config().debug_config.pinned_system_prompt) PinPrompt(context_, rstate);
  if (!entry.is_root_of_branches()) return;
  ForkChildren(context_, entry);
  context_.state.running_rsentries_changed = true;
}

void StepPipeline::CollectRow(const StepBatch::Row& row, SampleResult* result, TimePoint now) {
  RequestStateEntry& entry = *row.entry;
  if (row.is_scored) {
    if (entry.finished()) return;
    entry.scores.push_back(std::move(*result));  // StepBatch::Add made room
    ++entry.num_scored;
    return;
  }
  if (entry.pending_rows.empty()) return;  // a jump gave the row back
  entry.pending_rows.erase(entry.pending_rows.begin());
  if (entry.pending_rows.empty()) {
    entry.last_is_pending = false;
    entry.mstate.block = {};
  }
  if (entry.finished()) return;
  if (row.num_drafts > 0) --entry.mstate.kv_in_flight;
  if (!row.is_rejected) {
    if (row.draft_token != StepBatch::kNoToken) CountVerified(row, result->token.token_id);
    return CommitToken(entry, result, now);
  }
  context_.kv.PopN(entry.mstate.internal_id, 1);
  --entry.mstate.kv_len;
}

void StepPipeline::CountDrafts(const PlannedSlice& slice) {
  const int64_t num_drafts = slice.num_drawn - 1;
  RequestMetrics& metrics = slice.entry->rstate->metrics;
  ++metrics.num_drafts;
  ++metrics.acceptance_histogram[0];
  metrics.draft_tokens += num_drafts;
  const bool is_prediction = slice.entry->drafts != nullptr && slice.entry->drafts->is_prediction();
  if (is_prediction) metrics.prediction_tokens += num_drafts;
  context_.state.metrics.spec_decode.Drafted(num_drafts);
}

void StepPipeline::CountVerified(const StepBatch::Row& row, int32_t token_id) {
  const bool is_right = token_id == row.draft_token;
  SpecDecodeMetrics& spec_decode = context_.state.metrics.spec_decode;
  if (row.num_drafts == 0) spec_decode.Accepted(0);
  SequenceDrafts* const drafts = row.entry->drafts.get();
  if (drafts != nullptr) drafts->Verified(is_right);
  if (!is_right) return;
  RequestMetrics& metrics = row.entry->rstate->metrics;
  ++metrics.accepted_draft_tokens;
  --metrics.acceptance_histogram[row.num_drafts];
  ++metrics.acceptance_histogram[row.num_drafts + 1];
  if (drafts != nullptr && drafts->is_prediction()) ++metrics.accepted_prediction_tokens;
  spec_decode.Accepted(row.num_drafts + 1);
}

void StepPipeline::CommitToken(RequestStateEntry& leaf, SampleResult* result, TimePoint now) {
  try {
    if (leaf.slow != nullptr && !context_.slow_grammars->MakeFast(leaf)) {
      return context_.slow_grammars->Accept(leaf, std::move(*result));
    }
    CountToken(context_, leaf, leaf.num_generated() == 0, now);
    const GrammarTimer timer(context_, leaf);
    leaf.CommitToken(std::move(*result));
    leaf.grammar_ended = masks_.MustEnd(leaf);
  } catch (const std::exception& error) {
    return EndRequest(context_, *leaf.rstate, FinishReason::kError, error.what());
  }
  context_.state.MarkDirty(*leaf.rstate);
}

void StepPipeline::Discard() noexcept {
  UnwatchInFlight();
  while (num_in_flight_ > 0) {
    Flight& flight = PopOldest();
    try {
      queue_->Collect(&drawn_);
    } catch (...) {
      num_in_flight_ = 0;
    }
    TraceFinish(&flight);
    flight.kept.clear();
  }
}

void StepPipeline::DiscardDead() noexcept {
  for (int i = 0; i < num_in_flight_; ++i) {
    for (const PlannedSlice& slice : OldestFlight(i).plan.slices) {
      if (!slice.entry->finished()) return;
    }
  }
  Discard();
}

}  // namespace mlc_native
