// The kernels of a mixture of experts against references in double.
#include "kernels/cuda/experts.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "cuda/gemv_weights.h"
#include "kernels/reference_router.h"

namespace mlc_native::kernels::cuda {
namespace {

// Choices on the host.
struct HostChoices {
  std::vector<int32_t> experts, places, rows;
  Floats weights;
  std::vector<ExpertGroup> groups;
};

class CudaExpertsTest : public GemvWeightsTest {
 protected:
  // In memory that was poison before.
  static HostChoices Choose(const RouterRule& rule, const Floats& logits,
                            const Floats& correction = {}, const std::vector<int32_t>& lengths = {},
                            const Floats& scales = {}) {
    const int64_t m = std::ssize(logits) / rule.num_experts;
    const auto size = static_cast<size_t>(m * rule.num_chosen);
    const DeviceArray<float> device_logits(logits), device_correction(correction), weights(size),
        device_scales(scales);
    const DeviceArray<int32_t> device_lengths(lengths), experts(size), places(size), rows(size);
    const DeviceArray<ExpertGroup> groups(static_cast<size_t>(MaxExpertGroups(rule, m)));
    Route(rule,
          {.logits = device_logits.data(),
           .ld = rule.num_experts,
           .m = m,
           .lengths = lengths.empty() ? nullptr : device_lengths.data(),
           .correction = correction.empty() ? nullptr : device_correction.data(),
           .scales = scales.empty() ? nullptr : device_scales.data()},
          {.experts = experts.data(),
           .weights = weights.data(),
           .places = places.data(),
           .rows = rows.data(),
           .groups = groups.data()},
          nullptr);
    return {experts.Download(), places.Download(), rows.Download(), weights.Download(),
            groups.Download()};
  }
};

TEST_F(CudaExpertsTest, RouterLogitsMatchTheReference) {
  for (DType dtype : kDTypes) {
    for (const auto& [m, n, k] : {std::tuple{1, 9, 40}, {6, 1, 264}, {9, 17, 520}}) {
      const Floats w = Random(DType::kFloat32, n * k);
      const Floats x = Random(dtype, m * k);
      const Floats bias = Random(dtype, n, 3);
      const DeviceArray<float> weight(w);
      const DeviceBytes device_bias(Encode(dtype, bias));
      const auto run = [&](const Floats& rows, bool has_bias) {
        const DeviceBytes device_x(Encode(dtype, rows));
        const int64_t count = std::ssize(rows) / k;
        const DeviceArray<float> logits(static_cast<size_t>(count * n));
        RouterLogits({.dtype = dtype,
                      .weight = weight.data(),
                      .n = n,
                      .k = k,
                      .x = device_x.data(),
                      .ldx = k,
                      .m = count,
                      .bias = has_bias ? device_bias.data() : nullptr,
                      .logits = logits.data(),
                      .ld = n},
                     nullptr);
        return logits.Download();
      };
      const Floats all = run(x, true);
      ExpectClose(all, reference::Linear(ToDouble(x), ToDouble(w), ToDouble(bias), m), 2e-6 * k);
      ExpectClose(run(x, false), reference::Linear(ToDouble(x), ToDouble(w), {}, m), 2e-6 * k);
      const Floats last(x.end() - k, x.end());
      EXPECT_EQ(run(last, true), Floats(all.end() - n, all.end()));
    }
  }
}

TEST_F(CudaExpertsTest, ChoiceMatchesTheReference) {
  constexpr int64_t kRows = 7;
  for (const RouterRule& rule : kRouterRules) {
    for (bool corrected : {false, true}) {
      SCOPED_TRACE(::testing::Message() << rule.num_experts << " experts, corrected " << corrected);
      const Floats logits = DistinctLogits(kRows, rule.num_experts, random_);
      Floats correction;
      if (corrected) correction = Random(DType::kFloat32, rule.num_experts, 0.4f);
      const HostChoices choices = Choose(rule, logits, correction);
      for (int64_t row = 0; row < kRows; ++row) {
        const ChosenExperts want =
            ReferenceChoice(rule, &logits[row * rule.num_experts], correction);
        for (int64_t i = 0; i < rule.num_chosen; ++i) {
          ASSERT_EQ(choices.experts[row * rule.num_chosen + i], want[i].first) << row;
          ASSERT_NEAR(choices.weights[row * rule.num_chosen + i], want[i].second,
                      3e-6 * want[i].second);
        }
      }
    }
  }
}

// Both scores are 1, rounded.
TEST_F(CudaExpertsTest, LogitsAreJudgedWhereScoresAreEqual) {
  RouterRule rule{.score = RouterScore::kSigmoid, .num_experts = 3, .num_chosen = 1};
  EXPECT_EQ(Choose(rule, {-3, 30, 40}).experts, std::vector<int32_t>{1});
  rule.judges_logits = true;
  EXPECT_EQ(Choose(rule, {-3, 30, 40}).experts, std::vector<int32_t>{2});
}

TEST_F(CudaExpertsTest, WeightsAreScaledAtLast) {
  constexpr int64_t kRows = 5;
  const RouterRule rule{.num_experts = 40, .num_chosen = 3, .renormalize = true};
  const Floats logits = DistinctLogits(kRows, rule.num_experts, random_);
  const Floats scales = Random(DType::kFloat32, rule.num_experts, 2);
  const HostChoices plain = Choose(rule, logits);
  const HostChoices scaled = Choose(rule, logits, {}, {}, scales);
  EXPECT_EQ(scaled.experts, plain.experts);
  for (size_t i = 0; i < plain.weights.size(); ++i) {
    EXPECT_NEAR(scaled.weights[i], plain.weights[i] * scales[plain.experts[i]], 1e-6) << i;
  }
}

TEST_F(CudaExpertsTest, SparseMixerWeighsEachExpertAmongThoseThatAreNear) {
  const RouterRule rule{
      .score = RouterScore::kSparseMixer, .num_experts = 4, .num_chosen = 2, .jitter = 0.1f};
  const HostChoices choices = Choose(rule, {1.6f, 2.0f, -3.0f, 1.9f, 1.5f, 2.0f, -3.0f, 1.0f});
  EXPECT_EQ(choices.experts, (std::vector<int32_t>{1, 3, 0, 1}));
  // Near 2 within a fifth of its size: 1.9 alone. Near 1.9: of the others, 1.6.
  ExpectClose(choices.weights,
              {1 / (1 + std::exp(-0.1) + std::exp(-0.4)), 1 / (1 + std::exp(-0.3)), 1, 1}, 1e-6);
}

TEST_F(CudaExpertsTest, OfEqualExpertsTheLowerOnesAreChosen) {
  const RouterRule rule{.num_experts = 70, .num_chosen = 3, .renormalize = true};
  Floats logits(2 * 70, 1.0f);
  logits[40] = 2;
  std::fill_n(logits.begin() + 70, 70, std::nanf(""));
  EXPECT_EQ(Choose(rule, logits).experts, (std::vector<int32_t>{0, 1, 40, 0, 1, 2}));
}

TEST_F(CudaExpertsTest, ChoicesAreSortedByExpertAndThenByRow) {
  for (const auto& [num_experts, num_chosen, m] :
       {std::tuple{12, 3, 1}, {12, 3, 5}, {40, 4, 100}, {1024, 2, 3}}) {
    const RouterRule rule{.num_experts = num_experts, .num_chosen = num_chosen};
    std::vector<int32_t> lengths(static_cast<size_t>(m), 9);
    for (int32_t row = 3; row < m; row += 3) lengths[static_cast<size_t>(row)] = 0;
    const HostChoices choices = Choose(rule, DistinctLogits(m, num_experts, random_), {}, lengths);
    std::vector<std::pair<int32_t, int32_t>> want;  // expert and row, by place
    for (int32_t i = 0; i < m * num_chosen; ++i) {
      if (lengths[static_cast<size_t>(i / num_chosen)] == 0) {
        EXPECT_EQ(choices.experts[i], -1);
        EXPECT_EQ(choices.places[i], -1);
        EXPECT_EQ(choices.weights[i], 0);
      } else {
        want.emplace_back(choices.experts[i], i / num_chosen);
      }
    }
    std::ranges::sort(want);
    int32_t end = 0;
    for (const ExpertGroup& group : choices.groups) {
      if (group.begin == group.end) continue;
      EXPECT_EQ(group.begin, end);
      end = group.end;
      for (int32_t place = group.begin; place < group.end; ++place) {
        ASSERT_EQ(want[place], std::pair(group.expert, choices.rows[place])) << place;
        const auto first = choices.places.begin() + choices.rows[place] * num_chosen;
        EXPECT_EQ(std::count(first, first + num_chosen, place), 1) << place;
      }
    }
    EXPECT_EQ(end, std::ssize(want));
  }
}

TEST_F(CudaExpertsTest, ARowIsRoutedTheSameInEveryBatch) {
  const RouterRule rule{.num_experts = 100, .num_chosen = 7, .renormalize = true};
  const Floats logits = Random(DType::kFloat32, 5 * 100, 3);
  const HostChoices all = Choose(rule, logits);
  const HostChoices one = Choose(rule, Floats(logits.begin() + 300, logits.begin() + 400));
  EXPECT_TRUE(std::equal(one.experts.begin(), one.experts.end(), all.experts.begin() + 21));
  EXPECT_TRUE(std::equal(one.weights.begin(), one.weights.end(), all.weights.begin() + 21));
}

// ---- Products ----

// The matrices of some experts, side by side.
struct ExpertMatrices {
  std::vector<GemvWeights> experts;
  std::vector<Floats> biases;
  std::vector<uint8_t> bytes;
};

struct GroupedShape {
  DType dtype;
  WeightFormat format;
  int64_t n, k;
  std::vector<int32_t> sizes;  // rows of each expert
  std::optional<ActivationRule> activation{};

  int64_t columns() const { return activation && activation->gated ? n / 2 : n; }
};

class GroupedGemvTest : public CudaExpertsTest {
 protected:
  ExpertMatrices MakeMatrices(const GroupedShape& s) {
    ExpertMatrices all;
    for (size_t i = 0; i < s.sizes.size(); ++i) {
      all.experts.push_back(RandomWeights(s.format, s.n, s.k));
      all.biases.push_back(Random(s.dtype, s.n, 2));
      const std::vector<uint8_t>& bytes = all.experts.back().bytes;
      all.bytes.insert(all.bytes.end(), bytes.begin(), bytes.end());
    }
    return all;
  }

  // One empty group comes last.
  static std::vector<ExpertGroup> GroupsOf(const GroupedShape& s) {
    std::vector<ExpertGroup> groups;
    int32_t begin = 0;
    for (int32_t e = 0; e < std::ssize(s.sizes); ++e) {
      const int32_t end = begin + s.sizes[e];
      if (begin < end) groups.push_back({e, begin, end});
      begin = end;
    }
    groups.push_back({});
    return groups;
  }

  static Floats Run(const GroupedShape& s, const ExpertMatrices& matrices, const Floats& x,
                    const std::vector<int32_t>& rows, bool gathers) {
    Floats biases;
    for (const Floats& bias : matrices.biases)
      biases.insert(biases.end(), bias.begin(), bias.end());
    const auto size = static_cast<int64_t>(DTypeSize(s.dtype));
    const std::vector<ExpertGroup> groups = GroupsOf(s);
    const DeviceBytes weight(matrices.bytes), bias(Encode(s.dtype, biases)),
        device_x(Encode(s.dtype, x)), y(rows.size() * s.columns() * size);
    const DeviceArray<ExpertGroup> device_groups(groups);
    const DeviceArray<int32_t> device_rows(rows);
    GroupedGemv({.first = {.format = s.format,
                           .dtype = s.dtype,
                           .weight = weight.data(),
                           .n = s.n,
                           .k = s.k,
                           .x = device_x.data(),
                           .ldx = s.k,
                           .m = *std::ranges::max_element(s.sizes),
                           .bias = bias.data(),
                           .y = y.data(),
                           .ldy = s.columns(),
                           .activates = s.activation.has_value(),
                           .activation = s.activation.value_or(ActivationRule())},
                 .weight_stride = std::ssize(matrices.bytes) / std::ssize(s.sizes),
                 .bias_stride = s.n * size,
                 .groups = device_groups.data(),
                 .num_groups = std::ssize(groups),
                 .rows = gathers ? device_rows.data() : nullptr},
                nullptr);
    return Decode(s.dtype, y.Download());
  }

  // A row alone.
  static Floats RunOne(const GroupedShape& s, const ExpertMatrices& matrices, int32_t expert,
                       const Floats& x) {
    const DeviceBytes weight(matrices.experts[expert].bytes),
        bias(Encode(s.dtype, matrices.biases[expert])), device_x(Encode(s.dtype, x)),
        y(s.columns() * DTypeSize(s.dtype));
    Gemv({.format = s.format,
          .dtype = s.dtype,
          .weight = weight.data(),
          .n = s.n,
          .k = s.k,
          .x = device_x.data(),
          .ldx = s.k,
          .m = 1,
          .bias = bias.data(),
          .y = y.data(),
          .ldy = s.columns(),
          .activates = s.activation.has_value(),
          .activation = s.activation.value_or(ActivationRule())},
         nullptr);
    return Decode(s.dtype, y.Download());
  }

  // Every row is that of the reference, and has the bits of a product of its own.
  void Check(const GroupedShape& s) {
    const ExpertMatrices matrices = MakeMatrices(s);
    const auto total = std::accumulate(s.sizes.begin(), s.sizes.end(), int64_t{0});
    std::vector<int32_t> rows;
    for (int64_t i = 0; i < total; ++i) rows.push_back(static_cast<int32_t>(RandomInt(0, 9)));
    const Floats x = Random(s.dtype, 10 * s.k);
    Floats gathered;
    for (int32_t row : rows) {
      gathered.insert(gathered.end(), &x[row * s.k], &x[row * s.k] + s.k);
    }
    const Floats got = Run(s, matrices, x, rows, true);
    EXPECT_EQ(Run(s, matrices, gathered, rows, false), got);
    for (const ExpertGroup& group : GroupsOf(s)) {
      for (int64_t place = group.begin; place < group.end; ++place) {
        const Floats row(&gathered[place * s.k], &gathered[place * s.k] + s.k);
        const Floats of_row(&got[place * s.columns()], &got[place * s.columns()] + s.columns());
        EXPECT_EQ(RunOne(s, matrices, group.expert, row), of_row) << place;
        auto want = reference::Linear(ToDouble(row), ToDouble(matrices.experts[group.expert].dense),
                                      ToDouble(matrices.biases[group.expert]), 1);
        if (s.activation) {
          want = reference::Activate(want, {.ffn = s.columns(),
                                            .activation = s.activation->activation,
                                            .gated = s.activation->gated,
                                            .sharpness = s.activation->sharpness,
                                            .limit = s.activation->limit});
        }
        ExpectClose(of_row, want, s.activation ? 3 * Epsilon(s.dtype) : Epsilon(s.dtype) + 3e-5);
      }
    }
  }
};

TEST_F(GroupedGemvTest, EveryFormat) {
  for (DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (WeightFormat format : FormatsWith(dtype)) {
      Check({dtype, format, 24, 136, {1, 0, 3}});
    }
  }
  Check({DType::kFloat32, WeightFormat::kFloat32, 20, 72, {2, 0, 0, 11, 1}});
}

TEST_F(GroupedGemvTest, Activates) {
  for (WeightFormat format :
       {WeightFormat::kBFloat16, WeightFormat::kQ4, WeightFormat::kMxfp4, WeightFormat::kFloat8}) {
    Check({DType::kBFloat16, format, 44, 136, {1, 0, 35}, ActivationRule()});
  }
  Check(
      {DType::kFloat16,
       WeightFormat::kQ8,
       26,
       136,
       {2, 9},
       ActivationRule{.activation = Activation::kClampedSwiGlu, .sharpness = 1.702f, .limit = 7}});
  Check({DType::kFloat16,
         WeightFormat::kFloat16,
         21,
         40,
         {3},
         ActivationRule{.activation = Activation::kReluSquared, .gated = false}});
}

TEST_F(GroupedGemvTest, MoreRowsThanABlockTakesAtOnce) {
  Check({DType::kBFloat16, WeightFormat::kBFloat16, 17, 40, {0, 9, 70, 1}});
  Check({DType::kFloat16, WeightFormat::kQ4, 40, 264, {33, 0, 8}});
}

TEST_F(GroupedGemvTest, ChecksTheShape) {
  EXPECT_ANY_THROW(GroupedGemv({.first = {.n = 8, .k = 12}, .num_groups = 1}, nullptr));
  EXPECT_ANY_THROW(GroupedGemv(
      {.first = {.format = WeightFormat::kFloat16, .n = 8, .k = 16}, .num_groups = 1}, nullptr));
  EXPECT_ANY_THROW(
      GroupedGemv({.first = {.n = 8, .k = 16, .float_output = true}, .num_groups = 1}, nullptr));
  EXPECT_ANY_THROW(Route({.num_experts = 4, .num_chosen = 5}, {.ld = 4}, {}, nullptr));
}

// ---- The sum ----

TEST_F(CudaExpertsTest, MixAddsWhatTheExpertsOfARowGive) {
  constexpr int64_t kN = 40;
  const std::vector<int32_t> places{4, 0, 2, 5, -1, -1, 1, 3};  // the third row is unused
  const Floats weights{0.5f, 0.25f, 1, 2, 0, 0, 0.125f, -1};
  const Floats gate{0.5f, -2, 7, 0};
  for (DType dtype : kDTypes) {
    const Floats x = Random(dtype, 6 * kN), shared = Random(dtype, 4 * kN);
    const DeviceBytes device_x(Encode(dtype, x)), device_shared(Encode(dtype, shared));
    const DeviceArray<int32_t> device_places(places);
    const DeviceArray<float> device_weights(weights), device_gate(gate);
    for (int with = 0; with < 4; ++with) {  // nothing, a shared expert, one with a gate; no weights
      const DeviceBytes out(4 * kN * DTypeSize(dtype));
      Mix({.dtype = dtype,
           .x = device_x.data(),
           .places = device_places.data(),
           .weights = with < 3 ? device_weights.data() : nullptr,
           .num_chosen = 2,
           .shared = with > 0 ? device_shared.data() : nullptr,
           .shared_scale = with == 2 ? 1.0f : 0.5f,
           .shared_gate = with > 1 ? device_gate.data() : nullptr,
           .ld_gate = 1,
           .out = out.data(),
           .m = 4,
           .n = kN},
          nullptr);
      reference::Matrix want;
      for (int64_t i = 0; i < 4 * kN; ++i) {
        const int64_t row = i / kN;
        double sum = 0;
        for (int64_t j = 2 * row; j < 2 * row + 2; ++j) {
          const double weight = with < 3 ? weights[j] : 1;
          if (places[j] >= 0) sum += weight * x[places[j] * kN + i % kN];
        }
        const double factor = with == 0 ? 0 : with == 1 ? 1 : 1 / (1 + std::exp(-gate[row]));
        want.push_back(sum + (with == 2 ? 1 : 0.5) * factor * shared[i]);
      }
      ExpectClose(Decode(dtype, out.Download()), want, Epsilon(dtype));
    }
  }
}

TEST_F(CudaExpertsTest, SpreadScalesWhatExpertsRead) {
  constexpr int64_t kN = 40;
  const std::vector<int32_t> places{4, 0, 2, 5, -1, -1, 1, 3};  // the third row is unused
  const Floats weights{0.5f, 0.25f, 1, 2, 0, 0, 0.125f, -1};
  const DeviceArray<int32_t> device_places(places);
  const DeviceArray<float> device_weights(weights);
  for (DType dtype : kDTypes) {
    const Floats x = Random(dtype, 4 * kN);
    const DeviceBytes device_x(Encode(dtype, x)), out(6 * kN * DTypeSize(dtype));
    Spread({.dtype = dtype,
            .x = device_x.data(),
            .places = device_places.data(),
            .weights = device_weights.data(),
            .num_chosen = 2,
            .out = out.data(),
            .m = 4,
            .n = kN},
           nullptr);
    reference::Matrix want(6 * kN);
    for (int64_t choice = 0; choice < 8; ++choice) {
      for (int64_t i = 0; i < kN && places[choice] >= 0; ++i) {
        want[places[choice] * kN + i] = double{weights[choice]} * x[choice / 2 * kN + i];
      }
    }
    ExpectClose(Decode(dtype, out.Download()), want, Epsilon(dtype));
  }
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
