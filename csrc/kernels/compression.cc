#include "kernels/compression.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/cpu/table.h"
#include "kernels/kernel_profile.h"
#include "kernels/row_loop.h"
#include "support/check.h"

namespace mlc_native::kernels {
namespace {

constexpr int kCopySeen = static_cast<int>(KernelKind::kAttention);
constexpr int64_t kMostRowsSeen = 16;            // that attend at once
constexpr size_t kSeenBytes = size_t{32} << 20;  // of what they see, or of one

// The parts of the workspace: what rows see, K and then V; a table of its pages; sequences.
struct SeenLayout {
  int64_t pages_per_row;
  int64_t num_rows;
  size_t pages_bytes;  // of K, or of V
  size_t table_bytes;
  size_t sequences_bytes;

  explicit SeenLayout(const EntryShape& s) {
    const int64_t last = std::max<int64_t>(s.max_positions - 1, 0);
    const int64_t most = std::min(s.window, s.max_positions) + s.NumSeen(last);
    pages_per_row = (most + kPageSize - 1) / kPageSize;
    const size_t of_row = KvLayerBytes(s.format, pages_per_row, 1, s.head_dim);
    num_rows =
        std::clamp<int64_t>(static_cast<int64_t>(kSeenBytes / (2 * of_row)), 1, kMostRowsSeen);
    pages_bytes = AlignUp(static_cast<size_t>(num_rows) * of_row);
    table_bytes = AlignUp(static_cast<size_t>(num_rows * pages_per_row) * sizeof(int32_t));
    sequences_bytes = AlignUp(static_cast<size_t>(num_rows) * sizeof(AttentionSequence));
  }
  size_t Bytes() const { return 2 * pages_bytes + table_bytes + sequences_bytes; }
};

// What one row sees: tokens from `first` on, then entries.
struct Seen {
  int64_t first;
  int64_t num_tokens;
  int64_t num_entries;

  Seen(const EntryShape& shape, int64_t position)
      : first(AttentionWindow(shape.window).First(position)),
        num_tokens(position - first + 1),
        num_entries(shape.NumSeen(position)) {}
  int64_t count() const { return num_tokens + num_entries; }
};

struct SeenCopy {
  const Cpu& cpu;
  const EntryShape& shape;
  const KvPages& tokens;
  const EntriesOfRows& of_rows;
  KvPages seen;
  SeenLayout layout;

  // Copies the `page`-th page of what row i of `rows` sees.
  void CopyOne(size_t i, int64_t page) const {
    const AttentionSequence& row = of_rows.rows[i];
    const Seen of_row(shape, row.first_position);
    const int64_t begin = page * kPageSize;
    const int64_t end = std::min(begin + kPageSize, of_row.count());
    const int64_t to = static_cast<int64_t>(i) * layout.pages_per_row + page;
    const auto copy = [&](const KvPages& from, int64_t first, int64_t last, auto position_of) {
      if (first >= last) return;
      std::array<int32_t, kPageSize> positions;
      for (int64_t at = first; at < last; ++at) {
        positions[static_cast<size_t>(at - first)] = static_cast<int32_t>(position_of(at));
      }
      cpu.isa->copy_chosen(from, seen,
                           {.block_table = row.block_table,
                            .chosen = positions.data(),
                            .count = last - first,
                            .num_ahead = last - first,
                            .rope_dim = 0,
                            .first_slot = first - begin},
                           to);
    };
    copy(tokens, begin, std::min(end, of_row.num_tokens),
         [&](int64_t at) { return of_row.first + at; });
    copy(*of_rows.entries, std::max(begin, of_row.num_tokens), end, [&](int64_t at) {
      const int64_t entry = at - of_row.num_tokens;
      const int64_t number =
          of_rows.chosen == nullptr
              ? entry
              : of_rows.chosen[static_cast<int64_t>(i) * shape.num_chosen + entry];
      return (number + 1) * shape.num_tokens - 1;
    });
  }
};

}  // namespace

void CopyPage(const TokenRows& rows, int64_t from_page, int64_t to_page) {
  MLC_CHECK(from_page >= 0 && from_page < rows.num_pages && to_page >= 0 &&
            to_page < rows.num_pages)
      << from_page << " -> " << to_page << " of " << rows.num_pages;
  if (from_page == to_page) return;
  std::memcpy(rows.At(to_page, 0), rows.At(from_page, 0),
              static_cast<size_t>(TokenRowsBytes(1, rows.width)));
}

void WriteTokenRows(const Cpu& cpu, const TokenRows& rows, const WriteTokenRowsArgs& args) {
  MLC_CHECK(args.ldx >= rows.width) << args.ldx;
  for (int64_t i = 0; i < args.m; ++i) {
    MLC_CHECK(args.slots[i] >= 0 && args.slots[i] < rows.num_pages * kPageSize)
        << "slot " << args.slots[i] << " of " << rows.num_pages << " pages";
  }
  ForRows(cpu, KernelKind::kWriteKv, args.m, rows.width, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::memcpy(rows.At(args.slots[i] / kPageSize, args.slots[i] % kPageSize),
                  args.x + i * args.ldx, static_cast<size_t>(rows.width) * sizeof(float));
    }
  });
}

void Compress(const Cpu& cpu, const CompressArgs& args) {
  const int64_t channels = (args.overlaps ? 2 : 1) * args.dim;
  MLC_CHECK(args.num_tokens >= 1 && args.num_tokens <= kMaxTokensPerEntry && args.dim > 0 &&
            args.ldo >= args.dim && args.numbers + channels <= args.tokens->width &&
            args.weights + channels <= args.tokens->width)
      << args.num_tokens << " tokens of " << args.dim;
  for (int64_t i = 0; i < args.num_ends; ++i) {
    const int64_t position = args.ends[i].position;
    MLC_CHECK(position >= 0 && (position + 1) % args.num_tokens == 0) << position;
  }
  constexpr int64_t kCost = 16;  // of an exponential, which is computed once, and of two sums
  ForRows(cpu, KernelKind::kCompress, args.num_ends, kCost * args.num_tokens * channels,
          [&](int64_t begin, int64_t end) { cpu.isa->compress(args, begin, end); });
}

size_t EntryWorkspaceBytes(const EntryShape& shape) { return SeenLayout(shape).Bytes(); }

void AttendToEntries(const Cpu& cpu, const EntryShape& shape, const KvPages& tokens,
                     const AttentionArgs& args, const EntriesOfRows& of_rows) {
  for (const KvPages* pages : {&tokens, of_rows.entries}) {
    MLC_CHECK(pages->format == shape.format && pages->kv_heads == 1 &&
              pages->head_dim == shape.head_dim && pages->v_pages != nullptr);
  }
  MLC_CHECK(of_rows.workspace != nullptr && shape.window > 0);
  const SeenLayout layout(shape);
  auto* const memory = static_cast<std::byte*>(of_rows.workspace);
  const KvPages seen{.format = shape.format,
                     .kv_heads = 1,
                     .head_dim = shape.head_dim,
                     .num_pages = layout.num_rows * layout.pages_per_row,
                     .k_pages = memory,
                     .v_pages = memory + layout.pages_bytes};
  auto* const table = reinterpret_cast<int32_t*>(memory + 2 * layout.pages_bytes);
  auto* const sequences =
      reinterpret_cast<AttentionSequence*>(memory + 2 * layout.pages_bytes + layout.table_bytes);
  for (int64_t i = 0; i < seen.num_pages; ++i) table[i] = static_cast<int32_t>(i);
  const auto at_once = static_cast<size_t>(layout.num_rows);
  for (size_t begin = 0; begin < of_rows.rows.size(); begin += at_once) {
    EntriesOfRows part = of_rows;
    part.rows = of_rows.rows.subspan(begin, std::min(at_once, of_rows.rows.size() - begin));
    if (part.chosen != nullptr) part.chosen += static_cast<int64_t>(begin) * shape.num_chosen;
    const SeenCopy copy{cpu, shape, tokens, part, seen, layout};
    RunLoop(cpu, kCopySeen, std::ssize(part.rows) * layout.pages_per_row,
            [&](int64_t from, int64_t to, int) {
              for (int64_t page = from; page < to; ++page) {
                copy.CopyOne(static_cast<size_t>(page / layout.pages_per_row),
                             page % layout.pages_per_row);
              }
            });
    for (size_t i = 0; i < part.rows.size(); ++i) {
      const int64_t position = part.rows[i].first_position;
      MLC_CHECK(position >= 0 && position < shape.max_positions) << position;
      sequences[i] = {.row_begin = part.rows[i].row_begin,
                      .num_rows = 1,
                      .first_position = Seen(shape, position).count() - 1,
                      .block_table = table + static_cast<int64_t>(i) * layout.pages_per_row};
    }
    AttentionArgs attention = args;
    attention.window = {};
    attention.sequences = sequences;
    attention.num_sequences = std::ssize(part.rows);
    PagedAttention(cpu, seen, attention);
  }
}

}  // namespace mlc_native::kernels
