#include "kernels/key_choice.h"

#include <algorithm>

#include "kernels/best_keys.h"
#include "kernels/cpu/table.h"
#include "kernels/kernel_profile.h"
#include "support/check.h"

namespace mlc_native::kernels {
namespace {

constexpr int kChooseKeys = static_cast<int>(KernelKind::kChooseKeys);
constexpr int kCopyChosen = static_cast<int>(KernelKind::kAttention);

constexpr int64_t kStepTokens = kPagesPerStep * kPageSize;
constexpr int64_t kRowsAtOnce = 16;                  // whose keys are scored
constexpr size_t kGatheredBytes = size_t{32} << 20;  // of the rows that attend at once, or one
constexpr int64_t kStepsPerPart = kStepsPerSegment;  // that a thread scores at once

int64_t RoundUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// The parts of the workspace. Each is a whole number of cache lines.
struct Layout {
  int64_t scratch_floats;  // of a thread
  int64_t score_row;       // floats from row to row
  size_t scores_bytes;     // of both together
  int64_t pages_per_row;
  int64_t gathered_rows;
  size_t gathered_bytes;  // of K, or of V
  size_t table_bytes;
  size_t sequences_bytes;

  explicit Layout(const KeyChoiceShape& s)
      : scratch_floats(RoundUp(AttentionScratchFloats(kMaxBlockQueries, s.head_dim), 16)),
        score_row(RoundUp(s.max_positions, kStepTokens)),
        scores_bytes(static_cast<size_t>(s.num_threads * scratch_floats + kRowsAtOnce * score_row) *
                     sizeof(float)),
        pages_per_row((s.num_chosen + kPageSize - 1) / kPageSize) {
    const size_t of_row = KvLayerBytes(s.format, pages_per_row, 1, s.kv_head_dim);
    gathered_rows =
        std::clamp<int64_t>(static_cast<int64_t>(kGatheredBytes / (2 * of_row)), 1, kRowsAtOnce);
    gathered_bytes = AlignUp(static_cast<size_t>(gathered_rows) * of_row);
    table_bytes = AlignUp(static_cast<size_t>(gathered_rows * pages_per_row) * sizeof(int32_t));
    sequences_bytes = AlignUp(static_cast<size_t>(gathered_rows) * sizeof(AttentionSequence));
  }
  // The two calls are never in flight together.
  size_t Bytes() const {
    return AlignUp(std::max(scores_bytes, 2 * gathered_bytes + table_bytes + sequences_bytes));
  }
};

// ---- The choice ----

struct Scoring {
  const Cpu& cpu;
  const KeyChoiceShape& shape;
  const KvPages& index;
  const ChooseKeysArgs& args;
  Layout layout;

  float* Scratch(int thread) const {
    return static_cast<float*>(args.workspace) + thread * layout.scratch_floats;
  }
  float* Scores(int64_t row_of_group) const {
    return Scratch(shape.num_threads) + row_of_group * layout.score_row;
  }

  void Score(ChoosingRows rows) const {
    const KeyScoreArgs of_rows{.q = args.q,
                               .ldq = args.ldq,
                               .weights = args.weights,
                               .ld_weights = args.ld_weights,
                               .heads = shape.heads};
    const auto num_parts = [](const AttentionSequence& row) {
      const int64_t steps = row.first_position / kStepTokens + 1;
      return (steps + kStepsPerPart - 1) / kStepsPerPart;
    };
    int64_t all_parts = 0;
    for (const AttentionSequence& row : rows) all_parts += num_parts(row);
    const auto score = [&](int64_t begin, int64_t end, int thread) {
      int64_t first = 0;  // part of the row
      for (size_t i = 0; i < rows.size(); ++i) {
        const int64_t parts = num_parts(rows[i]);
        const int64_t from = std::max(begin - first, int64_t{0});
        const int64_t to = std::min(end - first, parts);
        const int64_t steps = rows[i].first_position / kStepTokens + 1;
        if (from < to) {
          const KeyScoreSteps of_part{.row = &rows[i],
                                      .begin = from * kStepsPerPart,
                                      .end = std::min(to * kStepsPerPart, steps),
                                      .scratch = Scratch(thread)};
          cpu.isa->key_scores(index, of_rows, of_part, Scores(static_cast<int64_t>(i)));
        }
        first += parts;
      }
    };
    RunLoop(cpu, kChooseKeys, all_parts, score);
  }

  void Choose(ChoosingRows rows, int32_t* chosen) const {
    const auto choose = [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        float* const scores = Scores(i);
        const int64_t count = (rows[static_cast<size_t>(i)].first_position + 1) / shape.step;
        for (int64_t key = 0; shape.step > 1 && key < count; ++key) {
          scores[key] = scores[(key + 1) * shape.step - 1];
        }
        ChooseBest(scores, count, shape.num_chosen, chosen + i * shape.num_chosen);
      }
    };
    RunLoop(cpu, kChooseKeys, std::ssize(rows), choose);
  }
};

// The keys of each row once, and the products of all heads with them.
void CountChoice(KernelProfile& profile, const KeyChoiceShape& shape, const KvPages& index,
                 ChoosingRows rows) {
  double keys = 0;
  for (const AttentionSequence& row : rows) keys += static_cast<double>(row.first_position + 1);
  const auto key_bytes = static_cast<double>(KvPageBytes(index.format, index.head_dim)) / kPageSize;
  profile.Count(kChooseKeys, key_bytes * keys,
                2 * static_cast<double>(shape.heads * shape.head_dim) * keys);
}

}  // namespace

size_t KeyChoiceWorkspaceBytes(const KeyChoiceShape& shape) { return Layout(shape).Bytes(); }

void ChooseKeys(const Cpu& cpu, const KeyChoiceShape& shape, const KvPages& index,
                const ChooseKeysArgs& args) {
  MLC_CHECK(index.kv_heads == 1 && index.head_dim == shape.head_dim) << index.head_dim;
  MLC_CHECK(args.workspace != nullptr && cpu.pool->num_threads() <= shape.num_threads);
  if (cpu.profile != nullptr) CountChoice(*cpu.profile, shape, index, args.rows);
  const Scoring scoring{cpu, shape, index, args, Layout(shape)};
  for (size_t begin = 0; begin < args.rows.size(); begin += kRowsAtOnce) {
    const ChoosingRows rows =
        args.rows.subspan(begin, std::min<size_t>(kRowsAtOnce, args.rows.size() - begin));
    for (const AttentionSequence& row : rows) {
      MLC_CHECK((row.first_position + 1) / shape.step > shape.num_chosen &&
                row.first_position < shape.max_positions)
          << row.first_position;
    }
    scoring.Score(rows);
    scoring.Choose(rows, args.chosen + static_cast<int64_t>(begin) * shape.num_chosen);
  }
}

void AttendToChosen(const Cpu& cpu, const KeyChoiceShape& shape, const KvPages& kv,
                    const AttentionArgs& args, const ChosenKeys& keys) {
  MLC_CHECK(kv.format == shape.format && kv.kv_heads == 1 && kv.head_dim == shape.kv_head_dim &&
            kv.v_pages != nullptr && shape.rope_dim <= kv.head_dim);
  MLC_CHECK(keys.workspace != nullptr && args.window.size == 0);
  const Layout layout(shape);
  auto* const memory = static_cast<std::byte*>(keys.workspace);
  const KvPages gathered{.format = kv.format,
                         .kv_heads = kv.kv_heads,
                         .head_dim = kv.head_dim,
                         .num_pages = layout.gathered_rows * layout.pages_per_row,
                         .k_pages = memory,
                         .v_pages = memory + layout.gathered_bytes};
  auto* const table = reinterpret_cast<int32_t*>(memory + 2 * layout.gathered_bytes);
  auto* const sequences =
      reinterpret_cast<AttentionSequence*>(memory + 2 * layout.gathered_bytes + layout.table_bytes);
  for (int64_t i = 0; i < gathered.num_pages; ++i) table[i] = static_cast<int32_t>(i);
  const auto at_once = static_cast<size_t>(layout.gathered_rows);
  for (size_t begin = 0; begin < keys.rows.size(); begin += at_once) {
    ChosenKeys part = keys;
    part.rows = keys.rows.subspan(begin, std::min(at_once, keys.rows.size() - begin));
    part.chosen += static_cast<int64_t>(begin) * shape.num_chosen;
    const auto copy = [&](int64_t from, int64_t to, int) {
      for (int64_t page = from; page < to; ++page) {
        const int64_t row = page / layout.pages_per_row;
        const int64_t first = page % layout.pages_per_row * kPageSize;
        const int64_t left = shape.num_chosen - first;
        cpu.isa->copy_chosen(kv, gathered,
                             {.block_table = part.rows[static_cast<size_t>(row)].block_table,
                              .chosen = part.chosen + row * shape.num_chosen + first,
                              .count = std::min(kPageSize, left),
                              .num_ahead = left,
                              .rope_dim = shape.rope_dim},
                             page);
      }
    };
    RunLoop(cpu, kCopyChosen, std::ssize(part.rows) * layout.pages_per_row, copy);
    for (size_t i = 0; i < part.rows.size(); ++i) {
      sequences[i] = {.row_begin = part.rows[i].row_begin,
                      .num_rows = 1,
                      .first_position = shape.num_chosen - 1,
                      .block_table = table + static_cast<int64_t>(i) * layout.pages_per_row};
    }
    AttentionArgs attention = args;
    attention.sequences = sequences;
    attention.num_sequences = std::ssize(part.rows);
    PagedAttention(cpu, gathered, attention);
  }
}

}  // namespace mlc_native::kernels
