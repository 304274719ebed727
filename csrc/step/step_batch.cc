#include "step/step_batch.h"

#include <algorithm>

#include "kv/paged_kv_cache.h"
#include "request/request_state.h"
#include "request/scheduler.h"
#include "sampling/logit_processor.h"
#include "support/check.h"

namespace mlc_native {
namespace {

// Of the tokens of the prompt from `begin` to `end`, if they are not those of a text.
std::span<const RowPosition> RopePositions(const RequestStateEntry& entry, int64_t begin,
                                           int64_t end) {
  const std::span<const RowPosition> all = entry.rstate->request->rope_positions;
  if (begin >= std::ssize(all)) return {};
  return all.subspan(static_cast<size_t>(begin),
                     static_cast<size_t>(std::min(end, std::ssize(all)) - begin));
}

int64_t SecondText(const RequestStateEntry& entry) {
  const Request& request = *entry.rstate->request;
  return request.embedding ? request.embedding->second_text : 0;
}

}  // namespace

void StepBatch::Clear() {
  token_ids_.clear();
  sequences_.clear();
  input_rows_.clear();
  logits_rows_.clear();
  token_rows_.clear();
  rows_.clear();
  pooled_.clear();
  if (!draft_counts_.empty()) draft_counts_.clear();  // otherwise the deque is rebuilt each step
  must_collect_ = false;
  is_in_chain_ = false;
  max_drafts_ = 0;
}

void StepBatch::Add(const PlannedSlice& slice, const PagedKvCache& kv, TokenBlock block) {
  const RequestStateEntry& entry = *slice.entry;
  // Behind guesses, positions are those without any of them.
  const bool is_behind = !entry.pending_rows.empty() && entry.mstate.block.num_guesses > 0;
  const TokenBlock behind = is_behind ? entry.mstate.block : TokenBlock();
  const int64_t position = entry.mstate.kv_len - behind.num_guesses;
  const int64_t end = position + slice.num_tokens;
  const int64_t page_size = kv.page_size();
  const int64_t num_pages = (end + behind.num_guesses + page_size - 1) / page_size;
  sequences_.push_back({.first_row = static_cast<int32_t>(token_ids_.size()),
                        .num_tokens = static_cast<int32_t>(slice.num_tokens),
                        .position = position,
                        .block_table = kv.block_table(entry.mstate.internal_id).first(num_pages),
                        .rows_alone = slice.num_drawn > 1,
                        .of_prompt = !slice.is_decode && !is_behind,
                        .behind = behind,
                        .block = block,
                        .recurrent_slot = kv.state_slot(entry.mstate.internal_id),
                        .recurrent_writes = kv.state_writes(entry.mstate.internal_id),
                        .adapter = entry.rstate->request->adapter_weights(),
                        .rope_positions = RopePositions(entry, position, end),
                        .rope_shift = entry.rstate->request->rope_shift,
                        .second_text = SecondText(entry)});
  if (is_behind) {
    MLC_CHECK(slice.num_tokens == slice.num_drawn) << slice.num_tokens << " tokens behind guesses";
    token_ids_.push_back(TokenAt(behind.next()));
    AddDrafts(slice);
  } else {
    AddInputs(slice);
  }
  if (entry.rstate->request->embedding) return AddPooledRows(slice);
  if (slice.num_scored > 0) AddScoredRows(slice, end);
  if (slice.completes_input) AddDrawnRows(slice, end, behind, bool{block});
}

// The tokens of the slice: known ones, the pending one, draft tokens.
void StepBatch::AddInputs(const PlannedSlice& slice) {
  const RequestStateEntry& entry = *slice.entry;
  const int64_t position = entry.mstate.kv_len;
  const int64_t end = position + slice.num_tokens - (slice.num_drawn - 1);
  const int64_t known = std::min<int64_t>(end, std::ssize(entry.tokens));
  token_ids_.insert(token_ids_.end(), entry.tokens.begin() + position,
                    entry.tokens.begin() + known);
  if (!entry.rstate->request->prompt_rows.empty()) AddInputRows(entry, known);
  if (known < end) token_ids_.push_back(PendingToken(entry.pending_rows.back()));
  AddDrafts(slice);
}

// Those among the tokens from kv_len to `end`, which have been added.
void StepBatch::AddInputRows(const RequestStateEntry& entry, int64_t end) {
  const int64_t position = entry.mstate.kv_len;
  const int64_t first_row = std::ssize(token_ids_) - (end - position);
  for (const PromptRows& rows : entry.rstate->request->prompt_rows) {
    const int64_t from = std::max(rows.begin, position);
    const int64_t num_rows = std::min(rows.end(), end) - from;
    if (num_rows <= 0) continue;
    const int64_t width = (std::ssize(*rows.values) - rows.first_value) / rows.num_rows;
    const int64_t row = first_row + from - position;
    input_rows_.push_back(
        {.first_row = static_cast<int32_t>(row),
         .num_rows = static_cast<int32_t>(num_rows),
         .values = rows.values->data() + rows.first_value + (from - rows.begin) * width});
    std::fill_n(token_ids_.begin() + row, num_rows, 0);
  }
}

void StepBatch::AddDrafts(const PlannedSlice& slice) {
  const std::span<const int32_t> drafts = slice.drafts();
  if (drafts.empty()) return;
  const RequestStateEntry& entry = *slice.entry;
  const bool is_on_device = std::ranges::any_of(drafts, IsTokenAt);
  MLC_CHECK(slice.completes_input && (is_on_device || entry.pending_rows.empty()))
      << drafts.size() << " draft tokens for " << entry.rstate->request->id;
  is_in_chain_ |= is_on_device;
  token_ids_.insert(token_ids_.end(), drafts.begin(), drafts.end());
}

// Of the last token or the first one, or of all that are not pooled yet. A prompt whose first token
// is pooled is a slice.
void StepBatch::AddPooledRows(const PlannedSlice& slice) {
  const Request& request = *slice.entry->rstate->request;
  const bool is_mean = request.embeds(Pooling::kMean);
  const auto num_rows =
      static_cast<int32_t>(is_mean ? slice.num_pooled : int64_t{slice.completes_input});
  if (num_rows == 0) return;
  const int64_t from_end = request.embeds(Pooling::kCls) ? slice.num_tokens : num_rows;
  pooled_.push_back({.entry = slice.entry,
                     .first_row = static_cast<int32_t>(std::ssize(token_ids_) - from_end),
                     .num_rows = num_rows,
                     .sequence_idx = static_cast<int>(std::ssize(sequences_)) - 1,
                     .is_complete = slice.completes_input});
}

void StepBatch::AddScoredRows(const PlannedSlice& slice, int64_t end) {
  RequestStateEntry& entry = *slice.entry;
  const int64_t num_behind = slice.completes_input ? slice.num_drawn : 0;
  for (int64_t i = slice.num_scored; i > 0; --i) {
    const int64_t num_rows_behind = num_behind + i - 1;
    rows_.push_back({.entry = &entry, .is_scored = true});
    logits_rows_.push_back(static_cast<int32_t>(std::ssize(token_ids_) - 1 - num_rows_behind));
    TokenRow& token_row = token_rows_.emplace_back();
    token_row.config = &entry.rstate->config();
    token_row.scored_token = entry.tokens[end - num_rows_behind];
  }
  entry.scores.reserve(static_cast<size_t>(entry.num_to_score()) + 1);  // and the first token
}

void StepBatch::AddDrawnRows(const PlannedSlice& slice, int64_t end, const TokenBlock& behind,
                             bool has_block) {
  RequestStateEntry& entry = *slice.entry;
  if (entry.is_root_of_branches()) {
    must_collect_ = true;
    for (int child : entry.child_indices) AddDrawnRow(entry.rstate->entries[child], end, {}, 0);
    return;
  }
  const std::span<const int32_t> drafts = slice.drafts();
  max_drafts_ = std::max(max_drafts_, drafts.size());
  must_collect_ |= entry.mask_needs_tokens() || (!drafts.empty() && !has_block);
  for (size_t i = 0; i <= drafts.size(); ++i) AddDrawnRow(entry, end, drafts, i, behind);
}

// Draws a token behind the first num_before of the draft tokens, with which the batch ends now.
// With all of them before it, the token is drawn from the last row and has the position `end`.
void StepBatch::AddDrawnRow(RequestStateEntry& leaf, int64_t end, std::span<const int32_t> drafts,
                            size_t num_before, const TokenBlock& behind) {
  const auto num_behind = static_cast<int64_t>(drafts.size() - num_before);
  rows_.push_back({.entry = &leaf,
                   .num_drafts = num_before,
                   .draft_token = num_behind > 0 ? drafts[num_before] : kNoToken});
  logits_rows_.push_back(static_cast<int32_t>(std::ssize(token_ids_) - 1 - num_behind));
  TokenRow& token_row = token_rows_.emplace_back();
  token_row.config = &leaf.rstate->config();
  token_row.counts =
      num_before == 0 ? leaf.generated_counts.counts() : CountsWith(leaf, drafts.first(num_before));
  if (behind) {
    token_row.behind = behind.count();
  } else if (!leaf.pending_rows.empty()) {
    token_row.pending_row = leaf.pending_rows.back();
  }
  token_row.sequence = static_cast<uint64_t>(leaf.sequence_idx);
  token_row.position = static_cast<uint64_t>(end - num_behind);
  // Room for the commit, which may not fail.
  leaf.pending_rows.reserve(leaf.pending_rows.size() + drafts.size() + 1);
}

TokenCountsView StepBatch::CountsWith(const RequestStateEntry& leaf,
                                      std::span<const int32_t> drafts) {
  if (!HasPenalties(leaf.rstate->config())) {
    return leaf.generated_counts.counts();
  }
  TokenCounts& counts = draft_counts_.emplace_back(leaf.generated_counts);
  for (int32_t token_id : drafts) counts.Add(token_id);
  return counts.counts();
}

}  // namespace mlc_native
