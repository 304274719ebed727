#include "actions/forward_step.h"

#include <algorithm>
#include <exception>

#include "actions/sequence_life.h"
#include "support/check.h"

namespace mlc_native {

ForwardStep::Outcome ForwardStep::Run(const EngineState& estate, const StepPlan& plan) {
  const TimePoint start = parts_.now();
  try {
    ReservePages(estate, plan, start);
    Trace(plan, /*is_decode=*/false, "start prefill");
    Trace(plan, /*is_decode=*/true, "start decode");
    const LogitsView logits = ForwardAndFillMasks(plan);
    Sample(plan, logits);
  } catch (const SequenceError& error) {
    return FailSequence(estate, plan, error);
  } catch (const std::exception& error) {
    return FailAll(estate, plan, error.what());
  } catch (...) {
    return FailAll(estate, plan, "the model threw what is no std::exception");
  }
  Trace(plan, /*is_decode=*/false, "finish prefill");
  Trace(plan, /*is_decode=*/true, "finish decode");
  Commit(estate, plan, start);
  return Outcome::kDone;
}

// ---- Before the commit ----

void ForwardStep::ReservePages(const EngineState& estate, const StepPlan& plan, TimePoint now) {
  const StepProfiler::Scope scope(parts_.profiler, StepPhase::kReserve);
  copies_.clear();
  started_.clear();
  // First of all: a reservation may have cached pages reclaimed, and those that are hit may not be.
  for (const PlannedSlice& slice : plan.slices) {
    if (slice.entry->mstate.internal_id != RequestModelState::kNoId) continue;
    started_.push_back(slice.entry);
    StartSequence(estate, parts_, *slice.entry, slice.num_cached, now);
  }
  for (const PlannedSlice& slice : plan.slices) {
    const RequestStateEntry& entry = *slice.entry;
    // All that the entry has to compute, not only this chunk: it will not run out on its way.
    parts_.kv->Reserve(entry.mstate.internal_id, entry.num_tokens_to_compute(), &copies_);
  }
}

LogitsView ForwardStep::ForwardAndFillMasks(const StepPlan& plan) {
  struct Waiting {
    GrammarMasks& masks;
    ~Waiting() { masks.Wait(); }
  };
  masks_.Start(plan);
  const Waiting waiting{masks_};
  return Forward(plan);
}

LogitsView ForwardStep::Forward(const StepPlan& plan) {
  const StepProfiler::Scope scope(parts_.profiler, StepPhase::kForward);
  if (!copies_.empty()) parts_.model->CopyPages(copies_);
  token_ids_.clear();
  sequences_.clear();
  logits_rows_.clear();
  for (const PlannedSlice& slice : plan.slices) AddSlice(slice);
  const LogitsView logits = parts_.model->Forward(
      ForwardBatch{.token_ids = token_ids_, .sequences = sequences_, .logits_rows = logits_rows_});
  MLC_CHECK(logits.num_rows == std::ssize(logits_rows_))
      << logits.num_rows << " rows of logits, wanted " << logits_rows_.size();
  return logits;
}

void ForwardStep::AddSlice(const PlannedSlice& slice) {
  const RequestStateEntry& entry = *slice.entry;
  const int64_t position = entry.mstate.kv_len;
  const int64_t end = position + slice.num_tokens;
  const int64_t page_size = parts_.kv->page_size();
  const auto block_table = parts_.kv->block_table(entry.mstate.internal_id);
  sequences_.push_back({.first_row = static_cast<int32_t>(token_ids_.size()),
                        .num_tokens = static_cast<int32_t>(slice.num_tokens),
                        .position = position,
                        .block_table = block_table.first((end + page_size - 1) / page_size)});
  token_ids_.insert(token_ids_.end(), entry.tokens.begin() + position, entry.tokens.begin() + end);
  if (slice.completes_input) logits_rows_.push_back(static_cast<int32_t>(token_ids_.size()) - 1);
}

void ForwardStep::Sample(const StepPlan& plan, const LogitsView& logits) {
  const StepProfiler::Scope scope(parts_.profiler, StepPhase::kSample);
  Trace(plan, /*is_decode=*/false, "start sampling");
  Trace(plan, /*is_decode=*/true, "start sampling");
  sampled_.clear();
  sampling_errors_.clear();
  int64_t row = 0;
  for (const PlannedSlice& slice : plan.slices) {
    if (slice.completes_input) SampleRow(*slice.entry, logits.row(row++));
  }
  Trace(plan, /*is_decode=*/false, "finish sampling");
  Trace(plan, /*is_decode=*/true, "finish sampling");
}

void ForwardStep::SampleRow(RequestStateEntry& entry, std::span<float> row) {
  const int64_t position = std::ssize(entry.tokens);
  try {
    if (!entry.is_root_of_branches()) return SampleToken(entry, position, row);
    row_copy_.assign(row.begin(), row.end());  // sampling overwrites the row
    for (int child : entry.child_indices) {
      SampleToken(entry.rstate->entries[child], position, row);
      std::copy(row_copy_.begin(), row_copy_.end(), row.begin());
    }
  } catch (const SamplingError& error) {
    sampling_errors_.emplace_back(entry.rstate, error.what());
  }
}

void ForwardStep::SampleToken(RequestStateEntry& leaf, int64_t position, std::span<float> row) {
  const SamplingContext context{.config = &leaf.rstate->config(),
                                .generated = &leaf.generated_counts,
                                .sequence = static_cast<uint64_t>(leaf.sequence_idx),
                                .position = static_cast<uint64_t>(position),
                                .allowed = masks_.AllowedTokens(leaf)};
  sampled_.push_back({&leaf, parts_.sampler->Sample(row, context)});
}

// ---- Failure ----

void ForwardStep::Undo(const EngineState& estate, const StepPlan& plan) {
  for (const PlannedSlice& slice : plan.slices) {
    const RequestStateEntry& entry = *slice.entry;
    const int64_t id = entry.mstate.internal_id;
    if (id != RequestModelState::kNoId && parts_.kv->HasSequence(id)) parts_.kv->PopN(id, 0);
  }
  for (RequestStateEntry* entry : started_) ReleaseSequence(estate, parts_, *entry);
  Trace(plan, /*is_decode=*/false, "finish prefill");
  Trace(plan, /*is_decode=*/true, "finish decode");
}

ForwardStep::Outcome ForwardStep::FailSequence(const EngineState& estate, const StepPlan& plan,
                                               const SequenceError& error) {
  const int index = error.sequence_idx();
  if (index < 0 || index >= std::ssize(plan.slices)) return FailAll(estate, plan, error.what());
  Undo(estate, plan);
  EndRequest(estate, parts_, *plan.slices[index].entry->rstate, FinishReason::kError, error.what());
  return Outcome::kPlanAnew;
}

ForwardStep::Outcome ForwardStep::FailAll(const EngineState& estate, const StepPlan& plan,
                                          const std::string& message) {
  Undo(estate, plan);
  for (const PlannedSlice& slice : plan.slices) {
    EndRequest(estate, parts_, *slice.entry->rstate, FinishReason::kError, message);
  }
  return Outcome::kDone;
}

// ---- Commit ----

void ForwardStep::Commit(const EngineState& estate, const StepPlan& plan, TimePoint start) {
  const StepProfiler::Scope scope(parts_.profiler, StepPhase::kCommit);
  const TimePoint now = parts_.now();
  for (const auto& [rstate, message] : sampling_errors_) {
    EndRequest(estate, parts_, *rstate, FinishReason::kError, message);
  }
  for (const PlannedSlice& slice : plan.slices) CommitSlice(estate, slice);
  for (Sampled& sampled : sampled_) CommitToken(estate, sampled, now);
  estate->PopPrefilled();
  UpdateMetrics(estate, plan, std::chrono::duration<double>(now - start).count());
}

// Each prompt token once, as cached or as prefilled; recomputation does not count.
void ForwardStep::CountPromptTokens(const PlannedSlice& slice) {
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
  count(entry.mstate.kv_len, &metrics.prefill_tokens);
}

void ForwardStep::CommitSlice(const EngineState& estate, const PlannedSlice& slice) {
  RequestStateEntry& entry = *slice.entry;
  if (entry.mstate.internal_id == RequestModelState::kNoId) return;  // ended by a sampling error
  RequestState& rstate = *entry.rstate;
  parts_.kv->Commit(entry.mstate.internal_id, slice.num_tokens);
  entry.mstate.kv_len += slice.num_tokens;
  if (slice.is_decode) return;

  CachePrefix(estate, parts_, entry);
  CountPromptTokens(slice);
  if (!slice.completes_input) return;
  if (rstate.config().debug_config.pinned_system_prompt) PinPrompt(estate, *rstate.request);
  if (entry.is_root_of_branches()) {
    ForkChildren(estate, parts_, entry);
  } else {
    entry.status = RequestStateStatus::kAlive;
  }
  estate->PushRunning(rstate);
  estate->running_rsentries_changed = true;
}

void ForwardStep::CommitToken(const EngineState& estate, Sampled& sampled, TimePoint now) {
  RequestStateEntry& leaf = *sampled.leaf;
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
    leaf.CommitToken(std::move(sampled.result));
    leaf.grammar_ended = masks_.MustEnd(leaf);
  } catch (const std::exception& error) {
    return EndRequest(estate, parts_, *leaf.rstate, FinishReason::kError, error.what());
  }
  estate->AddNews(*leaf.rstate);
}

void ForwardStep::UpdateMetrics(const EngineState& estate, const StepPlan& plan, double seconds) {
  EngineMetrics& metrics = estate->metrics;
  ++metrics.num_steps;
  metrics.grammar_mask_time_sum += masks_.TakeFillSeconds();
  if (estate->prefix_cache != nullptr && !started_.empty()) {
    metrics.prefix_cache_lookups += std::ssize(started_);
    for (const PlannedSlice& slice : plan.slices) {
      metrics.prefix_cache_hits += slice.num_cached > 0 ? 1 : 0;
      metrics.prefix_cache_tokens_saved += slice.num_cached;
    }
  }
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

// Each request of the plan once; its slices of one kind follow each other.
void ForwardStep::Trace(const StepPlan& plan, bool is_decode, std::string_view event) {
  if (parts_.trace == nullptr) return;
  trace_ids_.clear();
  const RequestState* last = nullptr;
  for (const PlannedSlice& slice : plan.slices) {
    if (slice.is_decode != is_decode || slice.entry->rstate == last) continue;
    last = slice.entry->rstate;
    trace_ids_.push_back(last->request->id);
  }
  if (!trace_ids_.empty()) parts_.trace->AddEvent(trace_ids_, event);
}

}  // namespace mlc_native
