// Kernels of steps that follow guesses: what the step before has found right decides on the device
// where the next one begins. A thread handles one row, or all guesses of one sequence: both are
// few.
#include "kernels/cuda/guesses.h"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/one_thread_each.cuh"

namespace mlc_native::kernels::cuda {
inline namespace guesses_cu {

constexpr unsigned kGuessThreads = 64;

// Any token, if none could be drawn.
__device__ int32_t DrawnOr0(int32_t token) { return token < 0 ? 0 : token; }

__global__ void AddCountsKernel(const __grid_constant__ AddCountsArgs args) {
  WaitForPrevious();
  const int64_t i = GlobalThread();
  if (i >= args.m || args.counts[i] < 0) return;
  args.values[i] += args.tokens[args.counts[i]];
}

__global__ void ResolveRowsKernel(const __grid_constant__ ResolveRowsArgs args) {
  WaitForPrevious();
  const int64_t i = GlobalThread();
  if (i >= args.m) return;
  if (args.from[i] >= 0) args.ids[i] = args.tokens[args.from[i]];
  if (args.counts[i] < 0) return;
  const int32_t count = args.tokens[args.counts[i]];
  const int32_t position = args.positions[i] + count;
  const int64_t table = args.tables[i] * args.ld_block_tables;
  args.positions[i] = position;
  args.lengths[i] += count;
  if (args.rope_positions != nullptr) {
    for (int j = 0; j < 3; ++j) args.rope_positions[3 * i + j] += count;
  }
  args.slots[i] =
      args.block_tables[table + position / kKvPageSize] * kKvPageSize + position % kKvPageSize;
}

__global__ void AcceptGuessesKernel(const __grid_constant__ AcceptGuessesArgs args) {
  WaitForPrevious();
  const int64_t i = GlobalThread();
  if (i >= args.m) return;
  const GuessedRows rows = args.sequences[i];
  const int32_t* drawn = args.drawn + rows.first_drawn;
  int32_t* out = args.tokens + rows.place;
  int32_t count = 0;
  for (int32_t j = 0; j <= rows.num_guesses; ++j) {
    out[2 + j] = DrawnOr0(drawn[j]);
    if (j == rows.num_guesses) break;
    const int32_t guess = args.ids[rows.first_row + j + 1];
    args.guesses[rows.first_drawn + j] = guess;
    if (count == j && drawn[j] == guess) ++count;
  }
  out[0] = count;
  out[1] = DrawnOr0(drawn[count]);
}

__global__ void PlaceTokensKernel(const __grid_constant__ PlaceTokensArgs args) {
  WaitForPrevious();
  const int64_t i = GlobalThread();
  if (i >= args.m) return;
  const int32_t token = DrawnOr0(args.drawn[i]);
  args.tokens[args.places[i]] = args.ids != nullptr ? args.ids[token] : token;
}

}  // namespace guesses_cu

void AddCounts(const AddCountsArgs& args, Stream stream) {
  if (args.m > 0) Launch(AddCountsKernel, OneThreadEach(args.m, kGuessThreads), stream, args);
}

void ResolveRows(const ResolveRowsArgs& args, Stream stream) {
  if (args.m > 0) Launch(ResolveRowsKernel, OneThreadEach(args.m, kGuessThreads), stream, args);
}

void AcceptGuesses(const AcceptGuessesArgs& args, Stream stream) {
  if (args.m > 0) Launch(AcceptGuessesKernel, OneThreadEach(args.m, kGuessThreads), stream, args);
}

void PlaceTokens(const PlaceTokensArgs& args, Stream stream) {
  if (args.m > 0) Launch(PlaceTokensKernel, OneThreadEach(args.m, kGuessThreads), stream, args);
}

}  // namespace mlc_native::kernels::cuda
