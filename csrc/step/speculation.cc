#include "step/speculation.h"

#include <algorithm>
#include <bit>
#include <exception>
#include <limits>
#include <utility>

#include "engine_state.h"
#include "kv/paged_kv_cache.h"
#include "mlc_native/model.h"
#include "mlc_native/tokenizer.h"
#include "observe/event_trace.h"
#include "request/scheduler.h"
#include "step/forced_text.h"
#include "step/grammar_timer.h"
#include "step/token_blocks.h"

namespace mlc_native {
namespace {

bool IsAmong(int32_t value, const std::vector<int32_t>& values) {
  return std::ranges::find(values, value) != values.end();
}

static_assert(std::max(kMaxDraftLength, kMaxPredictionLength) == kMaxDraftTokens);

// That run ahead after guesses have paid nowhere.
constexpr int kStepsWithout = 7;

// That follow guesses in flight after each one that was waited for.
constexpr int kStepsAhead = 31;

}  // namespace

Speculation::Speculation(StepContext& context, const EngineConfig& config,
                         DrafterFactory make_extra)
    : context_(context), config_(config), make_extra_(std::move(make_extra)) {
  if (config.speculative_mode == SpeculativeMode::kSuffix) {
    past_answers_ =
        std::make_unique<PastAnswers>(config.suffix_cache_bytes, config.prompt_lookup_min);
  }
}

void Speculation::Clear() {
  if (past_answers_ != nullptr) past_answers_->Clear();
}

bool Speculation::IsWantedFor(const Request& request) const {
  const GenerationConfig& generation = request.generation_cfg;
  return SequenceDrafts::Wanted({.engine = config_, .request = generation}) ||
         ((make_extra_ || context_.batch_drafter != nullptr) && generation.speculative);
}

bool Speculation::MustCollect() {
  guesses_ahead_ = false;
  if (context_.state.num_drafting_requests == 0) return false;
  if (!AnyThatWaits([](const RequestStateEntry&) { return true; })) return false;
  if (num_steps_without_ > 0) {
    --num_steps_without_;
    return false;
  }
  guesses_ahead_ = num_steps_ahead_ > 0 && !AnyThatWaits([](const RequestStateEntry& entry) {
                     return !entry.mstate.block;
                   });
  if (guesses_ahead_) --num_steps_ahead_;
  return !guesses_ahead_;
}

template <typename Visit>
bool Speculation::AnyThatWaits(const Visit& visit) const {
  return std::ranges::any_of(
      context_.state.GetRunningRequestStateEntries(), [&](const RequestStateEntry* entry) {
        return entry->rstate->may_draft && entry->slow == nullptr && !entry->pending_rows.empty() &&
               entry->num_tokens_to_compute() > 0 && visit(*entry);
      });
}

void Speculation::AllowAhead(bool is_allowed) {
  num_steps_ahead_ = is_allowed && context_.token_blocks != nullptr ? kStepsAhead : 0;
  if (context_.token_blocks != nullptr) context_.token_blocks->set_is_wanted(is_allowed);
}

void Speculation::AddDrafts(StepPlan* plan, bool is_in_flight) {
  guesses_ahead_ = guesses_ahead_ && is_in_flight;
  if (context_.state.num_drafting_requests == 0) {
    last_step_ = {};
    return;
  }
  Leftover left = LeftBy(*plan);
  TryWithout(*plan, &left);
  const TimePoint start = context_.now();
  const int64_t num_rows = plan->num_rows;
  draft_seconds_ = 0;
  Propose(*plan, left);
  AddProposals(left, plan);
  if (guesses_ahead_) return;  // the device makes them meanwhile
  const double seconds = std::chrono::duration<double>(context_.now() - start).count();
  proposal_costs_.Observe(plan->num_rows - num_rows, seconds - draft_seconds_);
}

void Speculation::AddProposals(Leftover left, StepPlan* plan) {
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
    if (context_.kv.has_states()) left.slots -= num_drafts;
    if (context_.trace != nullptr) {
      context_.trace->AddEvent(slice.entry->rstate->request->id, "draft");
    }
  }
}

bool Speculation::TakesDrafts(const PlannedSlice& slice) const {
  const RequestStateEntry& entry = *slice.entry;
  if (!slice.is_decode || !slice.completes_input || slice.num_tokens != 1) return false;
  if (entry.slow != nullptr || !entry.rstate->may_draft) return false;
  if (guesses_ahead_) return TokenBlocks::Allows(entry);
  return entry.pending_rows.empty();
}

// ---- What is left over

Speculation::Leftover Speculation::LeftBy(const StepPlan& plan) const {
  int64_t num_scored = 0;
  int64_t num_decoding = 0;
  int64_t num_masked = 0;
  for (const PlannedSlice& slice : plan.slices) {
    num_scored += slice.num_scored;
    num_decoding += slice.is_decode ? 1 : 0;
    num_masked += slice.is_decode && slice.entry->grammar_matcher != nullptr ? 1 : 0;
  }
  const int64_t max_rows =
      std::min(context_.limits.prefill_chunk_size, context_.model.metadata().max_equal_rows);
  // The model has room for the logits of one row per sequence and of max_num_scored others.
  Leftover left{
      .rows = std::min(max_rows - plan.num_rows, context_.limits.max_num_scored - num_scored),
      .pages = FreePages(plan),
      .slots = context_.kv.has_states() ? FreeSlots(plan) : std::numeric_limits<int64_t>::max(),
      .num_decoding = num_decoding,
      .num_masked = num_masked};
  AddCosts(plan.num_rows, &left);
  return left;
}

void Speculation::AddCosts(int64_t num_rows, Leftover* left) const {
  const DecodeCosts& costs = context_.state.decode_costs;
  const double seconds = costs.Seconds(num_rows, left->num_masked);
  left->is_cost_known = seconds <= 0 || costs.is_row_known();
  if (seconds <= 0) return;
  const double of_guess = costs.SecondsPerRow() + proposal_costs_.SecondsPerRow();
  const double of_masks = costs.SecondsPerMask() * static_cast<double>(left->num_masked);
  left->cost = (of_guess * static_cast<double>(left->num_decoding) + of_masks) / seconds;
  // The sequences share the forwards of the batch drafter.
  left->model_cost = left->cost + SecondsToGuess(left->num_decoding) / seconds;
}

void Speculation::TryWithout(const StepPlan& plan, Leftover* left) {
  const LastStep last = std::exchange(last_step_, {});
  if (plan.slices.empty() || left->num_decoding < std::ssize(plan.slices)) return;
  int64_t num_tokens = 0;
  for (const PlannedSlice& slice : plan.slices) num_tokens += slice.entry->num_generated();
  const TimePoint now = context_.now();
  if (last.trial != nullptr && last.num_decoding == left->num_decoding) {
    last.trial->Observe(num_tokens - last.num_tokens,
                        std::chrono::duration<double>(now - last.start).count());
  }
  const size_t size =
      static_cast<size_t>(std::bit_width(static_cast<uint64_t>(left->num_decoding)));
  GuessTrial& trial = trials_[left->num_masked > 0][std::min(size, kNumSizes) - 1];
  last_step_ = {&trial, left->num_decoding, num_tokens, now};
  const double seconds = SecondsWithout(*left);
  const double rate_without = seconds > 0 ? static_cast<double>(left->num_decoding) / seconds : 0;
  if (trial.MayGuess(rate_without)) return;
  left->cost = left->model_cost = std::numeric_limits<double>::infinity();
}

double Speculation::SecondsWithout(const Leftover& left) const {
  return context_.state.decode_costs.Seconds(left.num_decoding, left.num_masked);
}

double Speculation::SecondsToGuess(int64_t num_rows) const {
  const double seconds = guess_costs_.Seconds(num_rows);
  return seconds > 0 ? seconds : draft_costs_.Seconds(num_rows);
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

// Slots of states that the step does not need without guesses.
int64_t Speculation::FreeSlots(const StepPlan& plan) const {
  return context_.kv.slots().num_available() - kStatesOfASlice * std::ssize(plan.slices);
}

int64_t Speculation::NumExtraPages(const RequestStateEntry& entry, int64_t num_drafts) const {
  const int64_t id = entry.mstate.internal_id;
  return context_.kv.PagesNeeded(id, 1 + num_drafts) - context_.kv.PagesNeeded(id, 1);
}

// ---- The draft of a sequence

void Speculation::Propose(const StepPlan& plan, const Leftover& left) {
  wishes_.clear();
  probe_.reset();
  expected_yield_ = 0;
  is_length_fixed_ = false;
  bool is_any_known = false;
  bool is_any_asked = false;
  for (const PlannedSlice& slice : plan.slices) {
    if (!TakesDrafts(slice)) continue;
    is_any_known = true;
    try {
      Propose(*slice.entry, left);
    } catch (const std::exception&) {  // of a drafter, or no memory
      ++context_.state.metrics.spec_decode.num_failures;
    }
    is_any_asked |= slice.entry->drafts != nullptr && !slice.entry->drafts->proposal().empty();
  }
  if (context_.batch_drafter != nullptr) {
    const bool pays = AskBatchDrafterIfItPays(left);
    if (is_any_known) Rest(pays);
    const bool is_cost_known = left.is_cost_known && SecondsToGuess(1) > 0;
    if (!pays || !guesses_ahead_) AllowAhead(pays && (is_length_fixed_ || is_cost_known));
  }
  is_any_asked |= !wishes_.empty();
  if (is_any_known) num_steps_without_ = is_any_asked ? 0 : kStepsWithout;
}

int64_t Speculation::NumTaken(RequestStateEntry& entry, const Leftover& left) {
  if (entry.drafts == nullptr) return 0;
  std::vector<int32_t>& proposal = entry.drafts->proposal();
  const int64_t most = std::max<int64_t>(std::min(left.rows, left.slots), 0);
  if (std::ssize(proposal) > most) proposal.resize(static_cast<size_t>(most));
  int64_t num_drafts = 0;
  const GrammarTimer timer(context_, entry);
  try {
    num_drafts = NumAllowed(entry, proposal);
  } catch (const std::exception&) {  // of the grammar library
    ++context_.state.metrics.spec_decode.num_failures;
  }
  while (num_drafts > 0 && NumExtraPages(entry, num_drafts) > left.pages) --num_drafts;
  proposal.resize(static_cast<size_t>(num_drafts));
  return num_drafts;
}

SequenceDrafts& Speculation::DraftsOf(RequestStateEntry& entry) {
  if (entry.drafts != nullptr) return *entry.drafts;
  DraftSource source{.engine = config_,
                     .request = entry.rstate->config(),
                     .past_answers = past_answers_.get(),
                     .predicted_text = &entry.rstate->predicted_text};
  if (const TokenTable* const table = context_.token_table.get()) {
    source.text_of = [table](int32_t token_id) { return table->text_bytes(token_id); };
  }
  std::vector<std::unique_ptr<Drafter>> extra;
  extra.push_back(MakeForcedTextDrafter(entry));
  if (make_extra_) extra.push_back(make_extra_(source));
  entry.drafts = std::make_unique<SequenceDrafts>(source, std::move(extra), &model_rate_);
  return *entry.drafts;
}

void Speculation::Propose(RequestStateEntry& entry, const Leftover& left) {
  SequenceDrafts& drafts = DraftsOf(entry);
  DraftLimits limits = LimitsOf(entry, left);
  // A step without guesses and one with one of each sequence show what guesses cost.
  if (limits.length == 0 && !left.is_cost_known) {
    const int64_t enough = context_.state.decode_costs.has_steps_without() ? 1 : 0;
    limits.max_length = std::min(limits.max_length, enough);
    limits.max_prediction = std::min(limits.max_prediction, enough);
  }
  if (limits.max_length <= 0) return drafts.proposal().clear();
  drafts.Propose(entry.tokens, entry.rstate->request->prompt_len(), limits);
  if (!drafts.proposal().empty() || context_.batch_drafter == nullptr) return;
  limits.cost = left.model_cost;
  int64_t length = drafts.ChooseModelLength(limits);
  // One guess shows what guesses cost.
  const bool is_cost_known = left.model_cost > 0 && SecondsToGuess(1) > 0;
  if (limits.length == 0 && !is_cost_known) length = std::min<int64_t>(length, 1);
  BatchDrafter::Wish wish{.sequence_id = entry.mstate.internal_id,
                          .space = entry.rstate->request->cache_space(),
                          .tokens = entry.tokens,
                          .max_tokens = 1,
                          .drafts = &drafts.proposal(),
                          .behind = entry.mstate.block};
  if (!probe_) probe_ = wish;
  if (length == 0) return;
  wish.max_tokens = length;
  if (limits.length == 0 && !ReadingPays(entry, wish, left)) return;
  wishes_.push_back(wish);
  expected_yield_ += drafts.model_acceptance().rate();
  is_length_fixed_ |= limits.length > 0;
}

DraftLimits Speculation::LimitsOf(const RequestStateEntry& entry, const Leftover& left) const {
  const int64_t of_engine = config_.spec_draft_length;
  const int64_t length = entry.rstate->config().spec_draft_length.value_or(of_engine);
  const int64_t to_the_end =
      entry.RoomBeforeDraw(context_.max_sequence_length) - std::ssize(entry.pending_rows);
  const int64_t room = std::min(left.rows, to_the_end);
  const int64_t max_length = std::min(room, of_engine > 0 ? of_engine : kMaxDraftLength);
  const bool is_free = of_engine == 0 && length == 0 && entry.grammar_matcher == nullptr;
  return {.max_length = max_length,
          .max_prediction = is_free ? std::min(room, kMaxPredictionLength) : max_length,
          .length = length,
          .cost = left.cost};
}

// Draft tokens up to the first that cannot come or that has nothing behind it.
int64_t Speculation::NumAllowed(RequestStateEntry& entry,
                                const std::vector<int32_t>& drafts) const {
  GrammarMatcher* const matcher = entry.grammar_matcher.get();
  int64_t num_allowed = 0;
  const auto allows = [&](int32_t token_id) {
    return MayBeDrafted(entry, token_id) && (matcher == nullptr || matcher->AcceptToken(token_id));
  };
  try {
    while (num_allowed < std::ssize(drafts) && allows(drafts[num_allowed])) ++num_allowed;
    if (matcher != nullptr && num_allowed > 0) matcher->Rollback(num_allowed);
  } catch (...) {
    entry.matcher_error = std::current_exception();
    throw;
  }
  return num_allowed;
}

bool Speculation::MayBeDrafted(const RequestStateEntry& entry, int32_t token_id) const {
  if (IsTokenAt(token_id)) return true;  // any, of a sequence that the rest does not apply to
  const GenerationConfig& config = entry.rstate->config();
  // A grammar ends with these tokens even if the answer does not.
  const bool eos_ends = !config.debug_config.ignore_eos || entry.grammar_matcher != nullptr;
  return token_id >= 0 && token_id < context_.model.metadata().vocab_size &&
         !IsAmong(token_id, config.stop_token_ids) &&
         !(eos_ends && IsAmong(token_id, context_.eos_token_ids));
}

}  // namespace mlc_native
