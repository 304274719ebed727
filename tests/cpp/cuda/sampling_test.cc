#include <algorithm>
#include <deque>
#include <numeric>
#include <optional>

#include "cuda/test_util.h"
#include "sampling/logit_processor.h"
#include "support/random.h"

namespace mlc_native::kernels::cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A row's settings, and what of it lies on the device.
struct Row {
  Floats logits;
  SamplingRow settings{};
  std::vector<int32_t> bias_ids{};
  Floats bias_values{};
  std::vector<int32_t> counts{};  // of each token; empty: none
  std::optional<int32_t> pending{};
  std::vector<bool> allowed{};  // empty: all
  int32_t position = 0;
};

struct Sampled {
  int32_t token;
  float logprob;
  std::vector<int32_t> top_ids;
  Floats top_logprobs;
  Floats logits;  // with bias, penalties and mask
};

class SamplingTest : public CudaKernelTest {
 protected:
  Row RandomRow(int64_t vocab, float amplitude = 8) {
    return {.logits = Random(DType::kFloat32, vocab, amplitude)};
  }

  static std::vector<Sampled> Sample(const std::vector<Row>& rows) {
    const auto m = static_cast<int64_t>(rows.size());
    const auto vocab = static_cast<int64_t>(rows[0].logits.size());
    const int64_t ld = (vocab + 3) / 4 * 4;
    Floats logits(m * ld, std::numeric_limits<float>::quiet_NaN());
    std::deque<DeviceArray<int32_t>> ints;
    std::deque<DeviceArray<float>> floats;
    std::vector<SamplingRow> settings;
    std::vector<int32_t> positions;
    for (int64_t i = 0; i < m; ++i) {
      const Row& row = rows[i];
      std::copy(row.logits.begin(), row.logits.end(), &logits[i * ld]);
      SamplingRow s = row.settings;
      s.num_bias = static_cast<int32_t>(row.bias_ids.size());
      s.bias_ids = ints.emplace_back(row.bias_ids).data();
      s.bias_values = floats.emplace_back(row.bias_values).data();
      std::vector<int32_t> ids, counts;
      for (size_t id = row.counts.size(); id-- > 0;) {  // in any order
        if (row.counts[id] == 0) continue;
        ids.push_back(static_cast<int32_t>(id));
        counts.push_back(row.counts[id]);
      }
      s.num_counts = static_cast<int32_t>(ids.size());
      s.count_ids = ints.emplace_back(ids).data();
      s.count_values = ints.emplace_back(counts).data();
      if (row.pending) s.pending = ints.emplace_back(std::vector{*row.pending}).data();
      s.mask = row.allowed.empty() ? nullptr : ints.emplace_back(Mask(row.allowed)).data();
      settings.push_back(s);
      positions.push_back(row.position);
    }
    DeviceArray<float> device_logits(logits), logprobs(m), top_logprobs(m * kMaxTopLogprobs);
    DeviceArray<SamplingRow> device_rows(settings);
    DeviceArray<int32_t> device_positions(positions), tokens(m), top_ids(m * kMaxTopLogprobs);
    DeviceArray<uint8_t> workspace(SampleWorkspaceBytes(m, vocab));
    SampleTokens({.logits = device_logits.data(),
                  .ld = ld,
                  .m = m,
                  .vocab = vocab,
                  .rows = device_rows.data(),
                  .positions = device_positions.data(),
                  .tokens = tokens.data(),
                  .logprobs = logprobs.data(),
                  .top_ids = top_ids.data(),
                  .top_logprobs = top_logprobs.data(),
                  .workspace = workspace.data()},
                 nullptr);
    std::vector<Sampled> sampled;
    const auto got_tokens = tokens.Download();
    const auto got_logprobs = logprobs.Download();
    const auto ids = top_ids.Download();
    const auto values = top_logprobs.Download();
    const auto changed = device_logits.Download();
    for (int64_t i = 0; i < m; ++i) {
      const int64_t at = i * kMaxTopLogprobs;
      sampled.push_back({got_tokens[i],
                         got_logprobs[i],
                         {ids.begin() + at, ids.begin() + at + kMaxTopLogprobs},
                         {values.begin() + at, values.begin() + at + kMaxTopLogprobs},
                         {changed.begin() + i * ld, changed.begin() + i * ld + vocab}});
    }
    return sampled;
  }

  static std::vector<int32_t> Mask(const std::vector<bool>& allowed) {
    std::vector<int32_t> words((allowed.size() + 31) / 32);
    for (size_t i = 0; i < allowed.size(); ++i) {
      if (allowed[i]) words[i / 32] = static_cast<int32_t>(words[i / 32] | 1u << i % 32);
    }
    return words;
  }

  // The logits that are sampled from, in double.
  static std::vector<double> Processed(const Row& row) {
    std::vector<double> x(row.logits.begin(), row.logits.end());
    for (size_t i = 0; i < row.bias_ids.size(); ++i) x[row.bias_ids[i]] += row.bias_values[i];
    for (size_t i = 0; i < x.size(); ++i) {
      const int count = (row.counts.empty() ? 0 : row.counts[i]) +
                        (row.pending == static_cast<int32_t>(i) ? 1 : 0);
      if (count == 0 || std::isinf(x[i])) continue;
      x[i] -= row.settings.presence_penalty + count * row.settings.frequency_penalty;
      const double r = row.settings.repetition_penalty;
      x[i] = x[i] > 0 ? x[i] / r : x[i] * r;
    }
    for (size_t i = 0; i < row.allowed.size(); ++i) {
      if (!row.allowed[i]) x[i] = -kInfinity;
    }
    return x;
  }

  // Ids from the best to the worst.
  static std::vector<int32_t> Ranked(const std::vector<double>& x) {
    std::vector<int32_t> ids(x.size());
    std::iota(ids.begin(), ids.end(), 0);
    std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return x[a] > x[b]; });
    return ids;
  }

  // Probabilities after truncation.
  static std::vector<double> Probabilities(const Row& row) {
    const std::vector<double> x = Processed(row);
    std::vector<int32_t> ids = Ranked(x);
    const double max = x[ids[0]];
    std::vector<double> weights(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      weights[i] = std::exp((x[i] - max) * row.settings.inverse_temperature);
    }
    if (row.settings.top_k > 0) {
      ids.resize(std::min(ids.size(), static_cast<size_t>(row.settings.top_k)));
    }
    double total = 0;
    for (int32_t id : ids) total += weights[id];
    double kept = 0;
    std::vector<double> p(x.size());
    for (int32_t id : ids) {
      if (row.settings.top_p < 1 && kept >= row.settings.top_p * total) break;
      kept += weights[id];
      if (weights[id] >= row.settings.min_p) p[id] = weights[id];
    }
    const double sum = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& value : p) value /= sum;
    return p;
  }

  // That the token is the one whose share of [0, 1) the draw falls into.
  static void ExpectDrawn(const Row& row, int32_t token) {
    const std::vector<double> p = Probabilities(row);
    ASSERT_GE(token, 0);
    ASSERT_GT(p[token], 0) << token;
    const double before = std::accumulate(p.begin(), p.begin() + token, 0.0);
    const double u = RandomUniform(row.settings.seed, row.settings.sequence, row.position);
    ASSERT_GE(u, before - 1e-5);
    ASSERT_LE(u, before + p[token] + 1e-5);
  }
};

TEST_F(SamplingTest, GreedyTakesTheFirstOfTheBest) {
  for (int64_t vocab : {1, 5, 1024, 1025, 3000}) {
    Row row = RandomRow(vocab);
    row.settings.greedy = true;
    const auto best = std::max_element(row.logits.begin(), row.logits.end());
    const auto token = static_cast<int32_t>(best - row.logits.begin());
    EXPECT_EQ(Sample({row})[0].token, token);
    row.logits.back() = *best;
    EXPECT_EQ(Sample({row})[0].token, token);
  }
}

TEST_F(SamplingTest, DrawsAsTheSettingsSay) {
  for (int64_t vocab : {7, 1000, 5003}) {
    std::vector<Row> rows;
    for (int i = 0; i < 10; ++i) {
      Row row = RandomRow(vocab, i % 2 == 0 ? 2.0f : 12.0f);
      row.settings.seed = 100 + i;
      row.settings.sequence = i % 3;
      row.position = static_cast<int32_t>(RandomInt(0, 1000));
      row.settings.inverse_temperature = 1.0f / static_cast<float>(RandomInt(1, 20)) * 10;
      if (i % 5 == 1) row.settings.top_k = static_cast<int32_t>(RandomInt(2, 6));
      if (i % 5 == 2) row.settings.top_p = 0.9f;
      if (i % 5 == 3) row.settings.min_p = 0.05f;
      if (i % 5 == 4) {
        row.settings.top_k = 400;
        row.settings.top_p = 0.7f;
        row.settings.min_p = 0.01f;
      }
      rows.push_back(row);
    }
    const auto sampled = Sample(rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      SCOPED_TRACE(i);
      ExpectDrawn(rows[i], sampled[i].token);
    }
  }
}

TEST_F(SamplingTest, FlatRowsKeepThousands) {
  Row row = RandomRow(20000, 0.01f);
  row.settings.top_p = 0.95f;
  row.settings.seed = 3;
  ExpectDrawn(row, Sample({row})[0].token);
}

TEST_F(SamplingTest, MoreEqualTokensThanAListHolds) {
  Row row{.logits = Floats(20000, 0.5f)};
  for (size_t i = 0; i < row.logits.size(); i += 3) row.logits[i] = -kInfinity;
  row.logits[13000] = 2.0f;
  std::vector<Row> rows(8, row);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].settings.seed = i;
    rows[i].settings.min_p = i % 2 == 0 ? 0.0f : 0.1f;
    if (i < 6) rows[i].settings.top_k = 7001;
    if (i > 2) rows[i].settings.top_p = 0.6f;
  }
  const auto sampled = Sample(rows);
  for (size_t i = 0; i < rows.size(); ++i) ExpectDrawn(rows[i], sampled[i].token);
}

TEST_F(SamplingTest, ARowIsTheSameInEveryBatch) {
  // A row has fewer blocks where there are many rows.
  std::vector<Row> rows;
  for (int i = 0; i < 40; ++i) {
    Row row = RandomRow(9001, i % 2 == 0 ? 3.0f : 10.0f);
    row.settings.seed = i;
    row.settings.logprobs = i % 4 == 0;
    if (i % 3 == 1) row.settings.top_p = 0.9f;
    if (i % 3 == 2) row.settings.top_k = 1 + 30 * i;
    rows.push_back(row);
  }
  const auto sampled = Sample(rows);
  for (size_t i = 0; i < rows.size(); i += 3) {
    SCOPED_TRACE(i);
    ExpectDrawn(rows[i], sampled[i].token);
    const Sampled alone = Sample({rows[i]})[0];
    EXPECT_EQ(alone.token, sampled[i].token);
    if (!rows[i].settings.logprobs) continue;
    EXPECT_EQ(alone.logprob, sampled[i].logprob);
    EXPECT_EQ(alone.top_ids, sampled[i].top_ids);
    EXPECT_EQ(alone.top_logprobs, sampled[i].top_logprobs);
  }
}

TEST_F(SamplingTest, TiesAtACutGoToTheLowestIds) {
  // Of the value 1 two are kept: ids 1 and 3; with the 2 of id 2100.
  Row row{.logits = Floats(2200, 0.0f)};
  for (int32_t id : {1, 3, 1500, 2150}) row.logits[id] = 1;
  row.logits[2100] = 2;
  row.settings.top_k = 3;
  std::vector<Row> rows(30, row);
  for (size_t i = 0; i < rows.size(); ++i) rows[i].settings.seed = i;
  std::vector<int> seen(2200);
  for (const Sampled& sampled : Sample(rows)) ++seen[sampled.token];
  EXPECT_GT(seen[1], 0);
  EXPECT_GT(seen[3], 0);
  EXPECT_GT(seen[2100], 0);
  EXPECT_EQ(seen[1] + seen[3] + seen[2100], 30);
}

TEST_F(SamplingTest, TiesBeforeABetterTokenOfTheSamePiece) {
  // A piece of the last walk is 69 tokens here, looked at 32 at a time: ids 0, 40 and 65 are kept.
  Row row{.logits = Floats(70000, -1.0f)};
  for (int32_t id : {0, 40, 60, 68}) row.logits[id] = 1;
  row.logits[65] = 2;
  row.settings.top_k = 3;
  std::vector<Row> rows(16, row);
  for (size_t i = 0; i < rows.size(); ++i) rows[i].settings.seed = i;
  for (const Sampled& sampled : Sample(rows)) {
    EXPECT_TRUE(sampled.token == 0 || sampled.token == 40 || sampled.token == 65) << sampled.token;
  }
}

TEST_F(SamplingTest, BiasPenaltiesAndMaskComeFirst) {
  for (bool greedy : {true, false}) {
    Row row = RandomRow(1500);
    row.settings.greedy = greedy;
    row.settings.seed = 5;
    row.settings.presence_penalty = 1.5f;
    row.settings.frequency_penalty = 0.5f;
    row.settings.repetition_penalty = 1.25f;
    row.bias_ids = {3, 1400, 77};
    row.bias_values = {4, -3, 100};
    row.counts.resize(1500);
    for (int32_t& count : row.counts) count = RandomInt(0, 9) == 0 ? 2 : 0;
    row.allowed.resize(1500);
    for (size_t i = 0; i < row.allowed.size(); ++i) row.allowed[i] = RandomInt(0, 1) == 1;
    row.allowed[77] = false;
    const Sampled sampled = Sample({row})[0];
    if (greedy) {
      EXPECT_EQ(sampled.token, Ranked(Processed(row))[0]);
    } else {
      ExpectDrawn(row, sampled.token);
    }
  }
}

TEST_F(SamplingTest, APendingTokenCountsOnceMore) {
  // Two tokens in different chunks ahead of all others; each count costs 4.
  Row row = RandomRow(3000, 0.5f);
  row.settings.greedy = true;
  row.settings.frequency_penalty = 4;
  row.logits[7] = 12;
  row.logits[2500] = 10;
  Row not_listed = row, other_listed = row, listed = row, both = row, none = row;
  not_listed.pending = 7;
  other_listed.pending = 7;
  other_listed.counts.resize(3000);
  other_listed.counts[2500] = 1;
  listed.pending = 2500;
  listed.counts = other_listed.counts;
  listed.counts[7] = 1;
  both.counts = listed.counts;
  both.pending = 7;
  none.pending = kBadLogits;
  const std::vector<Row> rows = {row, not_listed, other_listed, listed, both, none};
  const auto sampled = Sample(rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::vector<double> want = Processed(rows[i]);
    EXPECT_EQ(sampled[i].token, Ranked(want)[0]) << i;
    ExpectClose(sampled[i].logits, want, 1e-6);
  }
  EXPECT_EQ(sampled[0].token, 7);
  EXPECT_EQ(sampled[1].token, 2500);
  EXPECT_EQ(sampled[2].token, 7);  // 8 against 6
  EXPECT_EQ(sampled[4].token, 2500);
}

TEST_F(SamplingTest, PenaltiesAreThoseOfTheCpu) {
  GenerationConfig config;
  config.presence_penalty = 0.75;
  config.frequency_penalty = -1.5;
  config.repetition_penalty = 1.25;
  config.logit_bias = {{3, 2.0}, {9, -3.5}};
  Row row = RandomRow(40);
  row.logits[5] = -kInfinity;
  row.settings.presence_penalty = static_cast<float>(config.presence_penalty);
  row.settings.frequency_penalty = static_cast<float>(config.frequency_penalty);
  row.settings.repetition_penalty = static_cast<float>(config.repetition_penalty);
  row.bias_ids = {3, 9};
  row.bias_values = {2.0f, -3.5f};
  row.counts.resize(40);
  TokenCounts counts;
  for (int32_t token : {3, 3, 5, 9, 11, 11, 11}) {
    ++row.counts[token];
    counts.Add(token);
  }
  Floats want = row.logits;
  ApplyLogitBiasAndPenalties(want, config, counts.counts());
  const Floats got = Sample({row})[0].logits;
  for (size_t i = 0; i < want.size(); ++i) {
    if (i == 5) {
      EXPECT_EQ(got[i], want[i]);
    } else {
      EXPECT_NEAR(got[i], want[i], 1e-5) << i;
    }
  }
}

TEST_F(SamplingTest, SaysWhatCannotBeSampled) {
  Row nan = RandomRow(1100);
  nan.logits[1099] = std::numeric_limits<float>::quiet_NaN();
  Row infinite = RandomRow(1100);
  infinite.logits[3] = kInfinity;
  Row nothing{.logits = Floats(1100, -kInfinity)};
  Row masked = RandomRow(1100);
  masked.allowed.resize(1100);
  Row fine = RandomRow(1100);
  fine.settings.greedy = true;
  const auto sampled = Sample({nan, infinite, nothing, masked, fine});
  EXPECT_EQ(sampled[0].token, kBadLogits);
  EXPECT_EQ(sampled[1].token, kBadLogits);
  EXPECT_EQ(sampled[2].token, kNothingAllowed);
  EXPECT_EQ(sampled[3].token, kNothingAllowed);
  EXPECT_GE(sampled[4].token, 0);
}

TEST_F(SamplingTest, LogprobsAreOfTheModelsOwnLogits) {
  for (int64_t vocab : {6, 3000}) {
    Row row = RandomRow(vocab);
    row.settings.greedy = true;
    row.settings.logprobs = true;
    row.bias_ids = {2};
    row.bias_values = {50};
    for (int32_t id = 6; id < vocab; id += 10) {
      row.bias_ids.push_back(id);
      row.bias_values.push_back(20);
    }
    row.logits[4] = row.logits[1];
    if (vocab == 6) row.logits[0] = -kInfinity;
    const Sampled sampled = Sample({row})[0];
    EXPECT_EQ(sampled.token, 2);
    const std::vector<double> x(row.logits.begin(), row.logits.end());
    double sum = 0;
    for (double value : x) sum += std::exp(value);
    EXPECT_NEAR(sampled.logprob, x[2] - std::log(sum), 1e-5);
    const std::vector<int32_t> ranked = Ranked(x);
    for (int64_t i = 0; i < kMaxTopLogprobs; ++i) {
      if (i >= vocab || x[ranked[i]] == -kInfinity) {
        EXPECT_EQ(sampled.top_ids[i], -1);
        continue;
      }
      EXPECT_EQ(sampled.top_ids[i], ranked[i]) << i;
      EXPECT_NEAR(sampled.top_logprobs[i], x[ranked[i]] - std::log(sum), 1e-5);
    }
  }
}

TEST_F(SamplingTest, TopLogprobsBreakTiesByTheLowestIds) {
  Row row{.logits = Floats(2500, 1.0f)};
  row.logits[2400] = 3;
  row.settings.greedy = true;
  row.settings.logprobs = true;
  const Sampled sampled = Sample({row})[0];
  std::vector<int32_t> want(kMaxTopLogprobs);
  std::iota(want.begin(), want.end(), -1);
  want[0] = 2400;
  EXPECT_EQ(sampled.top_ids, want);
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
