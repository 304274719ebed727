#include "models/batch_check.h"

#include <algorithm>

#include "support/check.h"

namespace mlc_native {
namespace {

void CheckPlaces(std::span<const int32_t> places, int64_t num_rows, const StateMemory& memory) {
  MLC_CHECK(std::ssize(places) == num_rows) << places.size() << " places of " << num_rows;
  for (const int32_t place : places) {
    MLC_CHECK(place >= 0 && place < memory.num_rows())
        << "place " << place << " of " << memory.num_rows();
  }
}

void CheckPlace(int32_t place, const TokenMemory* tokens) {
  MLC_CHECK(tokens != nullptr && place >= 0 && place < tokens->num_places())
      << "place " << place << " of " << (tokens != nullptr ? tokens->num_places() : 0);
}

void CheckBlock(const TokenBlock& block, const TokenMemory* tokens) {
  if (!block) return;
  MLC_CHECK(block.num_guesses >= 0) << block.num_guesses;
  CheckPlace(block.place, tokens);
  CheckPlace(block.place + TokenBlock::NumPlaces(block.num_guesses) - 1, tokens);
}

void CheckTokens(const ForwardBatch& batch) {
  for (const int32_t id : batch.token_ids) {
    if (IsTokenAt(id)) CheckPlace(PlaceOf(id), batch.tokens);
  }
  MLC_CHECK(batch.logits_behind.empty() || batch.logits_behind.size() == batch.logits_rows.size())
      << batch.logits_behind.size() << " of " << batch.logits_rows.size();
  for (const int32_t place : batch.logits_behind) {
    if (place != TokenBlock::kNone) CheckPlace(place, batch.tokens);
  }
}

void CheckInputRows(const ForwardBatch& batch, const BatchLimits& limits) {
  int32_t end = 0;
  for (const InputRows& rows : batch.input_rows) {
    MLC_CHECK(limits.draft_input_size == 0) << "rows for a draft head";
    MLC_CHECK(rows.first_row >= end && rows.num_rows > 0 &&
              rows.num_rows <= std::ssize(batch.token_ids) - rows.first_row)
        << rows.num_rows << " rows from " << rows.first_row << " on";
    end = rows.first_row + rows.num_rows;
    for (int32_t row = rows.first_row; row < end; ++row) {
      MLC_CHECK(batch.token_ids[static_cast<size_t>(row)] == 0) << "row " << row << " has a token";
    }
  }
}

void CheckHiddenStates(const HiddenStates& hidden, int64_t num_rows, const BatchLimits& limits) {
  if (hidden.rows.empty()) return;
  MLC_CHECK(limits.num_streams > 0) << "the model gives no hidden states";
  MLC_CHECK(std::ranges::is_sorted(hidden.rows, std::ranges::less_equal()) &&
            hidden.rows.front() >= 0 && hidden.rows.back() < num_rows)
      << "rows of hidden states are not ascending rows of " << num_rows;
  for (int32_t stream : hidden.streams) {
    MLC_CHECK(stream >= 0 && stream < limits.num_streams)
        << "stream " << stream << " of " << limits.num_streams;
  }
  MLC_CHECK(hidden.memory != nullptr &&
            hidden.memory->width() == std::ssize(hidden.streams) * limits.hidden_size)
      << "rows of the memory are not " << hidden.streams.size() << " hidden states";
  CheckPlaces(hidden.places, std::ssize(hidden.rows), *hidden.memory);
}

void CheckDraftInput(const DraftInput& draft, int64_t num_rows, const BatchLimits& limits) {
  const bool of_target = draft.target != nullptr;
  const bool is_head = limits.draft_input_size > 0;
  MLC_CHECK(is_head || !of_target) << "hidden states for what is no draft head";
  MLC_CHECK(std::ssize(draft.own_rows) == (is_head && !of_target ? num_rows : 0))
      << draft.own_rows.size() << " hidden states of the head for " << num_rows << " rows";
  for (const int32_t row : draft.own_rows) {
    MLC_CHECK(row >= 0 && row < limits.max_num_logits) << row << " of " << limits.max_num_logits;
  }
  if (!of_target) return;
  MLC_CHECK(draft.target->width() == limits.draft_input_size)
      << draft.target->width() << " floats for a draft head that reads " << limits.draft_input_size;
  CheckPlaces(draft.places, num_rows, *draft.target);
}

}  // namespace

void CheckBatch(const ForwardBatch& batch, const BatchLimits& limits) {
  const auto num_rows = static_cast<int64_t>(batch.token_ids.size());
  MLC_CHECK(num_rows > 0 && num_rows <= limits.max_num_rows)
      << num_rows << " of " << limits.max_num_rows;
  MLC_CHECK(static_cast<int64_t>(batch.logits_rows.size()) <= limits.max_num_logits)
      << batch.logits_rows.size() << " of " << limits.max_num_logits;
  int64_t row = 0;
  for (const SequenceSlice& s : batch.sequences) {
    const int64_t end = s.position + s.behind.num_guesses + s.num_tokens;
    MLC_CHECK(s.first_row == row && s.num_tokens > 0) << "row " << row;
    MLC_CHECK(s.position >= 0 && end <= limits.num_positions)
        << end << " of " << limits.num_positions;
    MLC_CHECK(static_cast<int64_t>(s.block_table.size()) * kKvPageSize >= end)
        << s.block_table.size() << " pages for " << end << " tokens";
    CheckBlock(s.behind, batch.tokens);
    CheckBlock(s.block, batch.tokens);
    MLC_CHECK(s.block.num_guesses < s.num_tokens) << s.block.num_guesses << " guesses";
    row += s.num_tokens;
  }
  MLC_CHECK(row == num_rows) << row << " rows in sequences, " << num_rows << " tokens";
  for (int32_t logits_row : batch.logits_rows) {
    MLC_CHECK(logits_row >= 0 && logits_row < num_rows) << "logits row " << logits_row;
  }
  CheckTokens(batch);
  CheckInputRows(batch, limits);
  CheckHiddenStates(batch.hidden, num_rows, limits);
  CheckDraftInput(batch.draft, num_rows, limits);
}

}  // namespace mlc_native
