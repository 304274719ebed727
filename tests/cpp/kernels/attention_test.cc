#include "kernels/attention_fixture.h"

namespace mlc_native::kernels {
namespace {

TEST(AttentionWindowTest, FirstKeyOfARow) {
  const auto firsts = [](AttentionWindow window) {
    std::vector<int64_t> all;
    for (int64_t position = 0; position < 8; ++position) all.push_back(window.First(position));
    return all;
  };
  EXPECT_EQ(firsts({}), std::vector<int64_t>(8, 0));
  EXPECT_EQ(firsts(3), (std::vector<int64_t>{0, 0, 0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(firsts({3, true}), (std::vector<int64_t>{0, 0, 0, 3, 3, 3, 6, 6}));
  EXPECT_EQ(firsts({1, true}), firsts(1));
}

TEST(AttentionWindowTest, LastKeyOfARow) {
  const auto lasts = [](AttentionWindow window, int64_t last_key) {
    std::vector<int64_t> all;
    for (int64_t position = 0; position < 6; ++position) {
      all.push_back(window.Last(position, last_key));
    }
    return all;
  };
  EXPECT_EQ(lasts({}, 0), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(lasts({}, 4), (std::vector<int64_t>{4, 4, 4, 4, 4, 5}));
  EXPECT_EQ(lasts(3, 4), (std::vector<int64_t>{2, 3, 4, 4, 4, 5}));
  EXPECT_EQ(lasts(1, 4), lasts(1, 0));
  EXPECT_EQ(lasts({3, true}, 4), lasts({}, 4));
}

TEST(DistanceBias, ReadsAnyPlaceOfATable) {
  const std::vector<float> table = PadDistances(Floats{1, 2, 3, 4, 5, -1, -2, -3, -4, -5}, 2, 2);
  const DistanceBias bias{.table = table.data(), .reach = 2};
  for (const int64_t head : {0, 1}) {
    for (int64_t first = -60; first <= 60; ++first) {
      for (int64_t i = 0; i < kDistancePadding; ++i) {
        const auto want = static_cast<float>(std::clamp<int64_t>(first + i, -2, 2) + 3);
        ASSERT_EQ(bias.Entries(head, first)[i], head == 0 ? want : -want) << first << " + " << i;
        ASSERT_EQ(bias.From(head).Entries(0, first)[i], bias.Entries(head, first)[i]);
      }
    }
  }
  EXPECT_FALSE(DistanceBias{});
  EXPECT_TRUE(bias);
}

TEST_P(AttentionTest, MatchesReference) {
  const std::vector<std::pair<int64_t, int64_t>> heads = {{4, 2}, {8, 1}, {3, 3}, {14, 2}, {32, 1}};
  for (int trial = 0; trial < 40; ++trial) {
    Shape shape;
    shape.format = kKvFormats[trial % 4];
    std::tie(shape.q_heads, shape.kv_heads) = heads[trial % heads.size()];
    shape.head_dim = std::vector<int64_t>{32, 64, 6, 20, 128, 80, 7, 200, 328}[trial % 9];
    if (trial % 5 == 1) shape.soft_cap = 2.0f;
    if (trial % 3 == 1) shape.window = AttentionWindow(RandomInt(1, 150), trial % 2 == 0);
    if (trial % 4 >= 2) shape.sinks = Random(shape.q_heads, 6.0f);
    if (trial % 3 == 0) AddDistances(trial, &shape);
    std::vector<Sequence> sequences;
    for (int i = 0; i < 3; ++i) {
      const int64_t cached = i == 0 ? 0 : RandomInt(0, 300);
      sequences.push_back(MakeSequence(shape, cached, i == 2 ? 1 : RandomInt(1, 60)));
      Sequence& s = sequences.back();
      if (trial % 7 == 3) s.last_key = s.cached + s.rows - 1;
      if (trial % 7 == 5) s.last_key = s.cached + RandomInt(0, s.rows - 1);
    }
    SCOPED_TRACE(testing::Message() << "trial " << trial);
    const Cache cache = MakeCache(shape, sequences);
    const Floats got = Run(Threads(1 + trial % 3), shape, cache.layer, sequences);
    reference::Matrix want;
    for (const Sequence& s : sequences) {
      const reference::Matrix part = Truth(shape, s);
      want.insert(want.end(), part.begin(), part.end());
    }
    ExpectClose(got, want, Tolerance(shape.format));
  }
}

TEST_P(AttentionTest, ChunksBatchesAndThreadsDoNotChangeABit) {
  for (int trial = 0; trial < 12; ++trial) {
    Shape shape;
    shape.format = kKvFormats[trial % 4];
    shape.q_heads = trial % 2 == 0 ? 4 : 6;
    shape.soft_cap = trial % 5 == 2 ? 5.0f : 0.0f;
    if (trial % 3 == 2) shape.window = AttentionWindow(RandomInt(1, 170), trial % 2 == 0);
    if (trial % 4 == 1) shape.sinks = Random(shape.q_heads, 3.0f);
    if (trial % 2 == 1) AddDistances(trial, &shape);
    const int64_t width = shape.q_heads * shape.head_dim;
    std::vector<Sequence> sequences = {MakeSequence(shape, 37, 200), MakeSequence(shape, 150, 1),
                                       MakeSequence(shape, 0, 33)};
    if (trial % 4 >= 2) {
      for (Sequence& s : sequences) s.last_key = s.cached + s.rows - 1;
    }
    const Cache cache = MakeCache(shape, sequences);
    const Floats all = Run(Threads(1), shape, cache.layer, sequences);
    for (int threads : {2, 3}) {
      ASSERT_EQ(Run(Threads(threads), shape, cache.layer, sequences), all);
    }
    for (int64_t from = 0; from < sequences[0].rows;) {
      const int64_t to = std::min(sequences[0].rows, from + RandomInt(1, 40));
      const std::vector<Sequence> alone = {Slice(shape, sequences[0], from, to)};
      const Floats part = Run(Threads(1 + static_cast<int>(from) % 3), shape, cache.layer, alone);
      ASSERT_TRUE(SameBits(part.data(), &all[from * width], (to - from) * width))
          << "trial " << trial << " rows " << from << " to " << to;
      from = to;
    }
    // In another order, the single row first.
    const std::vector<Sequence> turned = {sequences[1], sequences[2], sequences[0]};
    const Floats other = Run(Threads(2), shape, cache.layer, turned);
    ASSERT_TRUE(SameBits(other.data(), &all[200 * width], 34 * width));
    ASSERT_TRUE(SameBits(&other[34 * width], all.data(), 200 * width));
  }
}

// Threads then share the query heads of a KV head, of which a block has 48 at most.
TEST_P(AttentionTest, ManyHeadsOfOneKvHeadAreSharedAmongThreads) {
  const Shape shapes[] = {{.q_heads = 16, .kv_heads = 1, .head_dim = 328},
                          {.q_heads = 100, .kv_heads = 1, .head_dim = 32},
                          {.q_heads = 14, .kv_heads = 2, .head_dim = 20}};
  for (int trial = 0; trial < 12; ++trial) {
    Shape shape = shapes[trial % 3];
    shape.format = kKvFormats[trial % 4];
    if (trial % 2 == 1) shape.sinks = Random(shape.q_heads, 3.0f);
    if (trial % 4 == 2) shape.window = 70;
    SCOPED_TRACE(testing::Message() << "trial " << trial);
    const int64_t width = shape.q_heads * shape.head_dim;
    std::vector<Sequence> sequences = {MakeSequence(shape, 150, 1), MakeSequence(shape, 0, 5),
                                       MakeSequence(shape, 1030, 2), MakeSequence(shape, 3, 1)};
    const Cache cache = MakeCache(shape, sequences);
    const Floats all = Run(Threads(1), shape, cache.layer, sequences);
    reference::Matrix want;
    for (const Sequence& s : sequences) {
      const reference::Matrix part = Truth(shape, s);
      want.insert(want.end(), part.begin(), part.end());
    }
    ExpectClose(all, want, Tolerance(shape.format));
    for (int threads : {2, 3, 8}) {
      ASSERT_EQ(Run(Threads(threads), shape, cache.layer, sequences), all) << threads;
      int64_t row = 0;
      for (const Sequence& s : sequences) {
        const Floats alone = Run(Threads(threads), shape, cache.layer, {s});
        ASSERT_TRUE(SameBits(alone.data(), &all[row * width], s.rows * width)) << "row " << row;
        row += s.rows;
      }
    }
  }
}

// As rows of a text see all others, and as rows see those before them in a window.
TEST_P(AttentionTest, VectorsOfDistancesMatchTheReference) {
  for (int trial = 0; trial < 24; ++trial) {
    Shape shape;
    shape.format = kKvFormats[trial % 3 == 0 ? 0 : trial % 4];
    shape.q_heads = trial % 5 == 4 ? 6 : 3;
    shape.kv_heads = 3;
    shape.head_dim = std::vector<int64_t>{32, 6, 64, 20, 7}[trial % 5];
    if (trial % 6 == 5) shape.soft_cap = 2.0f;
    if (trial % 7 == 3) shape.window = 70;
    AddVectors(trial, &shape);
    SCOPED_TRACE(testing::Message() << "trial " << trial);
    std::vector<Sequence> sequences = {MakeSequence(shape, 0, RandomInt(1, 160)),
                                       MakeSequence(shape, RandomInt(1, 150), 33),
                                       MakeSequence(shape, 0, 1)};
    for (Sequence& s : sequences) {
      if (trial % 2 == 0) s.last_key = s.cached + s.rows - 1;
    }
    const Cache cache = MakeCache(shape, sequences);
    const Floats all = Run(Threads(1), shape, cache.layer, sequences);
    reference::Matrix want;
    for (const Sequence& s : sequences) {
      const reference::Matrix part = Truth(shape, s);
      want.insert(want.end(), part.begin(), part.end());
    }
    ExpectClose(all, want, shape.format == KvFormat::kFloat32 ? 1e-5 : Tolerance(shape.format));
    const int64_t width = shape.q_heads * shape.head_dim;
    for (const int threads : {2, 3}) {
      ASSERT_EQ(Run(Threads(threads), shape, cache.layer, sequences), all) << threads;
    }
    for (int64_t from = 0; from < sequences[0].rows;) {
      const int64_t to = std::min(sequences[0].rows, from + RandomInt(1, 40));
      const std::vector<Sequence> alone = {Slice(shape, sequences[0], from, to)};
      const Floats part = Run(Threads(1 + trial % 3), shape, cache.layer, alone);
      ASSERT_TRUE(SameBits(part.data(), &all[from * width], (to - from) * width)) << from;
      from = to;
    }
  }
}

// Threads then share the segments of a context.
TEST_P(AttentionTest, VectorsOfDistancesInSegments) {
  for (const KvFormat format : kKvFormats) {
    Shape shape{.format = format, .q_heads = 1, .kv_heads = 1};
    AddVectors(0, &shape);
    std::vector<Sequence> sequences = {MakeSequence(shape, 2100, 3)};
    sequences[0].last_key = 2102;
    const Cache cache = MakeCache(shape, sequences);
    const Floats alone = Run(Threads(1), shape, cache.layer, sequences);
    ExpectClose(alone, Truth(shape, sequences[0]),
                format == KvFormat::kFloat32 ? 1e-5 : Tolerance(format));
    for (const int threads : {3, 8}) {
      ASSERT_EQ(Run(Threads(threads), shape, cache.layer, sequences), alone) << threads;
    }
  }
}

TEST_P(AttentionTest, ValuesThatAreZeroChangeNoBitIfTheyAreLeftOut) {
  for (const KvFormat format : kKvFormats) {
    Shape shape{.format = format, .q_heads = 16, .kv_heads = 1, .head_dim = 200};
    const int64_t columns = 136;
    std::vector<Sequence> sequences = {MakeSequence(shape, 1100, 1), MakeSequence(shape, 30, 70)};
    for (Sequence& s : sequences) {
      for (size_t i = 0; i < s.v.size(); ++i) {
        if (static_cast<int64_t>(i) % shape.head_dim >= columns) s.v[i] = 0;
      }
    }
    const Cache cache = MakeCache(shape, sequences);
    const Floats all = Run(Threads(1), shape, cache.layer, sequences);
    shape.value_columns = columns;
    for (int threads : {1, 3}) {
      const Floats got = Run(Threads(threads), shape, cache.layer, sequences);
      ASSERT_TRUE(SameBits(got.data(), all.data(), all.size())) << KvFormatName(format);
    }
  }
}

TEST_P(AttentionTest, ItsMemoryEndsAtFortyEightHeadsOfAKvHead) {
  const size_t most = AttentionWorkspaceBytes(2, 48, 1, 576);
  EXPECT_EQ(AttentionWorkspaceBytes(2, 128, 1, 576), most);
  EXPECT_LT(AttentionWorkspaceBytes(2, 40, 1, 576), most);
}

TEST_P(AttentionTest, ValuesOfLaterPositionsDoNotReachEarlierRows) {
  for (KvFormat format : kKvFormats) {
    SCOPED_TRACE(static_cast<int>(format));
    Shape shape;
    shape.format = format;
    std::vector<Sequence> sequences = {MakeSequence(shape, 5, 40)};
    Cache cache = MakeCache(shape, sequences);
    const Floats before = Run(Threads(1), shape, cache.layer, sequences);
    const int64_t kv_width = shape.kv_heads * shape.head_dim;
    const int64_t changed = 31;  // position, row 26; second of a pair of tokens
    for (Floats* values : {&sequences[0].k, &sequences[0].v}) {
      for (int64_t i = 0; i < kv_width; i += 3) {
        (*values)[changed * kv_width + i] = std::numeric_limits<float>::infinity();
      }
    }
    Write(cache.layer, sequences[0]);
    const Floats after = Run(Threads(1), shape, cache.layer, sequences);
    const int64_t width = shape.q_heads * shape.head_dim;
    EXPECT_TRUE(SameBits(after.data(), before.data(), 26 * width));
    for (int64_t head = 0; head < shape.q_heads; ++head) {
      EXPECT_FALSE(std::isfinite(after[26 * width + head * shape.head_dim]));
    }
  }
}

TEST_P(AttentionTest, PagesOutsideTheWindowAreNotRead) {
  Shape shape;
  shape.window = 20;
  std::vector<Sequence> sequences = {MakeSequence(shape, 400, 3)};
  const Cache cache = MakeCache(shape, sequences);
  const Floats before = Run(Threads(1), shape, cache.layer, sequences);
  // Positions 381 .. 402 are attended: pages 23 .. 25.
  for (int64_t page = 0; page < 23; ++page) sequences[0].table[page] = -1000000;
  EXPECT_EQ(Run(Threads(1), shape, cache.layer, sequences), before);
}

TEST_P(AttentionTest, LargeScoresDoNotOverflow) {
  Shape shape;
  std::vector<Sequence> sequences = {MakeSequence(shape, 100, 2)};
  for (float& x : sequences[0].q) x *= 300;
  const Cache cache = MakeCache(shape, sequences);
  ExpectClose(Run(Threads(1), shape, cache.layer, sequences), Truth(shape, sequences[0]), 3e-4);
}

// However far a sink is above or below the scores, nothing overflows and nothing gets lost.
TEST_P(AttentionTest, SinksOfAnySize) {
  Shape shape;
  shape.sinks = {-300.0f, 300.0f, 0.0f, -std::numeric_limits<float>::infinity()};
  std::vector<Sequence> sequences = {MakeSequence(shape, 20, 2)};
  const Cache cache = MakeCache(shape, sequences);
  const Floats got = Run(Threads(1), shape, cache.layer, sequences);
  ExpectClose(got, Truth(shape, sequences[0]), 3e-6);
  const auto head = [&](int64_t h) { return got[h * shape.head_dim]; };
  EXPECT_EQ(head(1), 0.0f);
  shape.sinks = {};
  const Floats without = Run(Threads(1), shape, cache.layer, sequences);
  EXPECT_EQ(head(0), without[0]);
  EXPECT_EQ(head(3), without[3 * shape.head_dim]);
  EXPECT_NE(head(2), without[2 * shape.head_dim]);
}

INSTANTIATE_TEST_SUITE_P(Isa, AttentionTest, testing::ValuesIn(IsaNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace mlc_native::kernels
