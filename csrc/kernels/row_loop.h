// Loops over independent rows: how rows are divided among threads and, within a thread, into
// blocks. For the .cc files of this folder that are not compiled for a particular ISA.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/kernel_profile.h"
#include "kernels/kernels.h"

namespace mlc_native::kernels {

// Waking a thread pays from this many elements on (about 4 us of simple arithmetic).
inline constexpr int64_t kMinElementsPerThread = int64_t{16} * 1024;
// A block is small enough to stay in the core's cache from one step to the next.
inline constexpr int64_t kRowsPerBlock = 16;

// Calls fn(begin, end, thread) for blocks that cover [0, rows), on several threads if the work pays
// for it. `kernel` is what threads wait for in the end; fn has the spans of what it runs.
template <typename F>
void ForRows(const Cpu& cpu, int kernel, int64_t rows, int64_t elements_per_row, F fn) {
  const int64_t per_row = std::max<int64_t>(1, elements_per_row);
  const int64_t grain = (kMinElementsPerThread + per_row - 1) / per_row;
  const auto run = [&](int64_t begin, int64_t end, int thread) {
    for (int64_t row = begin; row < end; row += kRowsPerBlock) {
      fn(row, std::min(end, row + kRowsPerBlock), thread);
    }
  };
  const ProfiledLoop loop(cpu.profile, kernel);
  cpu.pool->ParallelFor(rows, run, grain);
}

// The same for a loop that consists of one kernel.
template <typename F>
void ForRows(const Cpu& cpu, KernelKind kind, int64_t rows, int64_t elements_per_row, F fn) {
  const int kernel = KernelProfile::IdOf(kind);
  ForRows(cpu, kernel, rows, elements_per_row, [&](int64_t begin, int64_t end, int thread) {
    const KernelSpan span(cpu.profile, kernel, thread);
    fn(begin, end);
  });
}

// Checks the arguments of every step. Requires: each step has m rows.
void CheckSteps(std::span<const RowStep> steps, int64_t m);
// Returns the cost of a row, in simple operations on one element.
int64_t ElementsPerRow(std::span<const RowStep> steps);
void RunSteps(const Cpu& cpu, std::span<const RowStep> steps, int64_t begin, int64_t end,
              int thread);
// Counts a call of each step.
void CountSteps(KernelProfile& profile, std::span<const RowStep> steps);

}  // namespace mlc_native::kernels
