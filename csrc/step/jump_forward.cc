#include "step/jump_forward.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "engine_state.h"
#include "kv/paged_kv_cache.h"
#include "mlc_native/model.h"
#include "observe/event_trace.h"
#include "step/sequence_life.h"
#include "support/check.h"

namespace mlc_native {

void JumpForward::Run() {
  if (context_.state.num_jump_forward_requests == 0) return;
  const TimePoint start = context_.now();
  for (RequestStateEntry* entry : context_.state.GetRunningRequestStateEntries()) {
    if (!std::exchange(entry->tries_jump_forward, false)) continue;
    if (entry->finished() || !entry->rstate->request->jumps()) continue;
    try {
      JumpEntry(*entry);
    } catch (const std::exception& error) {  // of the grammar library, or no memory
      EndRequest(context_, *entry->rstate, FinishReason::kError, error.what());
    }
  }
  context_.state.metrics.engine_jump_forward_time_sum +=
      std::chrono::duration<double>(context_.now() - start).count();
}

void JumpForward::JumpEntry(RequestStateEntry& entry) {
  MLC_CHECK(entry.length() == entry.mstate.kv_len + 1) << entry.rstate->request->id;
  if (RoomFor(entry) <= 0) return;
  const std::string text = entry.grammar_matcher->FindJumpForwardString();
  if (text.empty()) return;
  std::optional<Jump> jump = PlanJump(entry, text);
  if (jump && Match(entry, &*jump)) Commit(entry, *jump);
}

// ---- What the tokens will be ----

int64_t JumpForward::RoomFor(const RequestStateEntry& entry) const {
  return entry.RoomBeforeDraw(context_.max_sequence_length);
}

std::span<const int32_t> JumpForward::Replaceable(const RequestStateEntry& entry) const {
  const bool all_released = entry.undelivered.empty() && entry.num_prefix_bytes_held == 0;
  if (entry.rstate->config().logprobs || !all_released) return {};
  const int64_t count = std::min(entry.num_generated(), kMaxGrammarRollback);
  return std::span(entry.tokens).last(static_cast<size_t>(count));
}

std::optional<JumpForward::Jump> JumpForward::PlanJump(const RequestStateEntry& entry,
                                                       std::string_view text) const {
  const Retokenizer& retokenizer = *entry.rstate->request->retokenizer;
  for (std::span<const int32_t> last : {Replaceable(entry), std::span<const int32_t>()}) {
    std::optional<Retokenizer::Extension> extension = retokenizer.Extend(last, text);
    if (!extension) return std::nullopt;
    Jump jump;
    jump.num_taken_back = std::ssize(last) - static_cast<int64_t>(extension->num_kept);
    jump.num_old_bytes = NumBytes(entry, last.subspan(extension->num_kept));
    jump.added = std::move(extension->added);
    const auto max_added = static_cast<size_t>(jump.num_taken_back + RoomFor(entry));
    if (jump.added.size() > max_added) jump.added.resize(max_added);
    if (IsUsable(entry, jump)) return jump;
  }
  return std::nullopt;
}

bool JumpForward::IsUsable(const RequestStateEntry& entry, const Jump& jump) const {
  const std::vector<int32_t>& stop_token_ids = entry.rstate->config().stop_token_ids;
  size_t num_bytes = 0;
  int64_t num_replacing = 0;
  for (int32_t token_id : jump.added) {
    if (num_bytes >= jump.num_old_bytes) break;
    // Whoever has been given the text cannot be told that it ended in the middle of it.
    if (std::ranges::find(stop_token_ids, token_id) != stop_token_ids.end()) return false;
    num_bytes += NumBytes(entry, std::span(&token_id, 1));
    ++num_replacing;
  }
  return num_replacing <= kMaxGrammarRollback && NumBytes(entry, jump.added) > jump.num_old_bytes;
}

size_t JumpForward::NumBytes(const RequestStateEntry& entry,
                             std::span<const int32_t> tokens) const {
  size_t num_bytes = 0;
  for (int32_t token_id : tokens) {
    num_bytes += entry.rstate->request->retokenizer->TextOf(token_id).size();
  }
  return num_bytes;
}

// ---- The grammar ----

bool JumpForward::Match(const RequestStateEntry& entry, Jump* jump) {
  GrammarMatcher& matcher = *entry.grammar_matcher;
  matcher.Rollback(jump->num_taken_back);
  const size_t num_planned = jump->added.size();
  size_t num_accepted = 0;
  while (num_accepted < num_planned) {
    const int32_t token_id = jump->added[num_accepted];
    if (num_accepted + 1 == num_planned && IsLeftToTheModel(entry, token_id)) break;
    if (!matcher.AcceptToken(token_id)) break;
    ++num_accepted;
  }
  jump->added.resize(num_accepted);
  if (NumBytes(entry, jump->added) > jump->num_old_bytes) return true;
  matcher.Rollback(static_cast<int64_t>(num_accepted));
  for (int32_t token_id : std::span(entry.tokens).last(jump->num_taken_back)) {
    MLC_CHECK(matcher.AcceptToken(token_id)) << "the grammar forbids what it has accepted";
  }
  return false;
}

bool JumpForward::IsLeftToTheModel(const RequestStateEntry& entry, int32_t token_id) {
  const Retokenizer& retokenizer = *entry.rstate->request->retokenizer;
  if (!retokenizer.MayBeLonger(token_id, {})) return false;
  mask_.resize(static_cast<size_t>((context_.model.metadata().vocab_size + 31) / 32));
  const bool constrained = entry.grammar_matcher->FillMask(mask_);
  return !constrained || retokenizer.MayBeLonger(token_id, mask_);
}

// ---- Commit ----

void JumpForward::Commit(RequestStateEntry& entry, const Jump& jump) {
  RequestState& rstate = *entry.rstate;
  GiveBackDraftRows(entry);
  const int64_t num_kept = std::ssize(entry.tokens) - jump.num_taken_back;
  const int64_t num_popped = entry.mstate.kv_len - num_kept;
  if (num_popped > 0) {
    context_.kv.PopN(entry.mstate.internal_id, num_popped);
    entry.mstate.kv_len -= num_popped;
  }
  entry.TakeBackTokens(jump.num_taken_back);
  rstate.metrics.completion_tokens -= jump.num_taken_back;
  Append(entry, jump);
  if (context_.trace != nullptr) context_.trace->AddEvent(rstate.request->id, "jump forward");
  context_.state.MarkDirty(rstate);
  if (masks_.MustEnd(entry)) FinishEntry(context_, entry, FinishReason::kStop);
}

// The rows behind draft tokens that are not collected yet: other tokens stand in their place now.
void JumpForward::GiveBackDraftRows(RequestStateEntry& entry) const {
  const int64_t num_rows = std::exchange(entry.mstate.kv_in_flight, 0);
  if (num_rows == 0) return;
  context_.kv.PopN(entry.mstate.internal_id, num_rows);
  entry.mstate.kv_len -= num_rows;
  entry.pending_rows.clear();
  entry.last_is_pending = false;
}

// Tokens behind the text that was there are delivered; of one that reaches from it into the new
// text only that part. Each is counted at once: if there is no memory for the next one, those
// before it are delivered all the same.
void JumpForward::Append(RequestStateEntry& entry, const Jump& jump) const {
  RequestMetrics& metrics = entry.rstate->metrics;
  size_t begin = 0;
  for (int32_t token_id : jump.added) {
    const std::string_view text = entry.rstate->request->retokenizer->TextOf(token_id);
    entry.AppendToken(token_id);
    if (begin >= jump.num_old_bytes) {
      entry.undelivered.emplace_back().token.token_id = token_id;
    } else if (begin + text.size() > jump.num_old_bytes) {
      entry.extra_prefix = text.substr(jump.num_old_bytes - begin);
    }
    begin += text.size();
    ++metrics.jump_forward_tokens;
    ++metrics.completion_tokens;
  }
}

}  // namespace mlc_native
