#include "models/cuda/step_inputs.h"

#include <algorithm>
#include <array>
#include <ranges>
#include <tuple>

#include "mlc_native/detail/page.h"
#include "models/row_places.h"
#include "support/check.h"

namespace mlc_native {
namespace {

using kernels::cuda::AdapterMatrices;
using kernels::cuda::DeltaSlice;
using kernels::cuda::DeltaWrite;
using kernels::cuda::GuessedRows;
using kernels::cuda::PrefillTile;

constexpr auto kPlaces = static_cast<int64_t>(std::tuple_size_v<RowPosition>);

int64_t PagesOf(int64_t tokens) { return (tokens + kKvPageSize - 1) / kKvPageSize; }

// Keys that the last row sees, if all guesses in flight are right.
int64_t LongestRow(const SequenceSlice& s) {
  return s.position + s.behind.num_guesses + s.num_tokens;
}

int64_t PagesOf(const SequenceSlice& s) { return PagesOf(LongestRow(s)); }

// A chunk of one token is a tile, so that it has the bits of a longer one.
bool HasDecodeRows(const SequenceSlice& s) {
  return s.rows_alone || (s.num_tokens == 1 && !s.of_prompt);
}

int64_t NumBlocks(const ForwardBatch& batch) {
  return std::ranges::count_if(batch.sequences,
                               [](const SequenceSlice& s) { return bool{s.block}; });
}

}  // namespace

StepInputs::StepInputs(const Limits& limits)
    : limits_(limits),
      buffer_(Bytes(limits)),
      packed_rows_(static_cast<size_t>(limits.batch.max_num_rows)) {}

// Every sequence of a batch has a row of logits at some time, which bounds the number of sequences.
size_t StepInputs::Bytes(const Limits& limits) {
  const int64_t rows = limits.batch.max_num_rows;
  const int64_t pages = limits.batch.max_num_logits * PagesOf(limits.batch.num_positions);
  // Of int32: four of every forward, places, two of what is read on the device, and three of a
  // draft head, or of where rope puts rows.
  const int64_t arrays_of_rows =
      (limits.batch.draft_input_size > 0 ? 10 : 7) + (limits.has_row_places ? kPlaces : 0);
  size_t of_states = 0;
  if (limits.has_slots) {
    of_states = UploadBuffer::ArrayBytes(rows, sizeof(DeltaSlice)) +
                UploadBuffer::ArrayBytes(rows, sizeof(DeltaWrite)) +
                UploadBuffer::ArrayBytes(rows, sizeof(int32_t));
  }
  const size_t of_adapters =
      limits.adapters != nullptr ? UploadBuffer::ArrayBytes(rows, sizeof(AdapterMatrices*)) : 0;
  return of_states + of_adapters + UploadBuffer::ArrayBytes(rows, sizeof(int64_t)) +
         static_cast<size_t>(arrays_of_rows) * UploadBuffer::ArrayBytes(rows, sizeof(int32_t)) +
         2 * UploadBuffer::ArrayBytes(limits.batch.max_num_logits, sizeof(int32_t)) +
         UploadBuffer::ArrayBytes(limits.batch.max_num_logits, sizeof(GuessedRows)) +
         UploadBuffer::ArrayBytes(rows, sizeof(PrefillTile)) +
         UploadBuffer::ArrayBytes(pages, sizeof(int32_t));
}

int64_t StepInputs::PaddedRows(int64_t rows, int64_t max_rows) {
  int64_t padded = 1;
  while (padded < rows) {
    const int64_t half_more = padded + padded / 2;
    padded = padded >= 8 && half_more >= rows ? half_more : 2 * padded;
  }
  return std::min(padded, max_rows);
}

bool StepInputs::IsDecode(const ForwardBatch& batch) const {
  const size_t rows = batch.token_ids.size();
  if (batch.logits_rows.size() != rows || !batch.logits_behind.empty()) return false;
  if (!batch.input_rows.empty()) return false;   // copies are not replayed
  if (limits_.num_text_types > 0) return false;  // nor is what is added to runs of rows
  if (!std::ranges::all_of(batch.sequences, HasDecodeRows)) return false;
  for (size_t i = 0; i < rows; ++i) {
    if (batch.logits_rows[i] != static_cast<int32_t>(i)) return false;
  }
  return true;
}

bool StepInputs::ReadsTokens(const ForwardBatch& batch) {
  return !batch.logits_behind.empty() || std::ranges::any_of(batch.token_ids, IsTokenAt) ||
         std::ranges::any_of(batch.sequences,
                             [](const SequenceSlice& s) { return bool{s.behind}; });
}

// A wrong value would not throw on the device but crash it.
void StepInputs::CheckContents(const ForwardBatch& batch, int64_t num_pending) const {
  for (int32_t id : batch.token_ids) {
    MLC_CHECK((id >= -num_pending && id < limits_.num_ids) || IsTokenAt(id))
        << "id " << id << " of " << limits_.num_ids << ", " << num_pending << " pending";
  }
  for (int32_t row : batch.draft.own_rows) MLC_CHECK(row < num_pending) << row;
  for (const SequenceSlice& s : batch.sequences) {
    // A tile's first position is not found on the device.
    MLC_CHECK(!s.behind || HasDecodeRows(s)) << s.num_tokens << " rows behind guesses";
    for (int32_t page : s.block_table.first(static_cast<size_t>(PagesOf(s)))) {
      MLC_CHECK(page >= 0 && page < limits_.num_pages) << "page " << page;
    }
    if (limits_.has_slots) CheckSlots(s);
    MLC_CHECK(limits_.has_row_places || (s.rope_positions.empty() && s.rope_shift == 0));
    AdapterOf(s, limits_.adapters);
  }
}

void StepInputs::CheckSlots(const SequenceSlice& s) const {
  const auto is_slot = [&](int32_t slot) { return slot >= 0 && slot < limits_.num_slots; };
  MLC_CHECK((s.position == 0 || is_slot(s.recurrent_slot)) && !s.behind)
      << "slot " << s.recurrent_slot << " of " << limits_.num_slots;
  int32_t last = 0;
  for (const RecurrentWrite& write : s.recurrent_writes) {
    MLC_CHECK(is_slot(write.slot) && write.num_tokens > last) << "slot " << write.slot;
    last = write.num_tokens;
  }
  MLC_CHECK(last == s.num_tokens) << "no state behind " << s.num_tokens << " tokens";
}

int64_t StepInputs::NumTiles(const ForwardBatch& batch) const {
  int64_t tiles = 0;
  for (const SequenceSlice& s : batch.sequences) {
    if (HasDecodeRows(s)) continue;
    ForEachPart(batch, s, limits_.sight, [&](const RowPart& part) {
      tiles += (part.num_rows + limits_.tile_rows - 1) / limits_.tile_rows;
    });
  }
  return tiles;
}

CudaBatch StepInputs::Upload(const ForwardBatch& batch, int64_t num_pending,
                             kernels::cuda::Stream stream) {
  CheckBatch(batch, limits_.batch);
  CheckContents(batch, num_pending);
  is_decode_ = IsDecode(batch);
  const auto used = static_cast<int64_t>(batch.token_ids.size());
  // Unused rows have logits too.
  const int64_t most = std::min(limits_.batch.max_num_rows, limits_.batch.max_num_logits);
  const int64_t rows = is_decode_ ? PaddedRows(used, most) : used;
  int64_t table_pages = 0;
  int64_t decode_rows = 0;
  int64_t num_splits = 0;
  for (const SequenceSlice& s : batch.sequences) {
    table_pages += PagesOf(s);
    if (!HasDecodeRows(s)) continue;
    decode_rows += s.num_tokens;
    num_splits += s.num_tokens * kernels::cuda::MaxDecodeSplits(LongestRow(s));
  }

  const bool is_draft = limits_.batch.draft_input_size > 0;
  CudaBatch out;
  if (is_draft && batch.draft.target != nullptr) out.target_states = batch.draft.target->data();
  const bool is_asked = !batch.hidden.rows.empty();
  const bool reads_tokens = ReadsTokens(batch);
  const int32_t* from = nullptr;
  const int32_t* counts = nullptr;
  const int32_t* logits_counts = nullptr;
  accept_args_ = {.m = NumBlocks(batch)};
  out.num_rows = rows;
  out.num_splits = num_splits;
  out.num_tiles = NumTiles(batch);
  out.num_logits = is_decode_ ? rows : static_cast<int64_t>(batch.logits_rows.size());
  out.ld_block_tables = 1;
  const int64_t of_states = limits_.has_slots ? rows : 0;
  const int64_t num_places = limits_.has_row_places ? kPlaces * rows : 0;
  const bool has_adapters = std::ranges::any_of(
      batch.sequences, [](const SequenceSlice& s) { return s.adapter != nullptr; });
  // A launch that is replayed has as many slices as it could have.
  out.num_delta_slices = is_decode_ ? rows : std::ssize(batch.sequences);
  buffer_.Begin();
  const Arrays arrays{.slots = buffer_.Add(rows, &out.slots),
                      .ids = buffer_.Add(rows, &out.token_ids),
                      .positions = buffer_.Add(rows, &out.positions),
                      .rope_positions = buffer_.Add(num_places, &out.rope_positions),
                      .lengths = buffer_.Add(rows, &out.lengths),
                      .tables = buffer_.Add(rows, &out.tables),
                      .logits_rows = buffer_.Add(out.num_logits, &out.logits_rows),
                      .joined_rows = buffer_.Add(is_draft ? 2 * rows : 0, &out.joined_rows),
                      .state_rows = buffer_.Add(is_draft ? rows : 0, &out.state_rows),
                      .places = buffer_.Add(is_asked ? rows : 0, &out.streams.places),
                      .delta_slices = buffer_.Add(of_states, &out.delta_slices),
                      .delta_writes = buffer_.Add(of_states, &out.delta_writes),
                      .slice_of_row = buffer_.Add(of_states, &out.slice_of_row),
                      .adapters = buffer_.Add(has_adapters ? rows : 0, &out.adapters),
                      // The lengths of these are not given by the number of rows.
                      .block_tables = buffer_.Add(table_pages, &out.block_tables),
                      .tiles = buffer_.Add(out.num_tiles, &out.tiles),
                      // No launch that is replayed reads these.
                      .from = buffer_.Add(reads_tokens ? rows : 0, &from),
                      .counts = buffer_.Add(reads_tokens ? rows : 0, &counts),
                      .logits_counts = buffer_.Add(std::ssize(batch.logits_behind), &logits_counts),
                      .blocks = buffer_.Add(accept_args_.m, &accept_args_.sequences)};
  if (!has_adapters) out.adapters = nullptr;
  if (!limits_.has_row_places) out.rope_positions = nullptr;
  Pack(batch, arrays);
  if (reads_tokens) PackCounts(batch, arrays);
  PackInputRows(batch);
  out.input_rows = input_rows_;
  out.text_runs = text_runs_;
  FindBlocks(batch);
  std::ranges::copy(blocks_, arrays.blocks.begin());
  accept_args_.ids = out.token_ids;
  if (accept_args_.m > 0) accept_args_.tokens = batch.tokens->data();
  if (is_draft) PackDraft(batch.draft, arrays);
  if (is_asked) {
    out.streams.streams = batch.hidden.streams;
    out.streams.of_logits_rows = std::ranges::equal(batch.hidden.rows, batch.logits_rows);
    out.streams.out = batch.hidden.memory->data();
    PackPlaces(batch.hidden, arrays);
  }
  buffer_.Upload(stream);
  if (reads_tokens) {
    kernels::cuda::ResolveRows({.tokens = batch.tokens->data(),
                                .from = from,
                                .counts = counts,
                                .ids = const_cast<int32_t*>(out.token_ids),
                                .positions = const_cast<int32_t*>(out.positions),
                                .lengths = const_cast<int32_t*>(out.lengths),
                                .rope_positions = const_cast<int32_t*>(out.rope_positions),
                                .slots = const_cast<int64_t*>(out.slots),
                                .tables = out.tables,
                                .block_tables = out.block_tables,
                                .ld_block_tables = out.ld_block_tables,
                                .m = used},
                               stream);
    kernels::cuda::AddCounts({.tokens = batch.tokens->data(),
                              .counts = logits_counts,
                              .values = const_cast<int32_t*>(out.logits_rows),
                              .m = std::ssize(batch.logits_behind)},
                             stream);
  }
  if (is_decode_) out.logits_rows = nullptr;
  out.num_decode_rows = is_decode_ ? rows : decode_rows;
  return out;
}

void StepInputs::Pack(const ForwardBatch& batch, const Arrays& arrays) {
  num_rows_ = num_tiles_ = num_table_pages_ = num_delta_slices_ = num_delta_writes_ = 0;
  text_runs_.clear();
  std::ranges::fill(arrays.delta_slices, DeltaSlice());
  std::ranges::fill(arrays.slice_of_row, -1);
  std::ranges::fill(arrays.adapters, nullptr);
  for (const bool is_decode : {true, false}) {
    for (const SequenceSlice& slice : batch.sequences) {
      if (HasDecodeRows(slice) == is_decode) PackSlice(batch, slice, arrays);
    }
  }
  for (auto row = static_cast<size_t>(num_rows_); row < arrays.ids.size(); ++row) {
    arrays.slots[row] = -1;
    arrays.ids[row] = arrays.positions[row] = arrays.lengths[row] = arrays.tables[row] = 0;
  }
  std::ranges::fill(arrays.rope_positions | std::views::drop(kPlaces * num_rows_), 0);
  for (size_t i = 0; i < batch.logits_rows.size(); ++i) {
    arrays.logits_rows[i] = packed_rows_[static_cast<size_t>(batch.logits_rows[i])];
  }
  // Tiles with many keys come first, for balance.
  std::ranges::sort(arrays.tiles, [](const PrefillTile& a, const PrefillTile& b) {
    const int32_t a_keys = a.first_position + a.num_rows;
    const int32_t b_keys = b.first_position + b.num_rows;
    return a_keys != b_keys ? a_keys > b_keys : a.row_begin < b.row_begin;
  });
}

// Those of a slice stay together.
void StepInputs::PackInputRows(const ForwardBatch& batch) {
  input_rows_.assign(batch.input_rows.begin(), batch.input_rows.end());
  for (InputRows& rows : input_rows_) {
    rows.first_row = packed_rows_[static_cast<size_t>(rows.first_row)];
  }
}

void StepInputs::PackSlice(const ForwardBatch& batch, const SequenceSlice& slice,
                           const Arrays& arrays) {
  const auto table = static_cast<int32_t>(num_table_pages_);
  const int64_t pages = PagesOf(slice);
  std::copy_n(slice.block_table.begin(), pages, arrays.block_tables.begin() + num_table_pages_);
  num_table_pages_ += pages;
  const auto first_row = static_cast<int32_t>(num_rows_);
  for (int32_t i = 0; i < slice.num_tokens; ++i) {
    const auto row = static_cast<size_t>(num_rows_++);
    const int64_t position = slice.position + i;
    const int64_t page = slice.block_table[static_cast<size_t>(position / kKvPageSize)];
    packed_rows_[static_cast<size_t>(slice.first_row + i)] = static_cast<int32_t>(row);
    arrays.ids[row] = batch.token_ids[static_cast<size_t>(slice.first_row + i)];
    arrays.positions[row] = static_cast<int32_t>(position);
    arrays.lengths[row] = static_cast<int32_t>(position) + 1;
    arrays.slots[row] = page * kKvPageSize + position % kKvPageSize;
    arrays.tables[row] = table;
  }
  if (limits_.num_text_types > 0) AddTextRuns(slice, first_row);
  if (limits_.has_row_places) PackRowPlaces(slice, first_row, arrays);
  if (limits_.has_slots) PackStates(slice, first_row, arrays);
  if (const CudaAdapter* const adapter = AdapterOf(slice, limits_.adapters)) {
    std::ranges::fill(arrays.adapters.subspan(static_cast<size_t>(first_row),
                                              static_cast<size_t>(slice.num_tokens)),
                      adapter->matrices());
  }
  if (!HasDecodeRows(slice)) PackParts(batch, slice, first_row, arrays);
}

// The rows of both texts of the slice, of which either may have none.
void StepInputs::AddTextRuns(const SequenceSlice& slice, int64_t first_row) {
  const int64_t rows = slice.num_tokens;
  const bool tells_apart = slice.second_text > 0 && limits_.num_text_types > 1;
  const int64_t num_first =
      tells_apart ? std::clamp<int64_t>(slice.second_text - slice.position, 0, rows) : rows;
  const auto add = [&](int64_t first, int64_t num_rows, int32_t type) {
    if (num_rows == 0) return;
    const bool follows = !text_runs_.empty() && text_runs_.back().type == type;
    if (follows) {
      text_runs_.back().num_rows += num_rows;
    } else {
      text_runs_.push_back({.first_row = first, .num_rows = num_rows, .type = type});
    }
  };
  add(first_row, num_first, 0);
  add(first_row + num_first, rows - num_first, 1);
}

void StepInputs::PackRowPlaces(const SequenceSlice& slice, int32_t first_row,
                               const Arrays& arrays) const {
  auto out = arrays.rope_positions.begin() + kPlaces * first_row;
  ForEachRowPlace(slice, limits_.batch.num_positions,
                  [&](const RowPosition& place) { out = std::ranges::copy(place, out).out; });
}

// Tiles, and the rows of images for attention that computes them one by one.
void StepInputs::PackParts(const ForwardBatch& batch, const SequenceSlice& slice, int32_t first_row,
                           const Arrays& arrays) {
  const auto most = static_cast<int32_t>(limits_.tile_rows);
  ForEachPart(batch, slice, limits_.sight, [&](const RowPart& part) {
    const int32_t part_begin = part.first_row - slice.first_row;
    const auto last_key = static_cast<int32_t>(part.last_key);
    for (int32_t at = 0; at < part.num_rows; at += most) {
      const int32_t i = part_begin + at;
      arrays.tiles[static_cast<size_t>(num_tiles_++)] = {
          .row_begin = first_row + i,
          .num_rows = std::min(most, part.num_rows - at),
          .first_position = static_cast<int32_t>(slice.position) + i,
          .table = arrays.tables[static_cast<size_t>(first_row)],
          .last_key = last_key};
    }
    if (last_key == 0) return;
    std::fill_n(arrays.lengths.begin() + first_row + part_begin, part.num_rows, last_key + 1);
  });
}

void StepInputs::PackStates(const SequenceSlice& slice, int32_t first_row, const Arrays& arrays) {
  const auto index = static_cast<size_t>(num_delta_slices_++);
  arrays.delta_slices[index] = {.row_begin = first_row,
                                .num_rows = slice.num_tokens,
                                .slot = slice.position == 0 ? -1 : slice.recurrent_slot,
                                .first_write = static_cast<int32_t>(num_delta_writes_),
                                .num_writes = static_cast<int32_t>(slice.recurrent_writes.size())};
  for (const RecurrentWrite& write : slice.recurrent_writes) {
    arrays.delta_writes[static_cast<size_t>(num_delta_writes_++)] = {.num_rows = write.num_tokens,
                                                                     .slot = write.slot};
  }
  std::ranges::fill(arrays.slice_of_row.subspan(static_cast<size_t>(first_row),
                                                static_cast<size_t>(slice.num_tokens)),
                    static_cast<int32_t>(index));
}

void StepInputs::PackCounts(const ForwardBatch& batch, const Arrays& arrays) const {
  std::ranges::fill(arrays.from, TokenBlock::kNone);
  std::ranges::fill(arrays.counts, TokenBlock::kNone);
  for (const SequenceSlice& slice : batch.sequences) {
    for (int32_t i = slice.first_row; i < slice.first_row + slice.num_tokens; ++i) {
      const auto row = static_cast<size_t>(packed_rows_[static_cast<size_t>(i)]);
      if (slice.behind) arrays.counts[row] = slice.behind.count();
      const int32_t id = batch.token_ids[static_cast<size_t>(i)];
      if (!IsTokenAt(id)) continue;
      arrays.from[row] = PlaceOf(id);
      arrays.ids[row] = 0;
    }
  }
  std::ranges::copy(batch.logits_behind, arrays.logits_counts.begin());
}

void StepInputs::FindBlocks(const ForwardBatch& batch) {
  blocks_.clear();
  for (const SequenceSlice& slice : batch.sequences) {
    if (!slice.block) continue;
    const int32_t num_drawn = slice.block.num_guesses + 1;
    const int32_t first_row = slice.first_row + slice.num_tokens - num_drawn;
    const auto found = std::ranges::lower_bound(batch.logits_rows, first_row);
    const auto last = std::ranges::upper_bound(batch.logits_rows, first_row + num_drawn - 1);
    MLC_CHECK(last - found == num_drawn) << last - found << " logits of " << num_drawn << " draws";
    blocks_.push_back({.first_row = packed_rows_[static_cast<size_t>(first_row)],
                       .first_drawn = static_cast<int32_t>(found - batch.logits_rows.begin()),
                       .num_guesses = slice.block.num_guesses,
                       .place = slice.block.place});
  }
}

void StepInputs::PackDraft(const DraftInput& draft, const Arrays& arrays) const {
  const std::span<const int32_t> rows = draft.target == nullptr ? draft.own_rows : draft.places;
  std::ranges::fill(arrays.state_rows, 0);
  for (size_t row = 0; row < rows.size(); ++row) {
    arrays.state_rows[static_cast<size_t>(packed_rows_[row])] = rows[row];
  }
  const auto max_rows = static_cast<int32_t>(limits_.batch.max_num_rows);
  for (size_t i = 0; i < arrays.joined_rows.size(); ++i) {
    arrays.joined_rows[i] = static_cast<int32_t>(i / 2) + (i % 2 == 0 ? 0 : max_rows);
  }
}

void StepInputs::PackPlaces(const HiddenStates& hidden, const Arrays& arrays) const {
  std::ranges::fill(arrays.places, -1);
  for (size_t i = 0; i < hidden.rows.size(); ++i) {
    const auto row = static_cast<size_t>(packed_rows_[static_cast<size_t>(hidden.rows[i])]);
    arrays.places[row] = hidden.places[i];
  }
}

}  // namespace mlc_native
