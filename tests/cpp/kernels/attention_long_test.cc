// Contexts of several segments: what one row adds up is the same for any split over threads.
#include "kernels/attention_fixture.h"

namespace mlc_native::kernels {
namespace {

class LongAttentionTest : public AttentionTest {
 protected:
  static constexpr Shape kShape = {.q_heads = 4, .kv_heads = 1, .head_dim = 32};
  static constexpr int64_t kWidth = 4 * 32;

  // Alone, in calls of `chunk` rows, on that many threads: as in `all`, bit by bit.
  void ExpectChunksLike(const Floats& all, const Shape& shape, const KvPages& layer,
                        const Sequence& s, int threads, int64_t chunk) {
    for (int64_t from = 0; from < s.rows; from += chunk) {
      const int64_t to = std::min(s.rows, from + chunk);
      const Floats part = Run(Threads(threads), shape, layer, {Slice(shape, s, from, to)});
      ASSERT_TRUE(SameBits(part.data(), &all[from * kWidth], (to - from) * kWidth))
          << threads << " threads, rows " << from << " to " << to << " after " << s.cached;
    }
  }
};

TEST_P(LongAttentionTest, MatchesReference) {
  const std::vector<std::pair<int64_t, int64_t>> lengths = {{1000, 1},  {1023, 1},  {1024, 1},
                                                            {1015, 20}, {2040, 14}, {4999, 1}};
  for (size_t trial = 0; trial < 4 * lengths.size(); ++trial) {
    const auto [cached, rows] = lengths[trial % lengths.size()];
    Shape shape = kShape;
    shape.format = kKvFormats[trial / lengths.size()];
    if (trial % 5 == 4) shape.window = AttentionWindow(RandomInt(700, 1500), trial % 2 == 0);
    shape.soft_cap = trial % 7 == 6 ? 2.0f : 0.0f;
    SCOPED_TRACE(testing::Message() << "trial " << trial);
    std::vector<Sequence> sequences = {MakeSequence(shape, cached, rows)};
    const Cache cache = MakeCache(shape, sequences);
    const Floats got = Run(Threads(1 + static_cast<int>(trial % 3)), shape, cache.layer, sequences);
    ExpectClose(got, Truth(shape, sequences[0]), Tolerance(shape.format));
  }
}

TEST_P(LongAttentionTest, ChunksAndThreadsDoNotChangeABit) {
  for (KvFormat format : kKvFormats) {
    SCOPED_TRACE(static_cast<int>(format));
    Shape shape = kShape;
    shape.format = format;
    // Rows on both sides of the ends of segments, 5 blocks of them: 3 and 8 threads split those.
    std::vector<Sequence> sequences = {MakeSequence(shape, 1010, 27),
                                       MakeSequence(shape, 2040, 27)};
    const Cache cache = MakeCache(shape, sequences);
    for (const Sequence& s : sequences) {
      const Floats all = Run(Threads(1), shape, cache.layer, {s});
      ExpectChunksLike(all, shape, cache.layer, s, 1, 1);
      ExpectChunksLike(all, shape, cache.layer, s, 2, 5);
      ExpectChunksLike(all, shape, cache.layer, s, 3, 11);
      ExpectChunksLike(all, shape, cache.layer, s, 8, 13);
      ExpectChunksLike(all, shape, cache.layer, s, 8, s.rows);
    }
  }
}

TEST_P(LongAttentionTest, SequencesOfAnyLengthsShareTheThreads) {
  std::vector<Sequence> sequences = {MakeSequence(kShape, 20, 2), MakeSequence(kShape, 3100, 1),
                                     MakeSequence(kShape, 1022, 5)};
  const Cache cache = MakeCache(kShape, sequences);
  const Floats all = Run(Threads(1), kShape, cache.layer, sequences);
  for (int threads : {2, 3, 8}) {
    ASSERT_EQ(Run(Threads(threads), kShape, cache.layer, sequences), all) << threads;
  }
  int64_t row = 0;
  for (const Sequence& s : sequences) {
    const Floats alone = Run(Threads(3), kShape, cache.layer, {s});
    EXPECT_TRUE(SameBits(alone.data(), &all[row * kWidth], s.rows * kWidth));
    row += s.rows;
  }
}

TEST_P(LongAttentionTest, AsManyWavesAsItTakes) {
  // Two threads hold 8 states: 2 segments of each of 3 blocks at a time, or 8 of one block.
  const std::vector<std::pair<int64_t, int64_t>> lengths = {{5110, 17}, {9300, 1}};
  for (const auto& [cached, rows] : lengths) {
    std::vector<Sequence> sequences = {MakeSequence(kShape, cached, rows)};
    const Cache cache = MakeCache(kShape, sequences);
    const Floats all = Run(Threads(1), kShape, cache.layer, sequences);
    ASSERT_EQ(Run(Threads(2), kShape, cache.layer, sequences), all);
    ASSERT_EQ(Run(Threads(8), kShape, cache.layer, sequences), all);
    ExpectClose(all, Truth(kShape, sequences[0]), Tolerance(kShape.format));
  }
}

TEST_P(LongAttentionTest, WindowsThatBeginInsideASegment) {
  for (int64_t window : {3, 1000, 1024, 1030, 1700}) {
    SCOPED_TRACE(window);
    Shape shape = kShape;
    shape.window = window;
    // The first row's window begins 10 positions before a segment, the last one's after that.
    std::vector<Sequence> sequences = {MakeSequence(shape, 2048 - 11 + window, 24)};
    Cache cache = MakeCache(shape, sequences);
    const Floats all = Run(Threads(1), shape, cache.layer, sequences);
    ExpectClose(all, Truth(shape, sequences[0]), Tolerance(shape.format));
    // Slots and page numbers that no row attends can be anything.
    for (int64_t page = 0; page < 2038 / kPageSize; ++page) sequences[0].table[page] = -1000000;
    for (int threads : {1, 2, 8}) {
      ASSERT_EQ(Run(Threads(threads), shape, cache.layer, sequences), all) << threads;
      ExpectChunksLike(all, shape, cache.layer, sequences[0], threads, 1);
      ExpectChunksLike(all, shape, cache.layer, sequences[0], threads, 7);
    }
  }
}

// Segments without a finite score are not mistaken for segments without a key.
TEST_P(LongAttentionTest, NotANumberSurvivesTheSegmentsAfterIt) {
  for (int64_t segment : {0, 1, 2}) {
    std::vector<Sequence> sequences = {MakeSequence(kShape, 2500, 2)};
    Floats& k = sequences[0].k;
    const auto end = std::min<size_t>(k.size(), (segment + 1) * 1024 * kShape.head_dim);
    std::fill(k.begin() + segment * 1024 * kShape.head_dim, k.begin() + end,
              std::numeric_limits<float>::quiet_NaN());
    const Cache cache = MakeCache(kShape, sequences);
    for (int threads : {1, 2}) {
      for (float x : Run(Threads(threads), kShape, cache.layer, sequences)) {
        ASSERT_TRUE(std::isnan(x)) << "segment " << segment << ", " << threads << " threads";
      }
    }
  }
}

// Maxima that rise and fall by more than a float's exponent holds from segment to segment.
TEST_P(LongAttentionTest, LargeScoresDoNotOverflow) {
  std::vector<Sequence> sequences = {MakeSequence(kShape, 3500, 2)};
  for (float& x : sequences[0].q) x *= 300;
  const Cache cache = MakeCache(kShape, sequences);
  const Floats all = Run(Threads(2), kShape, cache.layer, sequences);
  ExpectClose(all, Truth(kShape, sequences[0]), 3e-4);
  ASSERT_EQ(Run(Threads(1), kShape, cache.layer, sequences), all);
}

INSTANTIATE_TEST_SUITE_P(Isa, LongAttentionTest, testing::ValuesIn(IsaNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace mlc_native::kernels
