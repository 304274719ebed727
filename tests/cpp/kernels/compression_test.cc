// Compressed attention: sums of windows in double, and AttendToEntries against attention to a
// sequence that has what a row sees alone.
#include "kernels/compression.h"

#include <array>

#include "kernels/attention_fixture.h"
#include "support/check.h"

namespace mlc_native::kernels {
namespace {

class CompressionTest : public AttentionTest {
 protected:
  // What the tokens of a sequence leave, in shuffled pages.
  struct Tokens {
    AlignedBuffer memory;
    TokenRows rows;
    std::vector<int32_t> table;
    Floats x;  // [tokens, width]
  };

  Tokens MakeTokens(int64_t count, int64_t width) {
    Tokens tokens;
    const int64_t used = (count + kPageSize - 1) / kPageSize;
    const int64_t blocks = (used + 3 + kKvBlockPages - 1) / kKvBlockPages;
    const int64_t of_block = TokenRowsBytes(kKvBlockPages, width) + 64;  // with something between
    tokens.memory = AlignedBuffer(static_cast<size_t>(blocks * of_block));
    std::memset(tokens.memory.data(), 0xff, tokens.memory.size());
    tokens.rows = {.data = reinterpret_cast<float*>(tokens.memory.data()),
                   .width = width,
                   .num_pages = blocks * kKvBlockPages,
                   .block_bytes = of_block};
    tokens.table.resize(static_cast<size_t>(tokens.rows.num_pages));
    std::iota(tokens.table.begin(), tokens.table.end(), 0);
    std::shuffle(tokens.table.begin(), tokens.table.end(), random_);
    tokens.x = Random(count * width, 3);
    std::vector<int64_t> slots;
    for (int64_t p = 0; p < count; ++p) {
      slots.push_back(tokens.table[p / kPageSize] * kPageSize + p % kPageSize);
    }
    WriteTokenRows(Threads(2), tokens.rows,
                   {.x = tokens.x.data(), .ldx = width, .m = count, .slots = slots.data()});
    return tokens;
  }

  // Windows of some tokens, of which `numbers` and `weights` begin at these columns.
  struct Windows {
    int64_t num_tokens, dim, numbers, weights;
    bool overlaps;
    Floats bias;
    std::vector<WindowEnd> ends;

    int64_t channels() const { return overlaps ? 2 * dim : dim; }
  };
  Floats Sum(const Cpu& cpu, const Tokens& tokens, const Windows& windows) {
    const auto count = static_cast<int64_t>(windows.ends.size());
    Poisoned out(count, windows.dim, 3);
    Compress(cpu, {.tokens = &tokens.rows,
                   .numbers = windows.numbers,
                   .weights = windows.weights,
                   .dim = windows.dim,
                   .num_tokens = windows.num_tokens,
                   .overlaps = windows.overlaps,
                   .bias = windows.bias.data(),
                   .ends = windows.ends.data(),
                   .num_ends = count,
                   .out = out.data.data(),
                   .ldo = out.ld});
    out.ExpectPaddingUntouched();
    return out.Dense();
  }

  static double Entry(const Tokens& tokens, const Windows& w, int64_t last, int64_t channel) {
    double total = 0, sum = 0;
    const int64_t first = last - w.num_tokens + 1;
    const int64_t from = w.overlaps && first > 0 ? first - w.num_tokens : first;
    for (int64_t p = from; p <= last; ++p) {
      const int64_t c = channel + (w.overlaps && p >= first ? w.dim : 0);
      const float* row = &tokens.x[p * tokens.rows.width];
      const double share = std::exp(static_cast<double>(row[w.weights + c]) +
                                    w.bias[p % w.num_tokens * w.channels() + c]);
      total += share;
      sum += share * row[w.numbers + c];
    }
    return sum / total;
  }
};

TEST_P(CompressionTest, EntriesAreTheSumsOfTheirWindows) {
  for (const bool overlaps : {false, true}) {
    for (const auto& [num_tokens, dim] :
         {std::pair<int64_t, int64_t>{4, 24}, {1, 7}, {24, 40}, {5, 16}, {128, 3}}) {
      const int64_t channels = overlaps ? 2 * dim : dim;
      const int64_t count = 5 * num_tokens + 3;
      const Tokens tokens = MakeTokens(count, 2 * channels + 5);
      Windows windows{.num_tokens = num_tokens,
                      .dim = dim,
                      .numbers = 2,
                      .weights = channels + 4,
                      .overlaps = overlaps,
                      .bias = Random(num_tokens * channels, 2),
                      .ends = {}};
      reference::Matrix want;
      for (const int64_t window : {3, 0, 4, 1}) {
        const int64_t last = (window + 1) * num_tokens - 1;
        windows.ends.push_back({tokens.table.data(), last});
        for (int64_t c = 0; c < dim; ++c) want.push_back(Entry(tokens, windows, last, c));
      }
      SCOPED_TRACE(testing::Message() << num_tokens << " tokens of " << dim << ' ' << overlaps);
      const Floats all = Sum(Threads(2), tokens, windows);
      ExpectClose(all, want, 3e-6);
      const Floats again = Sum(Threads(1), tokens, windows);
      EXPECT_EQ(again, all);
      windows.ends = {windows.ends[2]};
      const Floats one = Sum(Threads(1), tokens, windows);
      EXPECT_TRUE(SameBits(one.data(), &all[2 * dim], dim));
    }
  }
}

TEST_P(CompressionTest, PagesOfTokenRowsAreCopied) {
  const Tokens tokens = MakeTokens(40, 9);
  const TokenRows& rows = tokens.rows;
  const int32_t from = tokens.table[1], to = tokens.table[5];
  CopyPage(rows, from, to);
  for (int64_t token = 0; token < kPageSize; ++token) {
    EXPECT_TRUE(SameBits(rows.At(to, token), &tokens.x[(kPageSize + token) * 9], 9)) << token;
  }
  EXPECT_THROW(CopyPage(rows, from, static_cast<int32_t>(rows.num_pages)), InternalError);
}

TEST_P(CompressionTest, WindowsThatDoNotEndAreRefused) {
  const Tokens tokens = MakeTokens(40, 16);
  Windows windows{.num_tokens = 4,
                  .dim = 8,
                  .numbers = 0,
                  .weights = 8,
                  .overlaps = false,
                  .bias = Floats(32),
                  .ends = {{tokens.table.data(), 6}}};
  EXPECT_THROW(Sum(Threads(1), tokens, windows), InternalError);
}

// The same bits as attention to what a row sees as a sequence of its own.
TEST_P(CompressionTest, RowsSeeTheLastTokensAndEntries) {
  for (int trial = 0; trial < 12; ++trial) {
    Shape shape{.format = kKvFormats[trial % 4]};
    shape.q_heads = trial % 2 == 0 ? 6 : 64;
    shape.kv_heads = 1;
    shape.head_dim = std::vector<int64_t>{32, 200, 20, 64, 47}[trial % 5];
    if (trial % 3 == 0) shape.sinks = Random(shape.q_heads, 2);
    constexpr int64_t kRows = 35, kCached = 90;  // more rows than attend at once
    const bool chooses = trial % 2 == 1;
    const EntryShape sizes{.max_positions = kCached + kRows,
                           .num_tokens = std::vector<int64_t>{4, 3, 24, 7}[trial % 4],
                           .window = std::vector<int64_t>{21, 1, 16, 200}[trial / 2 % 4],
                           .num_chosen = chooses ? 6 : 0,
                           .format = shape.format,
                           .head_dim = shape.head_dim};
    std::vector<Sequence> sequences = {MakeSequence(shape, kCached, kRows)};
    Sequence& s = sequences[0];
    s.v = s.k;
    const Cache cache = MakeCache(shape, sequences);
    KvPages tokens = cache.layer;
    tokens.k_pages = nullptr;
    // Entries in pages of their own, in the slots of the same positions.
    Sequence of_entries = s;
    of_entries.k = Random(std::ssize(s.k), 2);
    RoundAsStored(shape.format, shape.head_dim, of_entries.k);
    of_entries.v = of_entries.k;
    const AlignedBuffer entry_memory(cache.v_pages.size());
    std::memset(entry_memory.data(), 0xff, entry_memory.size());
    KvPages entries = cache.layer;
    entries.k_pages = nullptr;
    entries.v_pages = entry_memory.data();
    Write(entries, of_entries);

    const int64_t width = shape.q_heads * shape.head_dim;
    std::vector<AttentionSequence> rows;
    std::vector<int32_t> chosen;
    Floats wanted;
    for (int64_t row = 0; row < kRows; ++row) {
      const int64_t position = kCached + row;
      rows.push_back({.row_begin = row,
                      .num_rows = 1,
                      .first_position = position,
                      .block_table = s.table.data()});
      std::vector<int32_t> numbers(static_cast<size_t>((position + 1) / sizes.num_tokens));
      std::iota(numbers.begin(), numbers.end(), 0);
      if (chooses && std::ssize(numbers) > sizes.num_chosen) {
        std::vector<int32_t> some;
        std::ranges::sample(numbers, std::back_inserter(some), sizes.num_chosen, random_);
        numbers = some;
      }
      std::vector<int32_t> padded = numbers;
      padded.resize(static_cast<size_t>(sizes.num_chosen), -1);
      if (chooses) chosen.insert(chosen.end(), padded.begin(), padded.end());
      Sequence alone;
      const auto copy = [&](const Floats& from, int64_t at) {
        const auto begin = from.begin() + at * shape.head_dim;
        alone.k.insert(alone.k.end(), begin, begin + shape.head_dim);
      };
      for (int64_t p = std::max<int64_t>(position - sizes.window + 1, 0); p <= position; ++p) {
        copy(s.k, p);
      }
      for (const int32_t number : numbers) copy(of_entries.k, (number + 1) * sizes.num_tokens - 1);
      alone.v = alone.k;
      alone.rows = 1;
      alone.cached = std::ssize(alone.k) / shape.head_dim - 1;
      alone.q.assign(s.q.begin() + row * width, s.q.begin() + (row + 1) * width);
      std::vector<Sequence> one = {alone};
      const Cache of_one = MakeCache(shape, one);
      const Floats out = Run(Threads(1), shape, of_one.layer, one);
      wanted.insert(wanted.end(), out.begin(), out.end());
    }
    Poisoned out(kRows, width, 5);
    const AlignedBuffer attention(AttentionWorkspaceBytes(3, shape.q_heads, 1, shape.head_dim));
    const AlignedBuffer workspace(EntryWorkspaceBytes(sizes));
    std::memset(workspace.data(), 0xff, workspace.size());
    AttendToEntries(Threads(1 + trial % 3), sizes, tokens,
                    {.q = s.q.data(),
                     .ldq = width,
                     .out = out.data.data(),
                     .ldo = out.ld,
                     .q_heads = shape.q_heads,
                     .scale = Scale(shape),
                     .sinks = shape.sinks.empty() ? nullptr : shape.sinks.data(),
                     .workspace = attention.data()},
                    {.rows = rows,
                     .entries = &entries,
                     .chosen = chooses ? chosen.data() : nullptr,
                     .workspace = workspace.data()});
    out.ExpectPaddingUntouched();
    EXPECT_EQ(out.Dense(), wanted) << "trial " << trial;
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, CompressionTest, testing::ValuesIn(IsaNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace mlc_native::kernels
