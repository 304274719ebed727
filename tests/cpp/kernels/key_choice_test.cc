// ChooseKeys against scores in double, and AttendToChosen against attention to a sequence that has
// the chosen keys alone.
#include "kernels/key_choice.h"

#include <gmock/gmock.h>

#include "kernels/attention_fixture.h"

namespace mlc_native::kernels {
namespace {

class KeyChoiceTest : public AttentionTest {
 protected:
  // An index over some rows of a sequence.
  struct Index {
    Shape shape;                     // its heads are those of the index, over one key of each token
    std::vector<Sequence> sequence;  // one
    Cache cache;
    Floats weights;
    KeyChoiceShape sizes;
  };

  Index MakeIndex(KvFormat format, int64_t heads, int64_t head_dim, int64_t num_chosen,
                  int64_t cached, int64_t rows) {
    Index index;
    index.shape = {.format = format, .q_heads = heads, .kv_heads = 1, .head_dim = head_dim};
    index.sequence = {MakeSequence(index.shape, cached, rows)};
    Remake(index);
    index.weights = Random(rows * heads);
    index.sizes = {.num_threads = 3,
                   .max_positions = cached + rows,
                   .num_chosen = num_chosen,
                   .heads = heads,
                   .head_dim = head_dim,
                   .format = format,
                   .kv_head_dim = 16};
    return index;
  }
  // Writes the keys, without values.
  void Remake(Index& index) {
    index.cache = MakeCache(index.shape, index.sequence);
    std::memset(index.cache.v_pages.data(), 0xff, index.cache.v_pages.size());
    index.cache.layer.v_pages = nullptr;
  }

  static std::vector<AttentionSequence> RowsOf(const Sequence& s, int64_t from, int64_t to) {
    std::vector<AttentionSequence> rows;
    for (int64_t row = from; row < to; ++row) {
      rows.push_back({.row_begin = row,
                      .num_rows = 1,
                      .first_position = s.cached + row,
                      .block_table = s.table.data()});
    }
    return rows;
  }

  std::vector<int32_t> Choose(const Cpu& cpu, const Index& index, int64_t from, int64_t to) {
    const std::vector<AttentionSequence> rows = RowsOf(index.sequence[0], from, to);
    std::vector<int32_t> chosen((to - from) * index.sizes.num_chosen, -1);
    const AlignedBuffer workspace(KeyChoiceWorkspaceBytes(index.sizes));
    std::memset(workspace.data(), 0xff, workspace.size());
    ChooseKeys(cpu, index.sizes, index.cache.layer,
               {.q = index.sequence[0].q.data(),
                .ldq = index.sizes.heads * index.sizes.head_dim,
                .weights = index.weights.data(),
                .ld_weights = index.sizes.heads,
                .rows = rows,
                .workspace = workspace.data(),
                .chosen = chosen.data()});
    return chosen;
  }

  static double Score(const Index& index, int64_t row, int64_t position) {
    const int64_t dim = index.sizes.head_dim;
    const Sequence& s = index.sequence[0];
    double score = 0;
    for (int64_t head = 0; head < index.sizes.heads; ++head) {
      double product = 0;
      for (int64_t d = 0; d < dim; ++d) {
        product += static_cast<double>(s.q[(row * index.sizes.heads + head) * dim + d]) *
                   s.k[position * dim + d];
      }
      score += index.weights[row * index.sizes.heads + head] * std::max(product, 0.0);
    }
    return score;
  }
};

TEST_P(KeyChoiceTest, ChoosesTheBest) {
  const std::pair<int64_t, int64_t> sizes[] = {{64, 128}, {9, 24}, {50, 20}, {1, 16}};
  for (int trial = 0; trial < 8; ++trial) {
    const KvFormat format = kKvFormats[trial % 4];
    const auto [heads, dim] = sizes[(trial + trial / 4) % 4];
    const int64_t num_chosen = RandomInt(1, 90);
    const Index index =
        MakeIndex(format, heads, dim, num_chosen, num_chosen + RandomInt(0, 1300), 20);
    SCOPED_TRACE(testing::Message()
                 << "trial " << trial << ", " << num_chosen << " of " << index.sizes.max_positions);
    const std::vector<int32_t> chosen = Choose(Threads(1 + trial % 3), index, 0, 20);
    for (int64_t row = 0; row < 20; ++row) {
      const std::vector<int32_t> of_row(chosen.begin() + row * num_chosen,
                                        chosen.begin() + (row + 1) * num_chosen);
      ASSERT_TRUE(std::ranges::is_sorted(of_row, std::ranges::less_equal()) && of_row[0] >= 0);
      ASSERT_LE(of_row.back(), index.sequence[0].cached + row);
      double least = std::numeric_limits<double>::infinity();
      double most = -least;
      double largest = 0;
      for (int64_t p = 0; p <= index.sequence[0].cached + row; ++p) {
        const double score = Score(index, row, p);
        largest = std::max(largest, std::abs(score));
        if (std::ranges::binary_search(of_row, p)) {
          least = std::min(least, score);
        } else {
          most = std::max(most, score);
        }
      }
      ASSERT_GE(least, most - Tolerance(format) * 3 * largest) << "row " << row;
    }
  }
}

TEST_P(KeyChoiceTest, ChunksBatchesAndThreadsDoNotChangeIt) {
  const Index index = MakeIndex(KvFormat::kBFloat16, 50, 64, 40, 1500, 70);
  const std::vector<int32_t> all = Choose(Threads(1), index, 0, 70);
  ASSERT_EQ(Choose(Threads(3), index, 0, 70), all);
  for (int64_t from = 0; from < 70;) {
    const int64_t to = std::min<int64_t>(70, from + RandomInt(1, 30));
    const std::vector<int32_t> part = Choose(Threads(2), index, from, to);
    ASSERT_TRUE(std::equal(part.begin(), part.end(), all.begin() + from * 40)) << from;
    from = to;
  }
}

TEST_P(KeyChoiceTest, OfEqualScoresTheEarlierOnesAreTaken) {
  Index index = MakeIndex(KvFormat::kFloat32, 4, 16, 30, 100, 1);
  Sequence& s = index.sequence[0];
  // Every third key is good, and all of them equally; the others are all below zero in all heads.
  s.q.assign(s.q.size(), 1.0f);
  for (int64_t p = 0; p <= 100; ++p) {
    for (int64_t d = 0; d < 16; ++d) s.k[p * 16 + d] = p % 3 == 0 ? 1.0f : -1.0f - 0.1f * p;
  }
  Remake(index);
  index.weights = {1, 2, 3, 4};
  std::vector<int32_t> wanted;
  for (int32_t p = 0; p < 90; p += 3) wanted.push_back(p);
  EXPECT_EQ(Choose(Threads(2), index, 0, 1), wanted);
  // Now all others are better: their scores are zeros, of either sign.
  index.weights = {-1, -2, -3, -4};
  wanted.clear();
  for (int32_t p = 0; std::ssize(wanted) < 30; ++p) {
    if (p % 3 != 0) wanted.push_back(p);
  }
  EXPECT_EQ(Choose(Threads(2), index, 0, 1), wanted);
}

// Keys of the other positions are not written, and may hold anything.
TEST_P(KeyChoiceTest, OnlyTheLastOfSomePositionsMayHaveAKey) {
  for (const int64_t step : {3, 4, 24}) {
    const int64_t num_chosen = 9, cached = 10 * step - 1;
    Index index = MakeIndex(KvFormat::kFloat32, 20, 24, num_chosen, cached, 30);
    index.sizes.step = step;
    Sequence& s = index.sequence[0];
    for (int64_t p = 0; p < cached + 30; ++p) {
      if ((p + 1) % step == 0) continue;
      std::fill_n(s.k.begin() + p * 24, 24, std::numeric_limits<float>::quiet_NaN());
    }
    Remake(index);
    const std::vector<int32_t> chosen = Choose(Threads(2), index, 0, 30);
    for (int64_t row = 0; row < 30; ++row) {
      const std::vector<int32_t> of_row(chosen.begin() + row * num_chosen,
                                        chosen.begin() + (row + 1) * num_chosen);
      std::vector<std::pair<double, int32_t>> scores;
      for (int32_t key = 0; (key + 1) * step - 1 <= cached + row; ++key) {
        scores.push_back({-Score(index, row, (key + 1) * step - 1), key});
      }
      std::ranges::sort(scores);
      std::vector<int32_t> wanted;
      for (int64_t i = 0; i < num_chosen; ++i) wanted.push_back(scores[i].second);
      std::ranges::sort(wanted);
      ASSERT_EQ(of_row, wanted) << "step " << step << " row " << row;
    }
  }
}

TEST_P(KeyChoiceTest, WhatIsNotANumberIsChosenAndHurtsNoOther) {
  Index index = MakeIndex(KvFormat::kFloat32, 4, 16, 30, 100, 2);
  index.weights[1] = std::numeric_limits<float>::quiet_NaN();  // of row 0
  index.weights[2] = std::numeric_limits<float>::infinity();
  const std::vector<int32_t> chosen = Choose(Threads(2), index, 0, 2);
  for (int row = 0; row < 2; ++row) {
    const std::vector<int32_t> of_row(chosen.begin() + row * 30, chosen.begin() + (row + 1) * 30);
    EXPECT_TRUE(std::ranges::is_sorted(of_row, std::ranges::less_equal()));
    EXPECT_TRUE(of_row.front() >= 0 && of_row.back() <= 100 + row);
  }
  index.weights[1] = index.weights[2] = 0.5f;
  const std::vector<int32_t> again = Choose(Threads(2), index, 0, 2);
  EXPECT_TRUE(std::equal(again.begin() + 30, again.end(), chosen.begin() + 30));
}

// The same bits as attention to the chosen keys as a sequence of their own.
TEST_P(KeyChoiceTest, AttendsToTheChosenAlone) {
  for (int trial = 0; trial < 8; ++trial) {
    Shape shape{.format = kKvFormats[trial % 4]};
    shape.q_heads = trial % 2 == 0 ? 6 : 100;
    shape.kv_heads = 1;
    shape.head_dim = std::vector<int64_t>{32, 200, 20, 64, 47}[trial % 5];
    const int64_t rope_dim = std::vector<int64_t>{8, 24, 0, 5}[trial % 4];
    const int64_t latent = shape.head_dim - rope_dim;
    shape.value_columns = latent;
    constexpr int64_t kRows = 35;  // more than are attended to at once
    const int64_t num_chosen = RandomInt(1, 150);
    std::vector<Sequence> sequences = {MakeSequence(shape, 400, kRows)};
    Sequence& s = sequences[0];
    for (int64_t p = 0; p < 400 + kRows; ++p) {
      const float* const key = &s.k[p * shape.head_dim];
      std::copy_n(key + rope_dim, latent, &s.v[p * shape.head_dim]);
      std::copy_n(key, rope_dim, &s.v[p * shape.head_dim + latent]);
    }
    const Cache cache = MakeCache(shape, sequences);
    const KeyChoiceShape sizes{.num_threads = 3,
                               .max_positions = 400 + kRows,
                               .num_chosen = num_chosen,
                               .heads = 1,
                               .head_dim = 16,
                               .format = shape.format,
                               .kv_head_dim = shape.head_dim,
                               .rope_dim = rope_dim};
    std::vector<int32_t> chosen;
    const int64_t width = shape.q_heads * shape.head_dim;
    Floats wanted;
    for (int64_t row = 0; row < kRows; ++row) {
      std::vector<int32_t> all(400 + row + 1);
      std::iota(all.begin(), all.end(), 0);
      std::vector<int32_t> some;
      std::ranges::sample(all, std::back_inserter(some), num_chosen, random_);
      chosen.insert(chosen.end(), some.begin(), some.end());
      Sequence alone;
      alone.cached = num_chosen - 1;
      alone.rows = 1;
      alone.q.assign(s.q.begin() + row * width, s.q.begin() + (row + 1) * width);
      for (const int32_t p : some) {
        const auto copy = [&](const Floats& from, Floats* to) {
          to->insert(to->end(), from.begin() + p * shape.head_dim,
                     from.begin() + (p + 1) * shape.head_dim);
        };
        copy(s.k, &alone.k);
        copy(s.v, &alone.v);
      }
      std::vector<Sequence> one = {alone};
      const Cache of_one = MakeCache(shape, one);
      const Floats out = Run(Threads(1), shape, of_one.layer, one);
      wanted.insert(wanted.end(), out.begin(), out.end());
    }
    Poisoned out(kRows, width, 5);
    const AlignedBuffer attention(AttentionWorkspaceBytes(3, shape.q_heads, 1, shape.head_dim));
    const AlignedBuffer workspace(KeyChoiceWorkspaceBytes(sizes));
    std::memset(workspace.data(), 0xff, workspace.size());
    const std::vector<AttentionSequence> rows = RowsOf(s, 0, kRows);
    AttendToChosen(Threads(1 + trial % 3), sizes, cache.layer,
                   {.q = s.q.data(),
                    .ldq = width,
                    .out = out.data.data(),
                    .ldo = out.ld,
                    .q_heads = shape.q_heads,
                    .scale = Scale(shape),
                    .value_columns = shape.value_columns,
                    .workspace = attention.data()},
                   {.rows = rows, .chosen = chosen.data(), .workspace = workspace.data()});
    out.ExpectPaddingUntouched();
    const Floats got = out.Dense();
    for (int64_t i = 0; i < kRows * shape.q_heads; ++i) {  // the rest of a value is not an output
      ASSERT_TRUE(SameBits(&got[i * shape.head_dim], &wanted[i * shape.head_dim], latent))
          << "trial " << trial << " head " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, KeyChoiceTest, testing::ValuesIn(IsaNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace mlc_native::kernels
