// Loops over independent rows: how they are split over threads and, within a thread, into blocks.
// Included by the .cc files of this folder that share them, by none that is compiled for an ISA.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/kernels.h"

namespace mlc_native::kernels {

// A thread is worth waking for this many elements (some 4 us of simple arithmetic).
inline constexpr int64_t kMinElementsPerThread = 16 * 1024;
// What one step writes of a block is still in a cache of the core for the next.
inline constexpr int64_t kRowsPerBlock = 16;

// Calls fn(begin, end) for blocks that cover [0, rows), on all threads when it is worth it.
template <typename F>
void ForRows(const Cpu& cpu, int64_t rows, int64_t elements_per_row, F fn) {
  const int64_t per_row = std::max<int64_t>(1, elements_per_row);
  const int64_t grain = (kMinElementsPerThread + per_row - 1) / per_row;
  const auto run = [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; row += kRowsPerBlock) {
      fn(row, std::min(end, row + kRowsPerBlock));
    }
  };
  cpu.pool->ParallelFor(rows, run, grain);
}

// The arguments of every step, which must have m rows.
void CheckSteps(std::span<const RowStep> steps, int64_t m);
// What a row costs, in simple operations on one element.
int64_t ElementsPerRow(std::span<const RowStep> steps);
void RunSteps(const CpuKernels& isa, std::span<const RowStep> steps, int64_t begin, int64_t end);

}  // namespace mlc_native::kernels
