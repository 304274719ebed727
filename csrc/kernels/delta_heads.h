// What the kernels of layers with a state for each head share: how the heads of a batch are divided
// among threads, how a head's rows go through its state, and what a convolution leaves in it. For
// the .cc files of this folder that are not compiled for a particular ISA.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>

#include "kernels/delta_rule.h"
#include "kernels/kernel_profile.h"
#include "kernels/row_loop.h"

namespace mlc_native::kernels {

inline float Softplus(float x) { return std::max(x, 0.0f) + std::log1p(std::exp(-std::abs(x))); }

inline int64_t NumRows(const DeltaSequence* sequences, int64_t num_sequences) {
  int64_t rows = 0;
  for (int64_t i = 0; i < num_sequences; ++i) rows += sequences[i].num_rows;
  return rows;
}

// States that are read and written.
inline int64_t NumStates(const DeltaSequence* sequences, int64_t num_sequences) {
  int64_t states = 0;
  for (int64_t i = 0; i < num_sequences; ++i) {
    states += sequences[i].num_writes + (sequences[i].state != nullptr ? 1 : 0);
  }
  return states;
}

// The bytes and operations of a batch: states, and what comes in and out of its rows.
template <typename Args>
void CountStates(const Cpu& cpu, KernelKind kind, const Args& a, double operations_per_element) {
  if (cpu.profile == nullptr) return;
  const DeltaShape& shape = a.shape;
  const auto rows = static_cast<double>(NumRows(a.sequences, a.num_sequences));
  const auto states = static_cast<double>(NumStates(a.sequences, a.num_sequences));
  const auto state = static_cast<double>(DeltaStateFloats(shape));
  const auto width = static_cast<double>(shape.channels() + 2 * shape.values());
  cpu.profile->Count(KernelProfile::IdOf(kind), sizeof(float) * (states * state + rows * width),
                     rows * operations_per_element *
                         static_cast<double>(shape.value_heads * shape.key_dim * shape.value_dim));
}

// What the convolution reads `back` rows before the first row of the slice; null: zeros.
inline const float* RowBefore(const DeltaConvolution& c, const DeltaSequence& s, int64_t back) {
  return s.state == nullptr ? nullptr : s.state + (c.width - 1 - back) * c.channels;
}

// The last rows of channels [begin, begin + count) in front of row write.num_rows.
inline void WriteChannels(const DeltaConvolution& c, const DeltaSequence& s,
                          const DeltaWrite& write, int64_t begin, int64_t count) {
  const int64_t width = c.width - 1;
  for (int64_t i = 0; i < width; ++i) {
    const int64_t row = write.num_rows - width + i;
    const float* const from =
        row < 0 ? RowBefore(c, s, -row) : c.inputs + (s.row_begin + row) * c.ld_inputs;
    float* const to = write.state + i * c.channels + begin;
    const size_t bytes = static_cast<size_t>(count) * sizeof(float);
    if (from == nullptr) {
      std::memset(to, 0, bytes);
    } else {
      std::memcpy(to, from + begin, bytes);
    }
  }
}

// Where the state of a head, or of a block of channels, is within that of its layer.
struct StateOfHead {
  int64_t head = 0;
  int64_t at = 0;
  int64_t floats = 0;
};

// Calls run(chunk) for the rows of a head, in order. prepare(&chunk, i, row) sets what is one
// number of the chunk's i-th row, which is `row` of the batch.
template <typename Prepare, typename Run>
void ForChunks(const StateOfHead& of, const DeltaSequence& s, float* scratch, Prepare prepare,
               Run run) {
  const int64_t at = of.at;
  DeltaChunk chunk{.sequence = &s, .value_head = of.head, .scratch = scratch};
  if (s.state != nullptr) {
    chunk.from = s.state + at;
  } else {
    float* const first = s.writes[0].state + at;
    std::fill_n(first, of.floats, 0.0f);
    chunk.from = first;
  }
  const DeltaWrite* write = s.writes;
  for (int64_t row = 0; row < s.num_rows; row += chunk.num_rows) {
    chunk.row_begin = row;
    chunk.num_rows = std::min(kDeltaRows, s.num_rows - row);
    for (int64_t i = 0; i < chunk.num_rows; ++i) {
      if (write->num_rows == row + i) ++write;
      chunk.to[i] = write->state + at;
      prepare(&chunk, i, s.row_begin + row + i);
    }
    run(chunk);
    chunk.from = chunk.to[chunk.num_rows - 1];
  }
}

// The same for a value head.
template <typename Prepare, typename Run>
void ForChunks(const DeltaShape& shape, const DeltaSequence& s, int64_t head, float* scratch,
               Prepare prepare, Run run) {
  const int64_t floats = DeltaHeadFloats(shape);
  ForChunks(StateOfHead{.head = head, .at = DeltaHeadsAt(shape) + head * floats, .floats = floats},
            s, scratch, prepare, run);
}

// Calls fn(sequence, begin, end) for rows [begin, end) of its slice, for all rows of a batch.
template <typename Args, typename F>
void ForRowsOfSequences(const Cpu& cpu, KernelKind kind, const Args& a, int64_t elements_per_row,
                        F fn) {
  const int64_t rows = NumRows(a.sequences, a.num_sequences);
  ForRows(cpu, kind, rows, elements_per_row, [&](int64_t begin, int64_t end) {
    int64_t first = 0;
    for (int64_t i = 0; i < a.num_sequences; first += a.sequences[i].num_rows, ++i) {
      const DeltaSequence& s = a.sequences[i];
      const int64_t from = std::max<int64_t>(begin - first, 0);
      const int64_t to = std::min(end - first, s.num_rows);
      if (from < to) fn(s, from, to);
    }
  });
}

// Calls fn(sequence, head, thread) for each head of each sequence. Threads share the rows of all
// heads; a head is computed by the thread that has its middle.
template <typename F>
void ForHeads(const Cpu& cpu, KernelKind kind, int64_t heads, const DeltaSequence* sequences,
              int64_t num_sequences, F fn) {
  const int64_t total = NumRows(sequences, num_sequences) * heads;
  RunLoop(cpu, KernelProfile::IdOf(kind), total, [&](int64_t begin, int64_t end, int thread) {
    int64_t done = 0;
    for (int64_t i = 0; i < num_sequences; ++i) {
      const DeltaSequence& sequence = sequences[i];
      for (int64_t head = 0; head < heads; ++head, done += sequence.num_rows) {
        const int64_t middle = done + sequence.num_rows / 2;
        if (middle < begin || middle >= end) continue;
        fn(sequence, head, thread);
      }
    }
  });
}

}  // namespace mlc_native::kernels
