#include "step/step_pipeline.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "engine_state.h"
#include "kv/paged_kv_cache.h"
#include "mlc_native/model.h"
#include "observe/step_profiler.h"
#include "step/sequence_life.h"
#include "step/token_blocks.h"
#include "support/check.h"

namespace mlc_native {
namespace {

constexpr int kAllSequences = -1;  // are at fault

}  // namespace

StepPipeline::StepPipeline(StepContext& context)
    : context_(context),
      masks_(context),
      limits_(context),
      pooling_(context),
      jump_forward_(context),
      trace_(context.trace),
      queue_(context.model.step_queue()) {
  if (queue_ == nullptr) queue_ = &host_steps_.emplace(&context.model);
  for (size_t i = 0; i < flights_.size(); ++i) flights_[i].place = static_cast<int64_t>(i);
}

bool StepPipeline::MustCollect() const {
  if (num_in_flight_ == 0) return false;
  const StepBatch& oldest = flights_[oldest_].batch;
  return num_in_flight_ == StepQueue::kMaxInFlight || oldest.must_collect() ||
         (oldest.max_drafts() > 0 && !context_.state.waiting_queue.empty());
}

StepPipeline::Outcome StepPipeline::Submit(const StepPlan& plan) {
  MLC_CHECK(!MustCollect());
  Flight& flight = OldestFlight(num_in_flight_);
  try {
    Prepare(plan, &flight);
    ReservePages(&flight);
    if (num_in_flight_ == 0) TraceStart(&flight);
    ForwardAndFillMasks(&flight);
    Sample(&flight);
  } catch (const SequenceError& error) {
    return Fail(plan, &flight, error.sequence_idx(), error.what());
  } catch (const std::exception& error) {
    return Fail(plan, &flight, kAllSequences, error.what());
  } catch (...) {
    return Fail(plan, &flight, kAllSequences, "the model threw what is no std::exception");
  }
  ++num_in_flight_;
  if (flight.batch.is_in_chain()) ++context_.state.metrics.spec_decode.num_steps_ahead;
  Commit(&flight);
  if (!runs_ahead()) trace_.Add(flight.plan, "finish sampling", "finish sampling");
  return Outcome::kDone;
}

// ---- Before the commit ----

void StepPipeline::Prepare(const StepPlan& plan, Flight* flight) {
  copies_.clear();
  started_.clear();
  flight->batch.Clear();
  flight->mask_errors.clear();
  flight->kept.clear();
  flight->is_watched = false;
  flight->start = context_.now();
  flight->plan = plan;
}

void StepPipeline::ReservePages(Flight* flight) {
  const StepProfiler::Scope scope(context_.profiler, StepPhase::kReserve);
  // All sequences start before any page is reserved: a reservation may reclaim cached pages, and
  // pages that a sequence has taken from the cache are safe.
  for (const PlannedSlice& slice : flight->plan.slices) {
    if (slice.entry->mstate.internal_id != RequestModelState::kNoId) continue;
    started_.push_back(slice.entry);
    StartSequence(context_, *slice.entry, slice.num_cached, flight->start);
  }
  flight->num_started = std::ssize(started_);
  for (const PlannedSlice& slice : flight->plan.slices) {
    // Pages for all that the entry has to compute, not only for this chunk.
    context_.kv.Reserve(slice.entry->mstate.internal_id, slice.entry->num_tokens_to_compute(),
                        &copies_);
  }
  for (const PlannedSlice& slice : flight->plan.slices) {
    if (slice.num_drawn > 1) ReserveForDrafts(slice);
  }
  if (!context_.kv.has_states()) return;
  for (const PlannedSlice& slice : flight->plan.slices) ReserveStates(slice);
}

// A state behind the last token and behind each token from which the sequence may go on instead:
// where a draft token may be wrong, and where a mask may not be there in time. For the prefix cache
// one where the prompt diverges from what is cached, and one that the same prompt can start from.
void StepPipeline::ReserveStates(const PlannedSlice& slice) {
  const RequestStateEntry& entry = *slice.entry;
  const bool has_cache = context_.state.prefix_cache != nullptr;
  const int64_t divergence = entry.mstate.divergence - entry.mstate.kv_len;
  const int64_t last = slice.num_tokens - slice.num_drawn;  // tokens before the drawn ones
  state_places_.clear();
  if (has_cache && divergence > 0 && divergence < last) {
    state_places_.push_back({.num_tokens = divergence, .is_kept = true});
  }
  if (slice.completes_input && (last > 0 || !slice.is_decode)) {
    state_places_.push_back({.num_tokens = last, .is_kept = has_cache && !slice.is_decode});
  }
  const int64_t first = slice.completes_input ? last + 1 : slice.num_tokens;
  for (int64_t i = first; i <= slice.num_tokens; ++i) state_places_.push_back({.num_tokens = i});
  context_.kv.ReserveStates(entry.mstate.internal_id, state_places_);
}

// Draft tokens take free pages only.
void StepPipeline::ReserveForDrafts(const PlannedSlice& slice) {
  const int64_t id = slice.entry->mstate.internal_id;
  const int64_t num_tokens = slice.entry->num_tokens_to_compute() + slice.num_drawn - 1;
  const int64_t num_pages = context_.kv.PagesNeeded(id, num_tokens);
  MLC_CHECK(num_pages <= context_.kv.pool().num_free())
      << num_pages << " pages for drafts, " << context_.kv.pool().num_free() << " are free";
  context_.kv.Reserve(id, num_tokens, &copies_);
}

void StepPipeline::ForwardAndFillMasks(Flight* flight) {
  struct Waiting {
    StepPipeline& pipeline;
    double* seconds;
    ~Waiting() {
      const TimePoint start = pipeline.context_.now();
      pipeline.masks_.Wait();
      *seconds = std::chrono::duration<double>(pipeline.context_.now() - start).count();
    }
  };
  masks_.Start(flight->plan);
  const Waiting waiting{*this, &flight->mask_seconds};
  const StepProfiler::Scope scope(context_.profiler, StepPhase::kForward);
  if (!copies_.empty()) context_.model.CopyPages(copies_);
  flight->num_masks = 0;
  int64_t num_blocks = 0;
  for (const PlannedSlice& slice : flight->plan.slices) {
    flight->batch.Add(slice, context_.kv, NextBlock(slice, &num_blocks));
    if (slice.entry->grammar_matcher != nullptr) flight->num_masks += slice.num_drawn;
    if (runs_ahead() || slice.num_drawn > 1)
      flight->kept.push_back(slice.entry->rstate->shared_from_this());
  }
  ForwardBatch batch = flight->batch.forward();
  batch.hidden = States(flight);
  TokenBlocks* const blocks = context_.token_blocks;
  if (blocks == nullptr) return queue_->Forward(batch);
  batch.tokens = &blocks->memory();
  blocks->BeginStep();
  queue_->Forward(batch);
  blocks->StepBegun();
}

// Steps in flight leave theirs in different places.
TokenBlock StepPipeline::NextBlock(const PlannedSlice& slice, int64_t* num_blocks) const {
  const TokenBlocks* const blocks = context_.token_blocks;
  if (blocks == nullptr || !blocks->is_wanted() || !slice.completes_input) return {};
  if (!TokenBlocks::Allows(*slice.entry)) return {};
  const int64_t slot = (oldest_ + num_in_flight_) % std::ssize(flights_);
  return blocks->BlockOf(slot, (*num_blocks)++, slice.num_drawn - 1);
}

HiddenStates StepPipeline::States(Flight* flight) {
  HiddenStates states = pooling_.Ask(flight->batch, flight->place);
  if (!states.rows.empty()) return states;
  states = Watch(flight->plan);
  flight->is_watched = !states.rows.empty();
  return states;
}

HiddenStates StepPipeline::Watch(const StepPlan& plan) {
  if (context_.batch_drafter == nullptr) return {};
  watched_.clear();
  int64_t first_row = 0;
  for (const PlannedSlice& slice : plan.slices) {
    const RequestStateEntry& entry = *slice.entry;
    // A head knows tokens only.
    if (entry.rstate->may_draft && entry.rstate->request->prompt_rows.empty()) {
      watched_.push_back({.sequence_id = entry.mstate.internal_id,
                          .space = entry.rstate->request->cache_space(),
                          .tokens = &entry.tokens,
                          .position = entry.mstate.kv_len,
                          .first_row = static_cast<int32_t>(first_row),
                          .num_rows = static_cast<int32_t>(slice.num_tokens)});
    }
    first_row += slice.num_tokens;
  }
  if (watched_.empty()) return {};
  try {
    return context_.batch_drafter->Watch(watched_);
  } catch (const std::exception&) {  // no memory
    ++context_.state.metrics.spec_decode.num_failures;
    context_.batch_drafter->Unwatch();
    return {};
  }
}

void StepPipeline::Sample(Flight* flight) {
  const StepProfiler::Scope scope(context_.profiler, StepPhase::kSample);
  if (!runs_ahead()) trace_.Add(flight->plan, "start sampling", "start sampling");
  const std::span<StepBatch::Row> rows = flight->batch.rows();
  const std::span<TokenRow> token_rows = flight->batch.token_rows();
  limits_.Clear();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].is_scored) continue;
    rows[i].is_withheld = rows[i].entry->sits_out();
    if (rows[i].is_withheld) continue;
    try {
      token_rows[i].allowed =
          limits_.Restrict(*rows[i].entry, flight->batch.drafts_before(i),
                           static_cast<int64_t>(token_rows[i].position),
                           masks_.AllowedTokens(*rows[i].entry, rows[i].num_drafts));
    } catch (const SamplingError& error) {
      flight->mask_errors.emplace_back(i, error.what());
    }
  }
  queue_->Sample(token_rows);
}

// ---- Commit of all but the tokens ----

void StepPipeline::Commit(Flight* flight) {
  const StepProfiler::Scope scope(context_.profiler, StepPhase::kCommit);
  for (size_t i = 0; i < flight->batch.rows().size(); ++i) {
    const StepBatch::Row& row = flight->batch.rows()[i];
    if (row.is_scored) continue;
    const TokenRow& token_row = flight->batch.token_rows()[i];
    row.entry->pending_rows.push_back(static_cast<int32_t>(i));
    // The furthest that it can be. If that is the end, the sequence waits until it is known.
    auto position = static_cast<int64_t>(token_row.position);
    if (token_row.behind != TokenRow::kNone) position += row.entry->mstate.block.num_guesses;
    row.entry->last_is_pending = row.entry->EndsAt(position + 1, context_.max_sequence_length);
  }
  for (size_t i = 0; i < flight->plan.slices.size(); ++i) {
    CommitSlice(flight->plan.slices[i]);
    flight->plan.slices[i].entry->mstate.block = flight->batch.block(i);
  }
  context_.state.PopPrefilled();
}

void StepPipeline::CommitSlice(const PlannedSlice& slice) {
  RequestStateEntry& entry = *slice.entry;
  context_.kv.Commit(entry.mstate.internal_id, slice.num_tokens);
  entry.mstate.kv_len += slice.num_tokens;
  entry.mstate.kv_in_flight += slice.num_tokens;
  if (slice.is_decode || !slice.completes_input) return;
  if (!entry.is_root_of_branches()) entry.status = RequestStateStatus::kAlive;
  context_.state.PushRunning(*entry.rstate);
  context_.state.running_rsentries_changed = true;
}

// ---- Failure of a submit ----

void StepPipeline::Undo(const StepPlan& plan, Flight* flight) {
  if (std::exchange(flight->is_watched, false)) context_.batch_drafter->Unwatch();
  for (const PlannedSlice& slice : plan.slices) {
    const RequestStateEntry& entry = *slice.entry;
    const int64_t id = entry.mstate.internal_id;
    if (id != RequestModelState::kNoId && context_.kv.HasSequence(id)) context_.kv.PopN(id, 0);
  }
  for (RequestStateEntry* entry : started_) ReleaseSequence(context_, *entry);
  TraceFinish(flight);
  flight->kept.clear();
}

StepPipeline::Outcome StepPipeline::Fail(const StepPlan& plan, Flight* flight, int sequence_idx,
                                         const char* message) {
  Undo(plan, flight);
  const bool had_drafts =
      std::ranges::any_of(plan.slices, [](const auto& slice) { return slice.num_drawn > 1; });
  if (had_drafts) ++context_.state.metrics.spec_decode.num_failures;
  if (CatchUp() || had_drafts) return Outcome::kPlanAnew;
  if (sequence_idx >= 0 && sequence_idx < std::ssize(plan.slices)) {
    RequestState& rstate = *plan.slices[sequence_idx].entry->rstate;
    EndRequest(context_, rstate, FinishReason::kError, message);
    return Outcome::kPlanAnew;
  }
  for (const PlannedSlice& slice : plan.slices) {
    EndRequest(context_, *slice.entry->rstate, FinishReason::kError, message);
  }
  return Outcome::kDone;
}

// ---- Records ----

void StepPipeline::UpdateMetrics(const Flight& flight, TimePoint now) {
  EngineMetrics& metrics = context_.state.metrics;
  const StepPlan& plan = flight.plan;
  ++metrics.num_steps;
  metrics.step_tokens.Observe(static_cast<double>(plan.num_rows));
  metrics.grammar_mask_time_sum += masks_.TakeFillSeconds();
  if (context_.state.prefix_cache != nullptr && flight.num_started > 0) {
    metrics.prefix_cache_lookups += flight.num_started;
    for (const PlannedSlice& slice : plan.slices) {
      metrics.prefix_cache_hits += slice.num_cached > 0 ? 1 : 0;
      metrics.prefix_cache_tokens_saved += slice.num_cached;
    }
  }
  // A step that was submitted behind another one is computed from the end of that one.
  const TimePoint start = std::max(flight.start, std::exchange(last_collect_, now));
  const double seconds = std::chrono::duration<double>(now - start).count();
  // A mixed step counts for both, by their rows.
  const double prefill_seconds =
      seconds * static_cast<double>(plan.num_prefill_rows) / static_cast<double>(plan.num_rows);
  metrics.engine_prefill_time_sum += prefill_seconds;
  metrics.engine_decode_time_sum += seconds - prefill_seconds;
  // The device has computed guesses, too, between two steps with such ones.
  const bool is_alone = !flight.batch.is_in_chain();
  if (plan.num_prefill_rows == 0 && is_alone) ObserveCosts(flight, seconds);
  if (plan.num_prefill_rows == 0 &&
      plan.slices.size() < EngineMetrics::kEndFineGrainedTrackingBatchSize) {
    metrics.decode_time_by_batch_size[plan.slices.size()].Update(seconds);
  }
}

void StepPipeline::ObserveCosts(const Flight& flight, double seconds) {
  // Requests of the step may have ended, and their entries with them.
  DecodeCosts::Step step{
      .num_rows = flight.plan.num_rows, .num_masks = flight.num_masks, .seconds = seconds};
  for (const PlannedSlice& slice : flight.plan.slices) step.num_guesses += slice.num_drawn - 1;
  // A device computes while the masks are waited for.
  if (!runs_ahead()) step.mask_seconds = std::min(flight.mask_seconds, seconds);
  step.seconds -= step.mask_seconds;
  context_.state.decode_costs.Observe(step);
}

void StepPipeline::TraceStart(Flight* flight) {
  flight->is_traced = trace_.is_on();
  trace_.Add(flight->plan, "start prefill", "start decode");
}

void StepPipeline::TraceFinish(Flight* flight) {
  if (!std::exchange(flight->is_traced, false)) return;
  trace_.Add(flight->plan, "finish prefill", "finish decode");
}

}  // namespace mlc_native
