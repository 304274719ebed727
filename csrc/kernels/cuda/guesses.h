// Steps behind guesses on CUDA: rows that go on from tokens and counts that the host does not know
// yet. What holds for all kernels is in kernels.h.
#pragma once

#include <cstdint>

#include "kernels/cuda/stream.h"

namespace mlc_native::kernels::cuda {

// ---- Steps behind guesses ----
//
// `tokens` is memory for tokens and counts, which kernels name by places. Only these kernels read
// and write it.

// values[i] += tokens[counts[i]] where counts[i] is not below zero.
struct AddCountsArgs {
  const int32_t* tokens = nullptr;
  const int32_t* counts = nullptr;  // [m]
  int32_t* values = nullptr;        // [m]
  int64_t m = 0;
};
void AddCounts(const AddCountsArgs& args, Stream stream);

// What the rows of a forward take from `tokens`: where `from` is not below zero, the id of that
// place; where `counts` is not below zero, that count on top of position, length and, if there are
// any, the three numbers of rope_positions, and the slot of the new position.
struct ResolveRowsArgs {
  const int32_t* tokens = nullptr;
  const int32_t* from = nullptr;    // [m]
  const int32_t* counts = nullptr;  // [m]
  int32_t* ids = nullptr;           // [m], and so are the next ones
  int32_t* positions = nullptr;
  int32_t* lengths = nullptr;
  int32_t* rope_positions = nullptr;  // [m, 3], or null
  int64_t* slots = nullptr;
  const int32_t* tables = nullptr;  // as AttentionArgs
  const int32_t* block_tables = nullptr;
  int64_t ld_block_tables = 0;
  int64_t m = 0;
};
void ResolveRows(const ResolveRowsArgs& args, Stream stream);

// Rows of a sequence: behind each of the first num_guesses is a guess of what it draws.
struct GuessedRows {
  int32_t first_row = 0;    // of `ids`
  int32_t first_drawn = 0;  // of `drawn`
  int32_t num_guesses = 0;
  int32_t place = 0;
};
// Writes at the place of each sequence how many of its guesses are right, up to the first that is
// not; the token drawn behind those; and all num_guesses + 1 tokens drawn. Below zero they become
// 0: then the sequence is being ended, so any token is fine.
struct AcceptGuessesArgs {
  const GuessedRows* sequences = nullptr;  // [m]
  int64_t m = 0;
  const int32_t* ids = nullptr;
  const int32_t* drawn = nullptr;
  int32_t* guesses = nullptr;  // as `drawn`: the guess behind each row that has one
  int32_t* tokens = nullptr;
};
void AcceptGuesses(const AcceptGuessesArgs& args, Stream stream);

// tokens[places[i]] = drawn[i], with `ids`: ids[drawn[i]]; 0 for a token below zero.
struct PlaceTokensArgs {
  const int32_t* drawn = nullptr;   // [m]
  const int32_t* ids = nullptr;     // or null
  const int32_t* places = nullptr;  // [m]
  int64_t m = 0;
  int32_t* tokens = nullptr;
};
void PlaceTokens(const PlaceTokensArgs& args, Stream stream);

}  // namespace mlc_native::kernels::cuda
