#include "step/jump_forward.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "engine_state.h"
#include "kv/paged_kv_cache.h"
#include "mlc_native/model.h"
#include "observe/event_trace.h"
#include "step/grammar_timer.h"
#include "step/sequence_life.h"
#include "support/check.h"

namespace mlc_native {

JumpForward::JumpForward(StepContext& context) : context_(context), ends_(EndTokensOf(context)) {}

void JumpForward::Run() {
  if (context_.state.num_jump_forward_requests == 0) return;
  const TimePoint start = context_.now();
  for (RequestStateEntry* entry : context_.state.GetRunningRequestStateEntries()) {
    if (entry->slow != nullptr) continue;  // SlowGrammars sees to it
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
  const JumpInput input = InputOf(entry);
  if (input.room <= 0) return;
  const GrammarTimer timer(context_, entry);
  const std::optional<Jump> jump = FindJump(input, ends_, *entry.grammar_matcher, &mask_);
  if (jump) Commit(entry, *jump);
}

JumpInput JumpForward::InputOf(const RequestStateEntry& entry) const {
  JumpInput input{.request = entry.rstate->request,
                  .replaceable = {},
                  .room = entry.RoomBeforeDraw(context_.max_sequence_length)};
  const bool all_released = entry.undelivered.empty() && entry.num_prefix_bytes_held == 0;
  if (input.room <= 0 || entry.rstate->config().logprobs || !all_released) return input;
  // A sequence with states goes back to no token that it has computed.
  const int64_t most = context_.kv.has_states() ? 1 : kMaxGrammarRollback;
  const int64_t count = std::min(entry.num_generated(), most);
  input.replaceable.assign(entry.tokens.end() - count, entry.tokens.end());
  return input;
}

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
  if (jump.ends) FinishEntry(context_, entry, FinishReason::kStop);
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
