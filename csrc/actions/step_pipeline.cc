#include "actions/step_pipeline.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "actions/post_process.h"
#include "actions/sequence_life.h"
#include "support/check.h"

namespace mlc_native {
namespace {

constexpr int kEverybody = -1;  // is at fault

}  // namespace

StepPipeline::StepPipeline(const EngineParts& parts)
    : parts_(parts), masks_(parts), trace_(parts.trace), queue_(parts.model->step_queue()) {
  if (queue_ == nullptr) queue_ = &host_steps_.emplace(parts.model);
}

bool StepPipeline::MustCollect() const {
  return num_under_way_ == StepQueue::kMaxUnderWay ||
         (num_under_way_ > 0 && flights_[oldest_].must_collect);
}

StepPipeline::Outcome StepPipeline::Submit(const EngineState& estate, const StepPlan& plan) {
  MLC_CHECK(!MustCollect());
  Flight& flight = OldestFlight(num_under_way_);
  copies_.clear();
  started_.clear();
  try {
    Prepare(plan, &flight);
    ReservePages(estate, &flight);
    if (num_under_way_ == 0) TraceStart(&flight);
    ForwardAndFillMasks(flight);
    Sample(&flight);
  } catch (const SequenceError& error) {
    return Fail(estate, plan, &flight, error.sequence_idx(), error.what());
  } catch (const std::exception& error) {
    return Fail(estate, plan, &flight, kEverybody, error.what());
  } catch (...) {
    return Fail(estate, plan, &flight, kEverybody, "the model threw what is no std::exception");
  }
  ++num_under_way_;
  Commit(estate, flight);
  if (!runs_ahead()) trace_.Add(flight.plan, "finish sampling", "finish sampling");
  return Outcome::kDone;
}

// ---- Before the commit ----

void StepPipeline::Prepare(const StepPlan& plan, Flight* flight) const {
  flight->start = parts_.now();
  flight->must_collect = false;
  flight->rows.clear();
  flight->kept.clear();
  flight->plan = plan;
  for (const PlannedSlice& slice : plan.slices) {
    RequestState& rstate = *slice.entry->rstate;
    if (runs_ahead()) flight->kept.push_back(rstate.shared_from_this());
    if (!slice.completes_input) continue;
    if (!slice.entry->is_root_of_branches()) {
      flight->rows.push_back({.leaf = slice.entry, .mask_error = {}});
    } else {
      flight->must_collect = true;
      for (int child : slice.entry->child_indices) {
        flight->rows.push_back({.leaf = &rstate.entries[child], .mask_error = {}});
      }
    }
    flight->must_collect |= flight->rows.back().leaf->grammar_matcher != nullptr;
  }
}

void StepPipeline::ReservePages(const EngineState& estate, Flight* flight) {
  const StepProfiler::Scope scope(parts_.profiler, StepPhase::kReserve);
  // First of all: a reservation may have cached pages reclaimed, and those that are hit may not be.
  for (const PlannedSlice& slice : flight->plan.slices) {
    if (slice.entry->mstate.internal_id != RequestModelState::kNoId) continue;
    started_.push_back(slice.entry);
    StartSequence(estate, parts_, *slice.entry, slice.num_cached, flight->start);
  }
  flight->num_started = std::ssize(started_);
  for (const PlannedSlice& slice : flight->plan.slices) {
    const RequestStateEntry& entry = *slice.entry;
    // All that the entry has to compute, not only this chunk: it will not run out on its way.
    parts_.kv->Reserve(entry.mstate.internal_id, entry.num_tokens_to_compute(), &copies_);
  }
}

void StepPipeline::ForwardAndFillMasks(const Flight& flight) {
  struct Waiting {
    GrammarMasks& masks;
    ~Waiting() { masks.Wait(); }
  };
  masks_.Start(flight.plan);
  const Waiting waiting{masks_};
  Forward(flight.plan);
}

void StepPipeline::Forward(const StepPlan& plan) {
  const StepProfiler::Scope scope(parts_.profiler, StepPhase::kForward);
  if (!copies_.empty()) parts_.model->CopyPages(copies_);
  token_ids_.clear();
  sequences_.clear();
  logits_rows_.clear();
  for (const PlannedSlice& slice : plan.slices) AddSlice(slice);
  queue_->Forward({.token_ids = token_ids_, .sequences = sequences_, .logits_rows = logits_rows_});
}

void StepPipeline::AddSlice(const PlannedSlice& slice) {
  const RequestStateEntry& entry = *slice.entry;
  const int64_t position = entry.mstate.kv_len;
  const int64_t end = position + slice.num_tokens;
  const int64_t page_size = parts_.kv->page_size();
  const auto block_table = parts_.kv->block_table(entry.mstate.internal_id);
  sequences_.push_back({.first_row = static_cast<int32_t>(token_ids_.size()),
                        .num_tokens = static_cast<int32_t>(slice.num_tokens),
                        .position = position,
                        .block_table = block_table.first((end + page_size - 1) / page_size)});
  const int64_t known = std::min<int64_t>(end, std::ssize(entry.tokens));
  token_ids_.insert(token_ids_.end(), entry.tokens.begin() + position,
                    entry.tokens.begin() + known);
  if (known < end) token_ids_.push_back(PendingToken(entry.pending_row));
  if (!slice.completes_input) return;
  const size_t num_draws = entry.is_root_of_branches() ? entry.child_indices.size() : 1;
  logits_rows_.insert(logits_rows_.end(), num_draws, static_cast<int32_t>(token_ids_.size()) - 1);
}

void StepPipeline::Sample(Flight* flight) {
  const StepProfiler::Scope scope(parts_.profiler, StepPhase::kSample);
  if (!runs_ahead()) trace_.Add(flight->plan, "start sampling", "start sampling");
  token_rows_.clear();
  auto row = flight->rows.begin();
  for (const PlannedSlice& slice : flight->plan.slices) {
    if (!slice.completes_input) continue;
    const size_t num_draws = std::max<size_t>(1, slice.entry->child_indices.size());
    for (size_t i = 0; i < num_draws; ++i) {
      token_rows_.push_back(TokenRowOf(&*row++, slice.entry->length()));
    }
  }
  queue_->Sample(token_rows_);
}

TokenRow StepPipeline::TokenRowOf(Row* row, int64_t position) {
  const RequestStateEntry& leaf = *row->leaf;
  TokenRow token_row{.config = &leaf.rstate->config(),
                     .counts = leaf.generated_counts.counts(),
                     .pending_row = leaf.num_pending > 0 ? leaf.pending_row : TokenRow::kNone,
                     .sequence = static_cast<uint64_t>(leaf.sequence_idx),
                     .position = static_cast<uint64_t>(position),
                     .allowed = {}};
  try {
    token_row.allowed = masks_.AllowedTokens(leaf);
  } catch (const SamplingError& error) {
    row->mask_error = error.what();
  }
  return token_row;
}

// ---- Commit of all but the tokens ----

void StepPipeline::Commit(const EngineState& estate, const Flight& flight) {
  const StepProfiler::Scope scope(parts_.profiler, StepPhase::kCommit);
  for (size_t i = 0; i < flight.rows.size(); ++i) {
    const int64_t length = static_cast<int64_t>(token_rows_[i].position) + 1;
    RequestStateEntry& leaf = *flight.rows[i].leaf;
    ++leaf.num_pending;
    leaf.pending_row = static_cast<int32_t>(i);
    leaf.last_is_pending = leaf.EndsAt(length, parts_.max_sequence_length);
  }
  for (const PlannedSlice& slice : flight.plan.slices) CommitSlice(estate, slice);
  estate->PopPrefilled();
}

void StepPipeline::CommitSlice(const EngineState& estate, const PlannedSlice& slice) {
  RequestStateEntry& entry = *slice.entry;
  parts_.kv->Commit(entry.mstate.internal_id, slice.num_tokens);
  entry.mstate.kv_len += slice.num_tokens;
  entry.mstate.kv_under_way += slice.num_tokens;
  if (slice.is_decode || !slice.completes_input || entry.is_root_of_branches()) return;
  entry.status = RequestStateStatus::kAlive;
  estate->PushRunning(*entry.rstate);
  estate->running_rsentries_changed = true;
}

// ---- Failure of a submit ----

void StepPipeline::Undo(const EngineState& estate, const StepPlan& plan, Flight* flight) {
  for (const PlannedSlice& slice : plan.slices) {
    const RequestStateEntry& entry = *slice.entry;
    const int64_t id = entry.mstate.internal_id;
    if (id != RequestModelState::kNoId && parts_.kv->HasSequence(id)) parts_.kv->PopN(id, 0);
  }
  for (RequestStateEntry* entry : started_) ReleaseSequence(estate, parts_, *entry);
  TraceFinish(flight);
  flight->kept.clear();
}

StepPipeline::Outcome StepPipeline::Fail(const EngineState& estate, const StepPlan& plan,
                                         Flight* flight, int sequence_idx,
                                         const std::string& message) {
  Undo(estate, plan, flight);
  if (CatchUp(estate)) return Outcome::kPlanAnew;
  if (sequence_idx >= 0 && sequence_idx < std::ssize(plan.slices)) {
    RequestState& rstate = *plan.slices[sequence_idx].entry->rstate;
    EndRequest(estate, parts_, rstate, FinishReason::kError, message);
    return Outcome::kPlanAnew;
  }
  for (const PlannedSlice& slice : plan.slices) {
    EndRequest(estate, parts_, *slice.entry->rstate, FinishReason::kError, message);
  }
  return Outcome::kDone;
}

// ---- Collect ----

StepPipeline::Flight& StepPipeline::PopOldest() {
  Flight& oldest = OldestFlight();
  oldest_ = (oldest_ + 1) % std::ssize(flights_);
  --num_under_way_;
  return oldest;
}

void StepPipeline::CollectUntil(const EngineState& estate, int num_left) {
  while (num_under_way_ > num_left) Collect(estate);
}

bool StepPipeline::CatchUp(const EngineState& estate) {
  if (num_under_way_ == 0) return false;
  CollectUntil(estate, 0);
  const StepProfiler::Scope scope(parts_.profiler, StepPhase::kPostProcess);
  PostProcess(estate, parts_);
  return true;
}

void StepPipeline::Collect(const EngineState& estate) {
  const StepProfiler::Scope scope(parts_.profiler, StepPhase::kCollect);
  try {
    queue_->Collect(&drawn_);
  } catch (const std::exception& error) {
    return FailUnderWay(estate, error.what());
  } catch (...) {
    return FailUnderWay(estate, "the model threw what is no std::exception");
  }
  Flight& flight = PopOldest();
  MLC_CHECK(drawn_.size() == flight.rows.size()) << drawn_.size() << " of " << flight.rows.size();
  TraceFinish(&flight);
  if (num_under_way_ > 0) TraceStart(&OldestFlight());
  const TimePoint now = parts_.now();
  EndFailed(estate, flight);
  for (const PlannedSlice& slice : flight.plan.slices) CollectSlice(estate, slice);
  for (size_t i = 0; i < flight.rows.size(); ++i) {
    CommitToken(estate, *flight.rows[i].leaf, std::move(drawn_[i].result), now);
  }
  UpdateMetrics(estate, flight, now);
  flight.kept.clear();
}

void StepPipeline::FailUnderWay(const EngineState& estate, const std::string& message) {
  const int num_lost = std::exchange(num_under_way_, 0);
  for (int i = 0; i < num_lost; ++i) {
    Flight& flight = OldestFlight(i);
    TraceFinish(&flight);
    for (const PlannedSlice& slice : flight.plan.slices) {
      if (slice.entry->finished()) continue;
      EndRequest(estate, parts_, *slice.entry->rstate, FinishReason::kError, message);
    }
    flight.kept.clear();
  }
}

// First of all: nothing that the step has computed for them is kept.
void StepPipeline::EndFailed(const EngineState& estate, const Flight& flight) {
  for (size_t i = 0; i < flight.rows.size(); ++i) {
    const Row& row = flight.rows[i];
    const std::string& error = row.mask_error.empty() ? drawn_[i].error : row.mask_error;
    if (error.empty() || row.leaf->finished()) continue;
    EndRequest(estate, parts_, *row.leaf->rstate, FinishReason::kError, error);
  }
}

void StepPipeline::CollectSlice(const EngineState& estate, const PlannedSlice& slice) {
  RequestStateEntry& entry = *slice.entry;
  if (entry.finished()) return;
  entry.mstate.kv_under_way -= slice.num_tokens;
  if (slice.is_decode) return;

  RequestState& rstate = *entry.rstate;
  CachePrefix(estate, entry);
  CountPromptTokens(slice);
  if (!slice.completes_input) return;
  if (rstate.config().debug_config.pinned_system_prompt) PinPrompt(estate, *rstate.request);
  if (!entry.is_root_of_branches()) return;
  ForkChildren(estate, parts_, entry);
  estate->PushRunning(rstate);
  estate->running_rsentries_changed = true;
}

// Each prompt token once, as cached or as prefilled; recomputation does not count.
void StepPipeline::CountPromptTokens(const PlannedSlice& slice) const {
  RequestStateEntry& entry = *slice.entry;
  RequestMetrics& metrics = entry.rstate->metrics;
  const int64_t prompt_len = entry.rstate->request->prompt_len();
  const auto count = [&](int64_t num_tokens, int64_t* counter) {
    const int64_t more = std::min(num_tokens, prompt_len) - entry.num_prompt_counted;
    if (more <= 0) return;
    *counter += more;
    entry.num_prompt_counted += more;
  };
  count(slice.num_cached, &metrics.cached_tokens);
  count(entry.mstate.num_collected(), &metrics.prefill_tokens);
}

void StepPipeline::CommitToken(const EngineState& estate, RequestStateEntry& leaf,
                               SampleResult result, TimePoint now) {
  if (--leaf.num_pending == 0) leaf.last_is_pending = false;
  if (leaf.finished()) return;
  RequestMetrics& metrics = leaf.rstate->metrics;
  ++metrics.completion_tokens;
  if (leaf.num_generated() > 0) {
    ++metrics.decode_tokens;
    estate->metrics.inter_token_latency_s.Observe(
        std::chrono::duration<double>(now - leaf.last_token_time_point).count());
  } else if (++metrics.num_answers == 1) {
    metrics.prefill_end_time_point = now;
    estate->metrics.ttft_s.Observe(metrics.ttft_s());
  }
  leaf.last_token_time_point = now;
  metrics.last_token_time_point = now;
  try {
    leaf.CommitToken(std::move(result));
    leaf.grammar_ended = masks_.MustEnd(leaf);
  } catch (const std::exception& error) {
    return EndRequest(estate, parts_, *leaf.rstate, FinishReason::kError, error.what());
  }
  estate->AddNews(*leaf.rstate);
}

void StepPipeline::Discard() noexcept {
  while (num_under_way_ > 0) {
    Flight& flight = PopOldest();
    try {
      queue_->Collect(&drawn_);
    } catch (...) {
      num_under_way_ = 0;
    }
    try {
      TraceFinish(&flight);
    } catch (...) {  // no memory: an event less
    }
    flight.kept.clear();
  }
}

void StepPipeline::DiscardDead() noexcept {
  for (int i = 0; i < num_under_way_; ++i) {
    for (const PlannedSlice& slice : OldestFlight(i).plan.slices) {
      if (!slice.entry->finished()) return;
    }
  }
  Discard();
}

// ---- Records ----

void StepPipeline::UpdateMetrics(const EngineState& estate, const Flight& flight, TimePoint now) {
  EngineMetrics& metrics = estate->metrics;
  const StepPlan& plan = flight.plan;
  ++metrics.num_steps;
  metrics.grammar_mask_time_sum += masks_.TakeFillSeconds();
  if (estate->prefix_cache != nullptr && flight.num_started > 0) {
    metrics.prefix_cache_lookups += flight.num_started;
    for (const PlannedSlice& slice : plan.slices) {
      metrics.prefix_cache_hits += slice.num_cached > 0 ? 1 : 0;
      metrics.prefix_cache_tokens_saved += slice.num_cached;
    }
  }
  // Behind another step it was computed since that one's end.
  const TimePoint start = std::max(flight.start, std::exchange(last_collect_, now));
  const double seconds = std::chrono::duration<double>(now - start).count();
  // A mixed step counts for both, by their rows.
  const double prefill_seconds =
      seconds * static_cast<double>(plan.num_prefill_rows) / static_cast<double>(plan.num_rows);
  metrics.engine_prefill_time_sum += prefill_seconds;
  metrics.engine_decode_time_sum += seconds - prefill_seconds;
  if (plan.num_prefill_rows == 0 &&
      plan.slices.size() < EngineMetrics::kEndFineGrainedTrackingBatchSize) {
    metrics.decode_time_by_batch_size[plan.slices.size()].Update(seconds);
  }
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
