#include "request/request_state.h"

#include <algorithm>
#include <utility>

#include "sampling/logit_processor.h"
#include "sampling/token_limits.h"
#include "support/check.h"

namespace mlc_native {

void RequestStateEntry::CommitToken(SampleResult&& result) {
  const int32_t token_id = result.token.token_id;
  if (grammar_matcher != nullptr && IsOfGrammar(token_id)) {
    MLC_CHECK(grammar_matcher->AcceptToken(token_id)) << "the grammar forbids token " << token_id;
  }
  AppendToken(token_id);
  Deliver(std::move(result));
}

void RequestStateEntry::Deliver(SampleResult&& result) {
  undelivered.push_back(std::move(result));
  tries_jump_forward = true;
}

bool RequestStateEntry::IsOfGrammar(int32_t token_id) const {
  return std::ranges::find(rstate->config().stop_token_ids, token_id) ==
         rstate->config().stop_token_ids.end();
}

void RequestStateEntry::AppendToken(int32_t token_id) {
  tokens.push_back(token_id);
  if (HasPenalties(rstate->config())) generated_counts.Add(token_id);
}

void RequestStateEntry::TakeBackTokens(int64_t num_tokens) {
  MLC_CHECK(num_tokens <= num_generated()) << num_tokens << " of " << num_generated();
  for (; num_tokens > 0; --num_tokens) {
    if (HasPenalties(rstate->config())) generated_counts.Remove(tokens.back());
    tokens.pop_back();
  }
}

int64_t RequestStateEntry::num_to_score() const {
  if (rstate->request->embeds(Pooling::kMean)) return rstate->request->prompt_len();
  const bool is_first = this == rstate->entries.data();  // the others have the same prompt
  return is_first && rstate->config().prompt_logprobs ? rstate->request->prompt_len() - 1 : 0;
}

int64_t RequestStateEntry::max_cached() const {
  return num_scored < num_to_score() ? num_scored : num_tokens_to_compute() - 1;
}

bool RequestStateEntry::EndsAt(int64_t num_tokens, int64_t max_sequence_length) const {
  const int64_t max_tokens = rstate->config().max_tokens;
  return num_tokens >= max_sequence_length ||
         (max_tokens >= 0 && num_tokens - rstate->request->prompt_len() >= max_tokens);
}

int64_t RequestStateEntry::RoomBeforeDraw(int64_t max_sequence_length) const {
  const int64_t max_tokens = rstate->config().max_tokens;
  const int64_t of_sequence = max_sequence_length - std::ssize(tokens);
  const int64_t of_answer =
      max_tokens < 0 ? std::numeric_limits<int64_t>::max() : max_tokens - num_generated();
  return std::min(of_sequence, of_answer) - 1;
}

void RequestStateEntry::TakePrompt() {
  if (!lacks_prompt) return;
  tokens = rstate->request->prompt_token_ids;
  lacks_prompt = false;
}

void RequestStateEntry::CountPromptTokens(int64_t num_cached) {
  const int64_t prompt_len = rstate->request->prompt_len();
  const auto count = [&](int64_t num_tokens, int64_t* counter) {
    const int64_t more = std::min(num_tokens, prompt_len) - num_prompt_counted;
    if (more <= 0) return;
    *counter += more;
    num_prompt_counted += more;
  };
  count(num_cached, &rstate->metrics.cached_tokens);
  count(mstate.num_collected(), &rstate->metrics.prefill_tokens);
}

RequestState::RequestState(RequestPtr request_in,
                           const std::shared_ptr<const StopStrSet>& stop_strs,
                           bool strip_leading_space, TimePoint now, int64_t max_children)
    : request(std::move(request_in)) {
  const int n = config().n;
  entries.resize(n == 1 ? 1 : n + 1);
  entries[0].tokens = request->prompt_token_ids;
  const bool is_limited = LimitsTokens(config(), 0);  // if not there, then nowhere
  const bool limits_need_tokens = LimitsDependOnTokens(config());
  for (RequestStateEntry& entry : entries) {
    entry.rstate = this;
    entry.is_limited = is_limited;
    entry.limits_need_tokens = limits_need_tokens;
  }
  if (n > 1) {
    for (int i = 1; i <= n; ++i) {
      if (i <= max_children) {
        entries[0].child_indices.push_back(i);
        entries[i].parent_idx = 0;
      } else {
        entries[i].lacks_prompt = true;
        entries[i].num_prompt_counted = request->prompt_len();  // by the root
      }
    }
  }
  int sequence_idx = 0;
  for (RequestStateEntry& leaf : leaves()) {
    leaf.sequence_idx = sequence_idx++;
    if (stop_strs != nullptr) {
      leaf.stop_handler.emplace(stop_strs, config().include_stop_str_in_output);
    }
    leaf.text_streamer = TextStreamer(strip_leading_space);
    if (request->grammar != nullptr) {
      leaf.grammar_matcher = request->grammar->NewMatcher(kMaxGrammarRollback + kMaxDraftLength);
    }
  }
  metrics.prompt_tokens = request->prompt_len();
  if (!config().prediction.empty()) metrics.prediction_len = n * std::ssize(config().prediction);
  metrics.add_time_point = now;
}

void RequestState::SetDeadlines(const EngineConfig& engine_config) {
  const auto after = [this](const std::optional<double>& asked,
                            const std::optional<double>& preset) {
    const std::optional<double> seconds = asked ? asked : preset;
    if (!seconds) return kNoDeadline;
    return metrics.add_time_point +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(*seconds));
  };
  queue_deadline = after(config().queue_timeout_s, engine_config.queue_timeout_s);
  deadline = after(config().timeout_s, engine_config.timeout_s);
}

std::span<RequestStateEntry> RequestState::leaves() {
  const std::span<RequestStateEntry> all(entries);
  return all.size() == 1 ? all : all.subspan(1);
}

bool RequestState::all_leaves_finished() {
  const auto sequences = leaves();
  return std::all_of(sequences.begin(), sequences.end(),
                     [](const RequestStateEntry& leaf) { return leaf.finished(); });
}

bool RequestState::any_leaf_alive() {
  const auto sequences = leaves();
  return std::any_of(sequences.begin(), sequences.end(), [](const RequestStateEntry& leaf) {
    return leaf.status == RequestStateStatus::kAlive;
  });
}

RequestStateEntry* RequestState::NextToPrefill() {
  for (RequestStateEntry& entry : entries) {
    if (entry.waits_for_prefill()) return &entry;
  }
  return nullptr;
}

}  // namespace mlc_native
