// What images change of the rows of a slice, on every device: where rope puts them, and which keys
// they see. Functions of a ForwardBatch without state; any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "arch/model_config.h"
#include "mlc_native/model.h"
#include "support/check.h"

namespace mlc_native {

// Consecutive rows of a slice, which see all keys up to their own, and those up to last_key, as far
// as their window goes.
struct RowPart {
  int32_t first_row = 0;  // of the batch
  int32_t num_rows = 0;
  int64_t last_key = 0;  // 0: each row sees none behind its own
};

// Calls f(part) for all rows of the slice in their order. Where the rows of an image see each
// other, each image is a part by itself. Throws InternalError for a slice that does not begin its
// sequence where rows see all of it.
template <typename F>
void ForEachPart(const ForwardBatch& batch, const SequenceSlice& slice, RowSight sight,
                 const F& f) {
  if (sight == RowSight::kAll) {
    MLC_CHECK(slice.position == 0) << slice.position;
    return f(RowPart{slice.first_row, slice.num_tokens, slice.num_tokens - 1});
  }
  const int32_t end = slice.first_row + slice.num_tokens;
  int32_t next = slice.first_row;
  const auto take = [&](int32_t part_end, int64_t last_key) {
    if (part_end > next) f(RowPart{next, part_end - next, last_key});
    next = part_end;
  };
  if (sight == RowSight::kOfImages) {
    for (const InputRows& rows : batch.input_rows) {
      if (rows.first_row < slice.first_row || rows.first_row >= end) continue;
      take(rows.first_row, 0);
      const int32_t image_end = rows.first_row + rows.num_rows;
      take(image_end, slice.position + image_end - 1 - slice.first_row);
    }
  }
  take(end, 0);
}

// Whether rope puts a row elsewhere than its place in the sequence.
inline bool HasRowPlaces(const ForwardBatch& batch) {
  return std::ranges::any_of(batch.sequences, [](const SequenceSlice& slice) {
    return !slice.rope_positions.empty() || slice.rope_shift != 0;
  });
}

// Calls f(position) with where rope puts each row of the slice, in their order. Rows behind guesses
// are where they would be without one. Throws InternalError for a position that is not in
// [0, num_positions), with all guesses.
template <typename F>
void ForEachRowPlace(const SequenceSlice& slice, int64_t num_positions, const F& f) {
  const int64_t num_placed = std::ssize(slice.rope_positions);
  const int64_t num_guesses = slice.behind.num_guesses;
  MLC_CHECK(num_placed <= slice.num_tokens && (num_guesses == 0 || num_placed == 0))
      << num_placed << " positions for " << slice.num_tokens << " rows";
  const auto take = [&](const RowPosition& place) {
    for (const int32_t number : place) {
      MLC_CHECK(number >= 0 && number + num_guesses < num_positions)
          << number << " + " << num_guesses << " of " << num_positions;
    }
    f(place);
  };
  for (const RowPosition& place : slice.rope_positions) take(place);
  for (int64_t i = num_placed; i < slice.num_tokens; ++i) {
    const auto place = static_cast<int32_t>(slice.position + i + slice.rope_shift);
    take({place, place, place});
  }
}

}  // namespace mlc_native
