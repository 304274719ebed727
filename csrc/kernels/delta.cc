// Divides the gated delta rule of a batch among threads by value heads, and computes what is one
// number of a row and head; the loops are in cpu/delta_rule.inl.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/table.h"
#include "kernels/delta_rule.h"
#include "kernels/kernel_profile.h"
#include "support/check.h"

namespace mlc_native::kernels {
namespace {

constexpr int kDelta = static_cast<int>(KernelKind::kDelta);

float Softplus(float x) { return std::max(x, 0.0f) + std::log1p(std::exp(-std::abs(x))); }

void Check(const DeltaArgs& a) {
  const DeltaShape& shape = a.shape;
  MLC_CHECK(shape.key_heads > 0 && shape.value_heads % shape.key_heads == 0 && shape.key_dim > 0 &&
            shape.value_dim > 0 && shape.conv_width > 1)
      << shape.value_heads << " value heads of " << shape.key_heads;
  MLC_CHECK(a.ld_inputs >= shape.channels() + shape.values() &&
            a.ld_gates >= 2 * shape.value_heads && a.ldo >= shape.values() &&
            a.workspace != nullptr);
  for (int64_t i = 0; i < a.num_sequences; ++i) CheckSequence(a.sequences[i], i);
}

// What the convolution reads `back` rows before the first row of the slice; null: zeros.
const float* RowBefore(const DeltaArgs& a, const DeltaSequence& s, int64_t back) {
  return s.state == nullptr ? nullptr
                            : s.state + (a.shape.conv_width - 1 - back) * a.shape.channels();
}

// The last rows of channels [begin, begin + count) in front of row write.num_rows.
void WriteChannels(const DeltaArgs& a, const DeltaSequence& s, const DeltaWrite& write,
                   int64_t begin, int64_t count) {
  const int64_t width = a.shape.conv_width - 1;
  for (int64_t i = 0; i < width; ++i) {
    const int64_t row = write.num_rows - width + i;
    const float* const from =
        row < 0 ? RowBefore(a, s, -row) : a.inputs + (s.row_begin + row) * a.ld_inputs;
    float* const to = write.state + i * a.shape.channels() + begin;
    const size_t bytes = static_cast<size_t>(count) * sizeof(float);
    if (from == nullptr) {
      std::memset(to, 0, bytes);
    } else {
      std::memcpy(to, from + begin, bytes);
    }
  }
}

// The first of the value heads that share a key head writes what its convolutions read.
void WriteConvolutions(const DeltaArgs& a, const DeltaSequence& s, int64_t head) {
  const DeltaShape& shape = a.shape;
  const int64_t group = shape.value_heads / shape.key_heads;
  for (const DeltaWrite& write : std::span(s.writes, static_cast<size_t>(s.num_writes))) {
    if (head % group == 0) {
      const int64_t key = head / group * shape.key_dim;
      WriteChannels(a, s, write, key, shape.key_dim);
      WriteChannels(a, s, write, shape.keys() + key, shape.key_dim);
    }
    WriteChannels(a, s, write, 2 * shape.keys() + head * shape.value_dim, shape.value_dim);
  }
}

void RunHead(const CpuKernels& isa, const DeltaArgs& a, const DeltaSequence& s, int64_t head,
             float* scratch) {
  const DeltaShape& shape = a.shape;
  const int64_t at = DeltaHeadsAt(shape) + head * DeltaHeadFloats(shape);
  const float rate = -std::exp(a.decay[head]);
  DeltaChunk chunk{.sequence = &s, .value_head = head, .scratch = scratch};
  if (s.state != nullptr) {
    chunk.from = s.state + at;
  } else {
    float* const first = s.writes[0].state + at;
    std::fill_n(first, DeltaHeadFloats(shape), 0.0f);
    chunk.from = first;
  }
  const DeltaWrite* write = s.writes;
  for (int64_t row = 0; row < s.num_rows; row += chunk.num_rows) {
    chunk.row_begin = row;
    chunk.num_rows = std::min(kDeltaRows, s.num_rows - row);
    for (int64_t i = 0; i < chunk.num_rows; ++i) {
      if (write->num_rows == row + i) ++write;
      chunk.to[i] = write->state + at;
      const float* const gates = a.gates + (s.row_begin + row + i) * a.ld_gates + head;
      chunk.beta[i] = 1.0f / (1.0f + std::exp(-gates[0]));
      chunk.decay[i] = std::exp(rate * Softplus(gates[shape.value_heads] + a.decay_bias[head]));
    }
    isa.delta_rule(a, chunk);
    chunk.from = chunk.to[chunk.num_rows - 1];
  }
  WriteConvolutions(a, s, head);
}

void Count(KernelProfile& profile, const DeltaArgs& a) {
  const DeltaShape& shape = a.shape;
  double rows = 0, states = 0;
  for (int64_t i = 0; i < a.num_sequences; ++i) {
    rows += static_cast<double>(a.sequences[i].num_rows);
    states += static_cast<double>(a.sequences[i].num_writes + (a.sequences[i].state != nullptr));
  }
  const auto state = static_cast<double>(DeltaStateFloats(shape));
  const auto width = static_cast<double>(shape.channels() + 2 * shape.values());
  profile.Count(
      kDelta, sizeof(float) * (states * state + rows * width),
      rows * 7 * static_cast<double>(shape.value_heads * shape.key_dim * shape.value_dim));
}

}  // namespace

void CheckSequence(const DeltaSequence& s, int64_t i) {
  MLC_CHECK(s.num_rows > 0 && s.num_writes > 0 && s.writes[s.num_writes - 1].num_rows == s.num_rows)
      << "sequence " << i << " leaves no state behind its " << s.num_rows << " rows";
  int64_t last = 0;
  for (const DeltaWrite& write : std::span(s.writes, static_cast<size_t>(s.num_writes))) {
    MLC_CHECK(write.num_rows > last && write.state != nullptr && write.state != s.state);
    last = write.num_rows;
  }
}

size_t DeltaWorkspaceBytes(int num_threads, const DeltaShape& shape) {
  return static_cast<size_t>(num_threads * DeltaScratchFloats(shape)) * sizeof(float);
}

void DeltaRule(const Cpu& cpu, const DeltaArgs& args) {
  Check(args);
  if (args.num_sequences == 0) return;
  if (cpu.profile != nullptr) Count(*cpu.profile, args);
  const int64_t heads = args.shape.value_heads;
  int64_t rows = 0;
  for (int64_t i = 0; i < args.num_sequences; ++i) rows += args.sequences[i].num_rows;
  const int64_t total = rows * heads;
  // Threads share the rows of all heads; a head is computed by the thread that has its middle.
  const auto run = [&](int64_t begin, int64_t end, int thread) {
    float* const scratch =
        static_cast<float*>(args.workspace) + thread * DeltaScratchFloats(args.shape);
    int64_t done = 0;
    for (int64_t i = 0; i < args.num_sequences; ++i) {
      const DeltaSequence& sequence = args.sequences[i];
      for (int64_t head = 0; head < heads; ++head, done += sequence.num_rows) {
        const int64_t middle = done + sequence.num_rows / 2;
        if (middle < begin || middle >= end) continue;
        RunHead(*cpu.isa, args, sequence, head, scratch);
      }
    }
  };
  RunLoop(cpu, kDelta, total, run);
}

}  // namespace mlc_native::kernels
