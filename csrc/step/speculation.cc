#include "step/speculation.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "engine_state.h"
#include "kv/paged_kv_cache.h"
#include "mlc_native/model.h"
#include "observe/event_trace.h"
#include "request/scheduler.h"

namespace mlc_native {
namespace {

bool IsAmong(int32_t value, const std::vector<int32_t>& values) {
  return std::ranges::find(values, value) != values.end();
}

}  // namespace

bool Speculation::IsWantedFor(const Request& request) const {
  if (context_.model.metadata().rows_depend_on_step) return false;
  const GenerationConfig& generation = request.generation_cfg;
  return SequenceDrafts::Wanted({.engine = config_, .request = generation}) ||
         ((make_extra_ || context_.draft_model != nullptr) && generation.speculative);
}

bool Speculation::is_wanted() const { return context_.state.num_drafting_requests > 0; }

void Speculation::AddDrafts(StepPlan* plan) {
  if (!is_wanted()) return;
  Leftover left = LeftBy(*plan);
  if (left.rows <= 0) return;
  Propose(*plan, left);
  for (PlannedSlice& slice : plan->slices) {
    if (left.rows <= 0) return;
    if (!TakesDrafts(slice)) continue;
    const int64_t num_drafts = NumTaken(*slice.entry, left);
    if (num_drafts == 0) continue;
    slice.draft_tokens = slice.entry->drafts->proposal().data();
    slice.num_drawn += num_drafts;
    slice.num_tokens += num_drafts;
    plan->num_rows += num_drafts;
    left.rows -= num_drafts;
    left.pages -= NumExtraPages(*slice.entry, num_drafts);
    if (context_.trace != nullptr) {
      context_.trace->AddEvent(slice.entry->rstate->request->id, "draft");
    }
  }
}

bool Speculation::TakesDrafts(const PlannedSlice& slice) {
  const RequestStateEntry& entry = *slice.entry;
  return slice.is_decode && slice.completes_input && slice.num_tokens == 1 &&
         entry.pending_rows.empty() && entry.rstate->may_draft;
}

// ---- What is left over

Speculation::Leftover Speculation::LeftBy(const StepPlan& plan) const {
  int64_t num_scored = 0;
  int64_t num_decoding = 0;
  for (const PlannedSlice& slice : plan.slices) {
    num_scored += slice.num_scored;
    num_decoding += slice.is_decode ? 1 : 0;
  }
  // The model has room for the logits of one row per sequence and of max_num_scored others.
  return {.rows = std::min(context_.limits.prefill_chunk_size - plan.num_rows,
                           context_.limits.max_num_scored - num_scored),
          .pages = FreePages(plan),
          .least_yield = LeastYield(plan.num_rows, num_decoding)};
}

double Speculation::LeastYield(int64_t num_rows, int64_t num_decoding) const {
  const StepCosts& costs = context_.state.step_costs;
  const double verifying = costs.RowShare(num_rows) * static_cast<double>(num_decoding);
  // The sequences share the forwards of the draft model.
  const double seconds = costs.Seconds(num_rows);
  return verifying + (seconds > 0 ? draft_costs_.Seconds(num_decoding) / seconds : 0);
}

int64_t Speculation::FreePages(const StepPlan& plan) const {
  int64_t pages = context_.kv.pool().num_free();
  for (const PlannedSlice& slice : plan.slices) {
    const RequestStateEntry& entry = *slice.entry;
    const int64_t num_tokens = entry.num_tokens_to_compute();
    pages -= entry.mstate.internal_id == RequestModelState::kNoId
                 ? context_.kv.PagesNeededForNew(num_tokens, slice.num_cached)
                 : context_.kv.PagesNeeded(entry.mstate.internal_id, num_tokens);
  }
  return pages;
}

int64_t Speculation::NumExtraPages(const RequestStateEntry& entry, int64_t num_drafts) const {
  const int64_t id = entry.mstate.internal_id;
  return context_.kv.PagesNeeded(id, 1 + num_drafts) - context_.kv.PagesNeeded(id, 1);
}

// ---- The draft of a sequence

void Speculation::Propose(const StepPlan& plan, const Leftover& left) {
  wishes_.clear();
  for (const PlannedSlice& slice : plan.slices) {
    if (!TakesDrafts(slice)) continue;
    try {
      Propose(*slice.entry, left);
    } catch (const std::exception&) {  // of a drafter, or no memory
      ++context_.state.metrics.spec_decode.num_failures;
    }
  }
  if (!wishes_.empty()) AskDraftModel();
}

void Speculation::AskDraftModel() {
  DraftModel& model = *context_.draft_model;
  const TimePoint start = context_.now();
  const int64_t num_forwards = model.num_forwards();
  const int64_t num_rows = model.num_rows();
  try {
    model.Propose(wishes_);
  } catch (const std::exception&) {
    ++context_.state.metrics.spec_decode.num_failures;
    for (const DraftModel::Wish& wish : wishes_) wish.drafts->clear();
  }
  const int64_t forwards = model.num_forwards() - num_forwards;
  if (forwards == 0) return;
  const double seconds = std::chrono::duration<double>(context_.now() - start).count();
  draft_costs_.Observe((model.num_rows() - num_rows) / forwards,
                       seconds / static_cast<double>(forwards));
}

int64_t Speculation::NumTaken(const RequestStateEntry& entry, const Leftover& left) {
  if (entry.drafts == nullptr) return 0;
  std::vector<int32_t>& proposal = entry.drafts->proposal();
  if (std::ssize(proposal) > left.rows) proposal.resize(static_cast<size_t>(left.rows));
  int64_t num_drafts = 0;
  try {
    num_drafts = NumAllowed(entry, proposal);
  } catch (const std::exception&) {  // of the grammar library
    ++context_.state.metrics.spec_decode.num_failures;
  }
  while (num_drafts > 0 && NumExtraPages(entry, num_drafts) > left.pages) --num_drafts;
  proposal.resize(static_cast<size_t>(num_drafts));
  return num_drafts;
}

void Speculation::Propose(RequestStateEntry& entry, const Leftover& left) {
  if (entry.drafts == nullptr) {
    const DraftSource source{.engine = config_, .request = entry.rstate->config()};
    entry.drafts =
        std::make_unique<SequenceDrafts>(source, make_extra_ ? make_extra_(source) : nullptr);
  }
  std::vector<int32_t>& proposal = entry.drafts->proposal();
  const int64_t max_length = MaxLength(entry, left);
  if (max_length <= 0) return proposal.clear();
  entry.drafts->Propose(entry.tokens, entry.rstate->request->prompt_len(), max_length);
  if (std::ssize(proposal) > max_length) proposal.resize(static_cast<size_t>(max_length));
  if (!proposal.empty() || context_.draft_model == nullptr) return;
  wishes_.push_back({.sequence_id = entry.mstate.internal_id,
                     .space = entry.rstate->config().cache_salt,
                     .tokens = entry.tokens,
                     .max_tokens = max_length,
                     .drafts = &proposal});
}

int64_t Speculation::MaxLength(RequestStateEntry& entry, const Leftover& left) const {
  const int64_t of_engine = config_.spec_draft_length;
  int64_t length = entry.rstate->config().spec_draft_length.value_or(of_engine);
  int64_t max_length = std::min({left.rows, entry.RoomBeforeDraw(context_.max_sequence_length),
                                 of_engine > 0 ? of_engine : kMaxDraftLength});
  if (length > 0) return std::min(length, max_length);
  return entry.drafts->acceptance().ChooseLength(left.least_yield, max_length);
}

// Draft tokens up to the first that cannot come or that has nothing behind it.
int64_t Speculation::NumAllowed(const RequestStateEntry& entry,
                                const std::vector<int32_t>& drafts) const {
  GrammarMatcher* const matcher = entry.grammar_matcher.get();
  int64_t num_allowed = 0;
  const auto allows = [&](int32_t token_id) {
    return MayBeDrafted(entry, token_id) && (matcher == nullptr || matcher->AcceptToken(token_id));
  };
  try {
    while (num_allowed < std::ssize(drafts) && allows(drafts[num_allowed])) ++num_allowed;
  } catch (...) {
    matcher->Rollback(num_allowed);
    throw;
  }
  if (matcher != nullptr && num_allowed > 0) matcher->Rollback(num_allowed);
  return num_allowed;
}

bool Speculation::MayBeDrafted(const RequestStateEntry& entry, int32_t token_id) const {
  const GenerationConfig& config = entry.rstate->config();
  // A grammar ends with these tokens even if the answer does not.
  const bool eos_ends = !config.debug_config.ignore_eos || entry.grammar_matcher != nullptr;
  return token_id >= 0 && token_id < context_.model.metadata().vocab_size &&
         !IsAmong(token_id, config.stop_token_ids) &&
         !(eos_ends && IsAmong(token_id, context_.eos_token_ids));
}

}  // namespace mlc_native
