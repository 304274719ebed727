// TokenBlock: where a step leaves what it draws for a sequence, so that the steps behind it read it
// on the device. Places are those of a TokenMemory (model.h). Plain values; any thread.
#pragma once

#include <cstdint>
#include <limits>

namespace mlc_native {

// How many of the guesses in front of the draws are right (the guess behind each row up to there is
// what that row draws), the token that follows them, and the token of each row that is drawn from.
struct TokenBlock {
  static constexpr int32_t kNone = -1;

  int32_t place = kNone;    // the first one
  int32_t num_guesses = 0;  // rows that are drawn from, less one; the most that the count can be

  static constexpr int32_t NumPlaces(int32_t num_guesses) { return num_guesses + 3; }
  explicit operator bool() const { return place != kNone; }
  int32_t count() const { return place; }
  int32_t next() const { return place + 1; }
  int32_t drawn(int32_t i) const { return place + 2 + i; }
};

// A token id in a batch: the token at a place.
constexpr int32_t TokenAt(int32_t place) { return std::numeric_limits<int32_t>::min() + place; }
constexpr bool IsTokenAt(int32_t id) { return id < std::numeric_limits<int32_t>::min() / 2; }
constexpr int32_t PlaceOf(int32_t id) { return id - std::numeric_limits<int32_t>::min(); }

}  // namespace mlc_native
