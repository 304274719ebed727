#include "kernels/experts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/reference_router.h"
#include "kernels/test_util.h"
#include "support/check.h"

namespace mlc_native::kernels {
namespace {

constexpr int64_t kRouterRows = 70;

class ExpertsTest : public KernelTest {
 protected:
  ExpertChoices Choose(const Cpu& cpu, const RouterRule& rule, const Floats& logits,
                       const Floats& correction = {}, const Floats& scales = {}) {
    const int64_t m = static_cast<int64_t>(logits.size()) / rule.num_experts;
    ExpertChoices choices;
    choices.Resize(m, rule);
    Route(cpu, rule,
          {.logits = logits.data(),
           .ld = rule.num_experts,
           .m = m,
           .correction = correction.empty() ? nullptr : correction.data(),
           .scales = scales.empty() ? nullptr : scales.data()},
          &choices);
    return choices;
  }
};

TEST_P(ExpertsTest, ScalesAreOfTheWeightsAndNotOfTheChoice) {
  const RouterRule rule{.num_experts = 5, .num_chosen = 2, .renormalize = true};
  const Floats logits = DistinctLogits(kRouterRows, rule.num_experts, random_);
  const Floats scales = {0.5f, 3.0f, -1.0f, 100.0f, 0.0f};
  const ExpertChoices plain = Choose(Threads(2), rule, logits);
  const ExpertChoices scaled = Choose(Threads(2), rule, logits, {}, scales);
  EXPECT_EQ(scaled.experts, plain.experts);
  for (size_t i = 0; i < plain.weights.size(); ++i) {
    ASSERT_EQ(scaled.weights[i], plain.weights[i] * scales[plain.experts[i]]) << i;
  }
}

// The softplus of a large logit is the logit.
TEST_P(ExpertsTest, ScoresMayBeTheRootsOfSoftplus) {
  const RouterRule rule{
      .score = RouterScore::kRootSoftplus, .num_experts = 4, .num_chosen = 2, .scale = 1.5f};
  const ExpertChoices choices = Choose(Threads(1), rule, {-1, 0.5f, -200, 100});
  EXPECT_EQ(choices.experts, (std::vector<int32_t>{1, 3}));
  EXPECT_NEAR(choices.weights[0], 1.5 * std::sqrt(std::log1p(std::exp(0.5))), 1e-6);
  EXPECT_NEAR(choices.weights[1], 15, 1e-5);
}

TEST_P(ExpertsTest, ATableHasTheExpertsOfEachId) {
  const RouterRule rule{.score = RouterScore::kRootSoftplus,
                        .num_experts = 4,
                        .num_chosen = 2,
                        .renormalize = true,
                        .scale = 1.5f};
  const std::vector<int32_t> table = {3, 0, 2, 2, 1, 2};
  const std::vector<int32_t> ids = {2, 0, 1};
  const Floats logits = Random(12, 2);
  ExpertChoices choices;
  choices.Resize(3, rule);
  Route(Threads(2), rule,
        {.logits = logits.data(), .ld = 4, .m = 3, .table = table.data(), .ids = ids.data()},
        &choices);
  EXPECT_EQ(choices.experts, (std::vector<int32_t>{1, 2, 3, 0, 2, 2}));
  for (int row = 0; row < 3; ++row) {
    const auto score = [&](int i) {
      return std::sqrt(std::log1p(std::exp(logits[row * 4 + choices.experts[row * 2 + i]])));
    };
    const double sum = score(0) + score(1);
    for (int i = 0; i < 2; ++i) {
      EXPECT_NEAR(choices.weights[row * 2 + i], 1.5 * score(i) / sum, 1e-6) << row;
    }
  }
  // A choice of the same expert twice has two places.
  EXPECT_EQ(choices.rows, (std::vector<int32_t>{1, 0, 0, 2, 2, 1}));
  std::vector<int32_t> places = choices.places;
  std::ranges::sort(places);
  EXPECT_EQ(places, (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
}

// Both scores are 1, rounded.
TEST_P(ExpertsTest, LogitsAreJudgedWhereScoresAreEqual) {
  RouterRule rule{.score = RouterScore::kSigmoid, .num_experts = 3, .num_chosen = 1};
  const Floats logits = {-3, 30, 40};
  EXPECT_EQ(Choose(Threads(1), rule, logits).experts, std::vector<int32_t>{1});
  rule.judges_logits = true;
  const ExpertChoices choices = Choose(Threads(1), rule, logits);
  EXPECT_EQ(choices.experts, std::vector<int32_t>{2});
  EXPECT_EQ(choices.weights, Floats{1});
}

TEST_P(ExpertsTest, ChoiceMatchesReference) {
  for (const RouterRule& rule : kRouterRules) {
    for (bool corrected : {false, true}) {
      SCOPED_TRACE(testing::Message() << rule.num_experts << " experts, corrected " << corrected);
      const Floats logits = DistinctLogits(kRouterRows, rule.num_experts, random_);
      Floats correction;
      if (corrected) correction = Random(rule.num_experts, 0.4f);
      const ExpertChoices choices = Choose(Threads(2), rule, logits, correction);
      for (int64_t row = 0; row < kRouterRows; ++row) {
        const ChosenExperts want =
            ReferenceChoice(rule, &logits[row * rule.num_experts], correction);
        for (int64_t i = 0; i < rule.num_chosen; ++i) {
          ASSERT_EQ(choices.experts[row * rule.num_chosen + i], want[i].first) << row;
          ASSERT_NEAR(choices.weights[row * rule.num_chosen + i], want[i].second,
                      2e-6 * want[i].second);
        }
      }
    }
  }
}

// Two experts, as Phi's router has.
TEST_P(ExpertsTest, SparseMixerWeighsEachExpertAmongThoseThatAreNear) {
  const RouterRule rule{
      .score = RouterScore::kSparseMixer, .num_experts = 4, .num_chosen = 2, .jitter = 0.1f};
  // Near 2 within a fifth of its size: 1.9 alone. Near 1.9: of the others, 1.6.
  const ExpertChoices choices = Choose(Threads(1), rule, {1.6f, 2.0f, -3.0f, 1.9f});
  EXPECT_EQ(choices.experts, (std::vector<int32_t>{1, 3}));
  EXPECT_NEAR(choices.weights[0], 1 / (1 + std::exp(-0.1) + std::exp(-0.4)), 1e-6);
  EXPECT_NEAR(choices.weights[1], 1 / (1 + std::exp(-0.3)), 1e-6);
  const ExpertChoices far = Choose(Threads(1), rule, {1.5f, 2.0f, -3.0f, 1.0f});
  EXPECT_EQ(far.experts, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(far.weights, (Floats{1, 1}));
}

TEST_P(ExpertsTest, OfEqualExpertsTheLowerOnesAreChosen) {
  const RouterRule rule{.num_experts = 5, .num_chosen = 3, .renormalize = true};
  const ExpertChoices choices = Choose(Threads(1), rule, {1, 2, 1, 1, 1});
  EXPECT_EQ(choices.experts, (std::vector<int32_t>{0, 1, 2}));
  const float nan = std::nanf("");
  EXPECT_EQ(Choose(Threads(1), rule, {nan, nan, nan, nan, nan}).experts,
            (std::vector<int32_t>{0, 1, 2}));
}

TEST_P(ExpertsTest, ChoicesAreSortedByExpertAndThenByRow) {
  const RouterRule rule{.num_experts = 12, .num_chosen = 3};
  const ExpertChoices choices = Choose(Threads(3), rule, DistinctLogits(kRouterRows, 12, random_));
  std::vector<std::pair<int32_t, int32_t>> by_place(kRouterRows * 3);
  for (int32_t i = 0; i < kRouterRows * 3; ++i) {
    by_place[choices.places[i]] = {choices.experts[i], i / 3};
  }
  EXPECT_TRUE(std::ranges::is_sorted(by_place));
  int64_t end = 0;
  for (const LinearGroup& group : choices.groups) {
    EXPECT_EQ(group.begin, end);
    end = group.end;
    for (int64_t place = group.begin; place < group.end; ++place) {
      EXPECT_EQ(by_place[place].first, group.expert);
      EXPECT_EQ(by_place[place].second, choices.rows[place]);
    }
  }
  EXPECT_EQ(end, kRouterRows * 3);
}

TEST_P(ExpertsTest, RowsOfTheRouterAreTheSameAloneAndInAnyBatch) {
  const RouterRule rule{.num_experts = 100, .num_chosen = 7, .renormalize = true};
  const Floats logits = Random(kRouterRows * 100, 3);
  const ExpertChoices all = Choose(Threads(3), rule, logits);
  for (int64_t row = 0; row < kRouterRows; ++row) {
    const Floats alone(logits.begin() + row * 100, logits.begin() + (row + 1) * 100);
    const ExpertChoices one = Choose(Threads(1), rule, alone);
    ASSERT_TRUE(std::equal(one.experts.begin(), one.experts.end(), all.experts.begin() + row * 7));
    ASSERT_TRUE(SameBits(one.weights.data(), &all.weights[row * 7], 7));
  }
}

TEST_P(ExpertsTest, RefusesRulesThatCannotHold) {
  EXPECT_THROW(Choose(Threads(1), {.num_experts = 4, .num_chosen = 5}, Floats(4)), InternalError);
  EXPECT_THROW(Choose(Threads(1),
                      {.num_experts = 4, .num_chosen = 3, .num_groups = 2, .num_chosen_groups = 1},
                      Floats(4)),
               InternalError);
  EXPECT_THROW(Choose(Threads(1), {.num_experts = 4, .num_chosen = 1, .num_judged = 3}, Floats(4)),
               InternalError);
  EXPECT_THROW(Choose(Threads(1), {.num_experts = 4, .num_chosen = 1, .logit_cap = 1}, Floats(4)),
               InternalError);  // of softmax
}

// Some packed matrices of one shape, with biases.
struct Matrices {
  std::vector<AlignedBuffer> buffers;
  std::vector<PackedLinear> packed;
  std::vector<Floats> biases;
};

class GroupedLinearTest : public ExpertsTest {
 protected:
  Matrices MakeMatrices(const std::vector<WeightFormat>& formats, int64_t n, int64_t k) {
    Matrices all;
    for (const WeightFormat format : formats) {
      const Floats dense = Random(n * k);
      all.buffers.emplace_back(PackedLinearBytes(isa(), format, n, k));
      all.packed.push_back(MakePackedLinear(isa(), format, n, k, all.buffers.back().data()));
      PackLinear(all.packed.back(), 0, {.data = dense.data(), .ld = k, .rows = n});
      all.biases.push_back(Random(n));
    }
    return all;
  }

  // Row by row, each alone.
  Floats OneByOne(const Matrices& matrices, const std::vector<LinearGroup>& groups,
                  const std::vector<int32_t>& rows, const Floats& x) {
    const int64_t n = matrices.packed.front().n, k = matrices.packed.front().k;
    const AlignedBuffer workspace(LinearWorkspaceBytes(1, k));
    Floats y(rows.size() * n);
    for (const LinearGroup& group : groups) {
      for (int64_t i = group.begin; i < group.end; ++i) {
        Linear(Threads(1), *group.weight,
               {.x = &x[rows[i] * k],
                .ldx = k,
                .m = 1,
                .bias = group.bias,
                .y = &y[i * n],
                .ldy = n,
                .workspace = workspace.data()});
      }
    }
    return y;
  }
};

TEST_P(GroupedLinearTest, EveryRowHasTheBitsOfItsOwnLinear) {
  constexpr WeightFormat kMixed[] = {WeightFormat::kQ4, WeightFormat::kFloat32, WeightFormat::kQ8,
                                     WeightFormat::kBFloat16, WeightFormat::kFloat16};
  const int64_t n = 70, k = 203, num_rows = 40;
  const Matrices matrices = MakeMatrices({std::begin(kMixed), std::end(kMixed)}, n, k);
  const Floats x = Random(num_rows * k);
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{1, 1, 1, 1, 1}, {30, 2, 1, 17, 33}, {1}, {40, 1, 6}}) {
    std::vector<LinearGroup> groups;
    std::vector<int32_t> rows;
    for (size_t g = 0; g < sizes.size(); ++g) {
      const auto begin = static_cast<int64_t>(rows.size());
      groups.push_back({.expert = static_cast<int32_t>(g),
                        .begin = begin,
                        .end = begin + sizes[g],
                        .weight = &matrices.packed[g],
                        .bias = g % 2 == 0 ? matrices.biases[g].data() : nullptr});
      for (int64_t i = 0; i < sizes[g]; ++i) {
        rows.push_back(static_cast<int32_t>(RandomInt(0, num_rows - 1)));
      }
    }
    const auto m = static_cast<int64_t>(rows.size());
    const Floats want = OneByOne(matrices, groups, rows, x);
    for (int threads : {1, 2, 3}) {
      const AlignedBuffer workspace(LinearWorkspaceBytes(m, k));
      std::memset(workspace.data(), 0xff, workspace.size());
      Poisoned y(m, n, 3);
      const GroupedLinearArgs args{.groups = groups,
                                   .x = x.data(),
                                   .ldx = k,
                                   .rows = rows.data(),
                                   .y = y.data.data(),
                                   .ldy = y.ld,
                                   .workspace = workspace.data()};
      GroupedLinear(Threads(threads), args);
      y.ExpectPaddingUntouched();
      ASSERT_TRUE(SameBits(y.Dense().data(), want.data(), m * n)) << threads << " threads";

      // The rows themselves instead of their numbers, in the memory of the results.
      Floats gathered(m * std::max(n, k));
      for (int64_t i = 0; i < m; ++i) std::copy_n(&x[rows[i] * k], k, &gathered[i * k]);
      GroupedLinear(Threads(threads), {.groups = groups,
                                       .x = gathered.data(),
                                       .ldx = k,
                                       .y = gathered.data(),
                                       .ldy = n,
                                       .workspace = workspace.data()});
      ASSERT_TRUE(SameBits(gathered.data(), want.data(), m * n)) << threads << " threads";
    }
  }
}

TEST_P(GroupedLinearTest, RunsTheStepsBeforeOnEveryRow) {
  const int64_t n = 40, k = 64, m = 23;
  const Matrices matrices = MakeMatrices({WeightFormat::kFloat32, WeightFormat::kFloat32}, n, k);
  const std::vector<LinearGroup> groups = {
      {.begin = 0, .end = 5, .weight = &matrices.packed[0]},
      {.expert = 1, .begin = 5, .end = m, .weight = &matrices.packed[1]}};
  const Floats x = Random(m * 2 * k);
  Floats activated = x, in_one = x;
  const auto act = [&](Floats& rows) {
    return ActivateArgs{
        .x = rows.data(), .ldx = 2 * k, .out = rows.data(), .ldo = 2 * k, .m = m, .ffn = k};
  };
  Activate(Threads(1), act(activated));
  const AlignedBuffer workspace(LinearWorkspaceBytes(m, k));
  Floats want(m * n), got(m * n);
  GroupedLinearArgs args{.groups = groups,
                         .x = activated.data(),
                         .ldx = 2 * k,
                         .y = want.data(),
                         .ldy = n,
                         .workspace = workspace.data()};
  GroupedLinear(Threads(1), args);
  args.x = in_one.data();
  args.y = got.data();
  const RowStep step = act(in_one);
  GroupedLinear(Threads(2), args, {&step, 1});
  EXPECT_EQ(got, want);
}

TEST_P(GroupedLinearTest, HeadsHaveTheBitsOfTheirOwnLinears) {
  const int64_t k = 72, x_step = 80, y_step = 100, m = 21;
  for (const WeightFormat format : {WeightFormat::kFloat32, WeightFormat::kBFloat16,
                                    WeightFormat::kQ8, WeightFormat::kQ6, WeightFormat::kQ4}) {
    for (const int64_t n : {96, 33}) {
      SCOPED_TRACE(testing::Message() << FormatName(format) << " n " << n);
      const std::vector<WeightFormat> heads(5, format);
      const Matrices matrices = MakeMatrices(heads, n, k);
      const int64_t ldx = 5 * x_step + 7, ldy = 5 * y_step + 3;
      const Floats x = Random(m * ldx);
      const AlignedBuffer workspace(LinearWorkspaceBytes(5 * m, k));
      Floats want(m * ldy, 0.5f);  // between the heads, what was there
      for (int64_t head = 0; head < 5; ++head) {
        for (int64_t row = 0; row < m; ++row) {
          Linear(Threads(1), matrices.packed[head],
                 {.x = &x[row * ldx + head * x_step],
                  .ldx = k,
                  .m = 1,
                  .y = &want[row * ldy + head * y_step],
                  .ldy = n,
                  .workspace = workspace.data()});
        }
      }
      for (int threads : {1, 2, 3}) {
        for (const int64_t rows : {m, int64_t{1}}) {
          std::memset(workspace.data(), 0xff, workspace.size());
          Floats in = x, y(m * ldy, 0.5f);
          for (float& value : in) value /= 2;
          const std::vector<float> scales(1, 2.0f);
          const std::vector<int32_t> positions(m, 0);
          const RowStep step = ScaleArgs{.x = in.data(),
                                         .ld = ldx,
                                         .m = rows,
                                         .n = ldx,
                                         .positions = positions.data(),
                                         .scales = scales.data()};
          HeadLinears(Threads(threads), matrices.packed,
                      {.x = in.data(),
                       .ldx = ldx,
                       .x_step = x_step,
                       .m = rows,
                       .y = y.data(),
                       .ldy = ldy,
                       .y_step = y_step,
                       .workspace = workspace.data()},
                      {&step, 1});
          ASSERT_TRUE(SameBits(y.data(), want.data(), rows * ldy)) << threads << " threads";
        }
      }
    }
  }
}

TEST_P(GroupedLinearTest, RefusesGroupsWithHolesAndMatricesOfTwoShapes) {
  const Matrices matrices = MakeMatrices({WeightFormat::kFloat32}, 8, 8);
  const Matrices others = MakeMatrices({WeightFormat::kFloat32}, 8, 9);
  const Floats x(100);
  Floats y(100);
  const AlignedBuffer workspace(LinearWorkspaceBytes(10, 9));
  const auto run = [&](const std::vector<LinearGroup>& groups) {
    GroupedLinear(Threads(1), {.groups = groups,
                               .x = x.data(),
                               .ldx = 9,
                               .y = y.data(),
                               .ldy = 8,
                               .workspace = workspace.data()});
  };
  const PackedLinear* weight = &matrices.packed[0];
  run({});
  EXPECT_THROW(run({{.begin = 1, .end = 2, .weight = weight}}), InternalError);
  EXPECT_THROW(run({{.begin = 0, .end = 0, .weight = weight}}), InternalError);
  EXPECT_THROW(run({{.begin = 0, .end = 1, .weight = weight},
                    {.begin = 1, .end = 2, .weight = &others.packed[0]}}),
               InternalError);
}

TEST_P(ExpertsTest, MixMatchesReference) {
  const int64_t m = 37, n = 83, chosen = 3;
  const Floats x = Random(m * chosen * n), weights = Random(m * chosen), shared = Random(m * n);
  const Floats gate = Random(m * 2, 3);
  std::vector<int32_t> places(m * chosen);
  std::iota(places.begin(), places.end(), 0);
  std::shuffle(places.begin(), places.end(), random_);
  for (int kind = 0; kind < 4; ++kind) {  // no shared expert, one, one with a gate; no weights
    Poisoned out(m, n, 2);
    MixArgs args{.x = x.data(),
                 .ldx = n,
                 .places = places.data(),
                 .weights = weights.data(),
                 .num_chosen = chosen,
                 .out = out.data.data(),
                 .ldo = out.ld,
                 .m = m,
                 .n = n};
    if (kind > 0) args.shared = shared.data();
    if (kind > 0) args.ld_shared = n;
    args.shared_scale = kind == 2 ? 1.0f : 0.5f;
    if (kind > 1) args.shared_gate = gate.data() + 1;
    if (kind > 1) args.ld_gate = 2;
    if (kind > 2) args.weights = nullptr;
    Mix(Threads(2), args);
    reference::Matrix want(m * n);
    for (int64_t i = 0; i < m * n; ++i) {
      const int64_t row = i / n;
      for (int64_t j = 0; j < chosen; ++j) {
        const double weight = kind > 2 ? 1 : weights[row * chosen + j];
        want[i] += weight * x[places[row * chosen + j] * n + i % n];
      }
      const double factor = kind > 1 ? 1 / (1 + std::exp(-double{gate[row * 2 + 1]})) : 1;
      if (kind > 0) want[i] += args.shared_scale * factor * shared[i];
    }
    out.ExpectPaddingUntouched();
    ExpectClose(out.Dense(), want, 1e-6);
  }
}

TEST_P(ExpertsTest, SpreadScalesWhatExpertsRead) {
  const int64_t m = 37, n = 83, chosen = 3;
  const Floats x = Random(m * n), weights = Random(m * chosen);
  std::vector<int32_t> places(m * chosen);
  std::iota(places.begin(), places.end(), 0);
  std::shuffle(places.begin(), places.end(), random_);
  Poisoned out(m * chosen, n, 2);
  Spread(Threads(2), {.x = x.data(),
                      .ldx = n,
                      .places = places.data(),
                      .weights = weights.data(),
                      .num_chosen = chosen,
                      .out = out.data.data(),
                      .ldo = out.ld,
                      .m = m,
                      .n = n});
  Floats want(m * chosen * n);
  for (int64_t choice = 0; choice < m * chosen; ++choice) {
    for (int64_t i = 0; i < n; ++i) {
      want[places[choice] * n + i] = weights[choice] * x[choice / chosen * n + i];
    }
  }
  out.ExpectPaddingUntouched();
  EXPECT_EQ(out.Dense(), want);
}

INSTANTIATE_TEST_SUITE_P(Isas, ExpertsTest, ::testing::ValuesIn(IsaNames()));
INSTANTIATE_TEST_SUITE_P(Isas, GroupedLinearTest, ::testing::ValuesIn(IsaNames()));

}  // namespace
}  // namespace mlc_native::kernels
