#include <algorithm>
#include <array>
#include <limits>

#include "kernels/test_util.h"
#include "support/check.h"

namespace mlc_native::kernels {
namespace {

class RowwiseTest : public KernelTest {};

TEST_P(RowwiseTest, NormalizeMatchesReference) {
  for (int64_t dim : {1, 7, 8, 31, 64, 128, 1000, 1024}) {
    for (float offset : {0.0f, 1.0f}) {
      const int64_t m = 5, groups = dim < 200 ? 3 : 1;
      const Floats x = Random(m * groups * dim, 3), weight = Random(dim);
      Poisoned in(m, groups * dim, 2), out(m, groups * dim, 4);
      in.Fill(x);
      const NormalizeArgs args{.x = in.data.data(),
                               .ldx = in.ld,
                               .y = out.data.data(),
                               .ldy = out.ld,
                               .weight = weight.data(),
                               .weight_offset = offset,
                               .eps = 1e-5f,
                               .m = m,
                               .groups = groups,
                               .dim = dim};
      Normalize(Threads(2), args);
      out.ExpectPaddingUntouched();
      const auto want = reference::Normalize(ToDouble(x), ToDouble(weight), offset, 1e-5f);
      ExpectClose(out.Dense(), want, 1e-6);

      NormalizeArgs add = args;
      add.accumulate = true;
      Normalize(Threads(1), add);
      reference::Matrix twice = want;
      for (double& value : twice) value *= 2;
      ExpectClose(out.Dense(), twice, 2e-6);
    }
  }
}

// A mean far from zero, which a variance from sums of squares would lose.
TEST_P(RowwiseTest, LayerNormMatchesReference) {
  for (int64_t dim : {1, 7, 8, 31, 64, 200, 1000}) {
    for (bool has_bias : {false, true}) {
      const int64_t m = 5;
      Floats x = Random(m * dim, 3);
      for (float& value : x) value += 40;
      const Floats weight = Random(dim), bias = has_bias ? Random(dim) : Floats();
      Poisoned in(m, dim, 2), out(m, dim, 4);
      in.Fill(x);
      const NormalizeArgs args{.x = in.data.data(),
                               .ldx = in.ld,
                               .y = out.data.data(),
                               .ldy = out.ld,
                               .weight = weight.data(),
                               .weight_offset = 1.0f,
                               .bias = has_bias ? bias.data() : nullptr,
                               .eps = 1e-5f,
                               .m = m,
                               .dim = dim,
                               .subtract_mean = true};
      Normalize(Threads(2), args);
      out.ExpectPaddingUntouched();
      const auto want =
          reference::LayerNormalize(ToDouble(x), ToDouble(weight), ToDouble(bias), 1, 1e-5f);
      ExpectClose(out.Dense(), want, 3e-5);
    }
  }
}

TEST_P(RowwiseTest, EachHeadMayHaveAWeightOfItsOwn) {
  const int64_t m = 4, heads = 3, dim = 20;
  const Floats x = Random(m * heads * dim, 3), weight = Random(heads * dim);
  for (bool subtract_mean : {false, true}) {
    Floats y(x.size());
    Normalize(Threads(1), {.x = x.data(),
                           .ldx = heads * dim,
                           .y = y.data(),
                           .ldy = heads * dim,
                           .weight = weight.data(),
                           .ld_weight = dim,
                           .m = m,
                           .groups = heads,
                           .dim = dim,
                           .subtract_mean = subtract_mean});
    for (int64_t at = 0; at < m * heads; ++at) {
      const auto part = [&](const Floats& all, int64_t index) {
        return ToDouble(Floats(all.begin() + index * dim, all.begin() + (index + 1) * dim));
      };
      const reference::Matrix w = part(weight, at % heads), from = part(x, at);
      ExpectClose(Floats(y.begin() + at * dim, y.begin() + (at + 1) * dim),
                  subtract_mean ? reference::LayerNormalize(from, w, {}, 0, 1e-6)
                                : reference::Normalize(from, w, 0, 1e-6),
                  2e-6);
    }
  }
}

TEST_P(RowwiseTest, ScalesByPosition) {
  const int64_t m = 6, n = 37;
  const Floats x = Random(m * n), scales = Random(9);
  const std::vector<int32_t> positions{3, 0, 8, 8, 1, 5};
  Poisoned view(m, n, 3);
  view.Fill(x);
  Scale(Threads(2), {.x = view.data.data(),
                     .ld = view.ld,
                     .m = m,
                     .n = n,
                     .positions = positions.data(),
                     .scales = scales.data()});
  view.ExpectPaddingUntouched();
  const Floats got = view.Dense();
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(got[i], x[i] * scales[positions[i / n]]) << i;
}

TEST_P(RowwiseTest, ScalesAllRows) {
  const int64_t m = 6, n = 37;
  const Floats x = Random(m * n);
  const float scales[] = {0.7f, 5.0f};
  Poisoned view(m, n, 3);
  view.Fill(x);
  Scale(Threads(2), {.x = view.data.data(), .ld = view.ld, .m = m, .n = n, .scales = scales});
  view.ExpectPaddingUntouched();
  const Floats got = view.Dense();
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(got[i], x[i] * scales[0]) << i;
}

TEST_P(RowwiseTest, ScalesByColumn) {
  const int64_t m = 6, n = 37;
  const Floats x = Random(m * n), scales = Random(n);
  Poisoned view(m, n, 3);
  view.Fill(x);
  Scale(Threads(2), {.x = view.data.data(),
                     .ld = view.ld,
                     .m = m,
                     .n = n,
                     .scales = scales.data(),
                     .by_column = true});
  view.ExpectPaddingUntouched();
  const Floats got = view.Dense();
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(got[i], x[i] * scales[i % n]) << i;
}

TEST_P(RowwiseTest, Adds) {
  const int64_t m = 6, n = 37;
  const Floats x = Random(m * n), before = Random(m * n);
  Poisoned sum(m, n, 3);
  sum.Fill(before);
  Add(Threads(2),
      {.x = x.data(), .ldx = n, .sum = sum.data.data(), .ld_sum = sum.ld, .m = m, .n = n});
  sum.ExpectPaddingUntouched();
  const Floats got = sum.Dense();
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(got[i], before[i] + x[i]) << i;
}

// Heads move apart, to other places, all from one, to zeros, and together in place.
TEST_P(RowwiseTest, MovesHeads) {
  const int64_t m = 5, heads = 3, from_step = 7, to_step = 9, n = 4;
  const Floats x = Random(m * heads * from_step);
  const auto run = [&](const MoveHeadsArgs& args) {
    Poisoned view(m, heads * to_step, 2);
    view.Fill(Floats(static_cast<size_t>(m * heads * to_step), 7.0f));
    MoveHeadsArgs to = args;
    to.to = view.data.data() + 5;
    to.ld_to = view.ld;
    to.to_step = to_step;
    to.m = m;
    to.heads = heads;
    to.n = n;
    MoveHeads(Threads(2), to);
    view.ExpectPaddingUntouched();
    return view.Dense();
  };
  const Floats apart =
      run({.from = x.data() + 2, .ld_from = heads * from_step, .from_step = from_step});
  const Floats all_from_one = run({.from = x.data(), .ld_from = heads * from_step});
  const Floats zeros = run({});
  Floats in_place = x;
  MoveHeads(Threads(2), {.from = in_place.data(),
                         .ld_from = heads * from_step,
                         .from_step = from_step,
                         .to = in_place.data(),
                         .ld_to = heads * from_step,
                         .to_step = n,
                         .m = m,
                         .heads = heads,
                         .n = n});
  for (int64_t row = 0; row < m; ++row) {
    const float* from = &x[row * heads * from_step];
    for (int64_t i = 0; i < heads * to_step; ++i) {
      const int64_t head = i / to_step, at = i % to_step - 5;
      const int64_t place = row * heads * to_step + i;
      const bool is_moved = at >= 0 && at < n;
      ASSERT_EQ(apart[place], is_moved ? from[head * from_step + 2 + at] : 7.0f) << place;
      ASSERT_EQ(all_from_one[place], is_moved ? from[at] : 7.0f) << place;
      ASSERT_EQ(zeros[place], is_moved ? 0.0f : 7.0f) << place;
    }
    for (int64_t i = 0; i < heads * n; ++i) {
      ASSERT_EQ(in_place[row * heads * from_step + i], from[i / n * from_step + i % n]) << i;
    }
  }
}

TEST_P(RowwiseTest, NormalizeInPlace) {
  const Floats x = Random(3 * 50), weight = Random(50);
  Floats y(x.size()), in_place = x;
  NormalizeArgs args{.x = x.data(),
                     .ldx = 50,
                     .y = y.data(),
                     .ldy = 50,
                     .weight = weight.data(),
                     .m = 3,
                     .dim = 50};
  Normalize(Threads(1), args);
  args.x = args.y = in_place.data();
  Normalize(Threads(1), args);
  EXPECT_EQ(in_place, y);
}

TEST_P(RowwiseTest, NormalizeAddsToTheResidualFirst) {
  const int64_t m = 4, dim = 100;
  const Floats r = Random(m * dim), x = Random(m * dim), weight = Random(dim);
  Poisoned residual(m, dim, 3);
  residual.Fill(r);
  Floats y(m * dim);
  Normalize(Threads(1), {.x = x.data(),
                         .ldx = dim,
                         .residual = residual.data.data(),
                         .ld_residual = residual.ld,
                         .y = y.data(),
                         .ldy = dim,
                         .weight = weight.data(),
                         .m = m,
                         .dim = dim});
  residual.ExpectPaddingUntouched();
  reference::Matrix sum = ToDouble(r);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += x[i];
  ExpectClose(residual.Dense(), sum, 1e-7);
  ExpectClose(y, reference::Normalize(sum, ToDouble(weight), 0, 1e-6), 1e-6);
}

TEST_P(RowwiseTest, RopeMatchesReferenceAndLeavesTheRestAlone) {
  struct Case {
    int64_t head_dim;
    int64_t rotary;
    bool interleaved;
  };
  for (const auto& [head_dim, rotary, interleaved] :
       {Case{64, 64, false}, Case{80, 32, false}, Case{20, 20, false}, Case{6, 2, false},
        Case{64, 64, true}, Case{80, 36, true}, Case{6, 2, true}}) {
    const int64_t m = 7, heads = 3, half = rotary / 2, max_position = 50;
    std::vector<double> frequencies(half);
    for (int64_t i = 0; i < half; ++i)
      frequencies[i] = std::pow(0.01, static_cast<double>(i) / half);
    Floats cos(max_position * half), sin(max_position * half);
    for (int64_t p = 0; p < max_position; ++p) {
      for (int64_t i = 0; i < half; ++i) {
        cos[p * half + i] = static_cast<float>(std::cos(p * frequencies[i]));
        sin[p * half + i] = static_cast<float>(std::sin(p * frequencies[i]));
      }
    }
    std::vector<int32_t> positions(m);
    for (auto& p : positions) p = static_cast<int32_t>(RandomInt(0, max_position - 1));
    const Floats x = Random(m * heads * head_dim);
    Poisoned out(m, heads * head_dim, 9);
    out.Fill(x);
    Rope(Threads(3), {.x = out.data.data(),
                      .ld = out.ld,
                      .m = m,
                      .heads = heads,
                      .head_dim = head_dim,
                      .rotary_dim = rotary,
                      .positions = positions.data(),
                      .cos = cos.data(),
                      .sin = sin.data(),
                      .interleaved = interleaved});
    out.ExpectPaddingUntouched();
    ExpectClose(out.Dense(),
                reference::Rope(ToDouble(x), head_dim, positions, frequencies, interleaved), 1e-6);
    const RopeArgs back{.x = out.data.data(),
                        .ld = out.ld,
                        .m = m,
                        .heads = heads,
                        .head_dim = head_dim,
                        .rotary_dim = rotary,
                        .positions = positions.data(),
                        .cos = cos.data(),
                        .sin = sin.data(),
                        .interleaved = interleaved,
                        .backward = true};
    if (!interleaved) {
      EXPECT_THROW(Rope(Threads(3), back), InternalError);
      continue;
    }
    Rope(Threads(3), back);
    out.ExpectPaddingUntouched();
    ExpectClose(out.Dense(), ToDouble(x), 1e-6);
  }
}

TEST_P(RowwiseTest, ActivateMatchesReferenceAlsoInPlace) {
  for (Activation activation : {Activation::kSilu, Activation::kGeluTanh, Activation::kRelu,
                                Activation::kReluSquared, Activation::kGelu}) {
    for (int64_t ffn : {1, 5, 8, 33, 256}) {
      const int64_t m = 6;
      Floats x = Random(m * 2 * ffn, 12);
      x[0] = 200.0f;
      x[2 * ffn] = -200.0f;
      Poisoned in(m, 2 * ffn, 1), out(m, ffn, 1);
      in.Fill(x);
      Activate(Threads(2), {.activation = activation,
                            .x = in.data.data(),
                            .ldx = in.ld,
                            .out = out.data.data(),
                            .ldo = out.ld,
                            .m = m,
                            .ffn = ffn});
      out.ExpectPaddingUntouched();
      ExpectClose(out.Dense(),
                  reference::Activate(ToDouble(x), {.ffn = ffn, .activation = activation}), 2e-6);
      Activate(Threads(2), {.activation = activation,
                            .x = in.data.data(),
                            .ldx = in.ld,
                            .out = in.data.data(),
                            .ldo = in.ld,
                            .m = m,
                            .ffn = ffn});
      for (int64_t i = 0; i < m; ++i) {
        ASSERT_TRUE(SameBits(&in.data[i * in.ld], &out.data[i * out.ld], ffn));
        ASSERT_TRUE(SameBits(&in.data[i * in.ld] + ffn, &x[i * 2 * ffn] + ffn, ffn));
      }
    }
  }
}

TEST_P(RowwiseTest, ActivateWithoutAGate) {
  for (Activation activation : {Activation::kSilu, Activation::kGeluTanh, Activation::kRelu,
                                Activation::kReluSquared, Activation::kXielu, Activation::kGelu}) {
    const int64_t m = 3, ffn = 41;
    const reference::ActivationShape shape{
        .ffn = ffn, .activation = activation, .gated = false, .alpha_p = 0.8, .alpha_n = 1.3};
    Floats x = Random(m * ffn, 6);
    x[0] = 0.0f;
    x[1] = -5e-7f;
    x[2] = -100.0f;
    Poisoned out(m, ffn, 2);
    Activate(Threads(2), {.activation = activation,
                          .gated = false,
                          .alpha_p = 0.8f,
                          .alpha_n = 1.3f,
                          .x = x.data(),
                          .ldx = ffn,
                          .out = out.data.data(),
                          .ldo = out.ld,
                          .m = m,
                          .ffn = ffn});
    out.ExpectPaddingUntouched();
    ExpectClose(out.Dense(), reference::Activate(ToDouble(x), shape), 2e-6);
  }
}

TEST_P(RowwiseTest, ActivateWithCutHalves) {
  const int64_t m = 3, ffn = 41;
  const reference::ActivationShape shape{
      .ffn = ffn, .activation = Activation::kClampedSilu, .limit = 1.5};
  const Floats x = Random(m * 2 * ffn, 6);
  Poisoned out(m, ffn, 2);
  Activate(Threads(2), {.activation = Activation::kClampedSilu,
                        .limit = 1.5f,
                        .x = x.data(),
                        .ldx = 2 * ffn,
                        .out = out.data.data(),
                        .ldo = out.ld,
                        .m = m,
                        .ffn = ffn});
  out.ExpectPaddingUntouched();
  ExpectClose(out.Dense(), reference::Activate(ToDouble(x), shape), 2e-6);
}

TEST_P(RowwiseTest, ActivateWithClampedHalves) {
  const int64_t m = 3, ffn = 41;
  const reference::ActivationShape shape{
      .ffn = ffn, .activation = Activation::kClampedSwiGlu, .sharpness = 1.702, .limit = 2.5};
  Floats x = Random(m * 2 * ffn, 6);
  x[0] = -100.0f;
  x[ffn] = 2.5f;
  Poisoned out(m, ffn, 2);
  const ActivateArgs args{.activation = Activation::kClampedSwiGlu,
                          .sharpness = 1.702f,
                          .limit = 2.5f,
                          .x = x.data(),
                          .ldx = 2 * ffn,
                          .out = out.data.data(),
                          .ldo = out.ld,
                          .m = m,
                          .ffn = ffn};
  Activate(Threads(2), args);
  out.ExpectPaddingUntouched();
  ExpectClose(out.Dense(), reference::Activate(ToDouble(x), shape), 2e-6);
  for (const int64_t at : {int64_t{3}, ffn + 3}) {
    x[at] = std::numeric_limits<float>::quiet_NaN();
    Activate(Threads(2), args);
    EXPECT_TRUE(std::isnan(out.data[3]));
    EXPECT_FALSE(std::isnan(out.data[4]));
    x[at] = 1.0f;
  }
}

TEST_P(RowwiseTest, GatesOfElementsAndOfHeads) {
  const int64_t m = 5, n = 39;
  for (const auto& [per_gate, softplus] :
       {std::pair{1, false}, {3, false}, {13, false}, {39, false}, {1, true}, {13, true}}) {
    const int64_t gates = n / per_gate;
    const Floats gate = Random(m * gates, 3), x = Random(m * n);
    Floats out = x;
    Gate(Threads(2), {.gate = gate.data(),
                      .ld_gate = gates,
                      .x = out.data(),
                      .ldx = n,
                      .m = m,
                      .n = n,
                      .per_gate = per_gate,
                      .softplus = softplus});
    reference::Matrix want;
    for (int64_t i = 0; i < m * n; ++i) {
      const double of_element = gate[i / n * gates + i % n / per_gate];
      want.push_back(
          x[i] * (softplus ? std::log1p(std::exp(of_element)) : 1 / (1 + std::exp(-of_element))));
    }
    ExpectClose(out, want, 1e-6);
  }
  Floats x(4);
  EXPECT_THROW(Gate(Threads(1), {.gate = x.data(),
                                 .ld_gate = 1,
                                 .x = x.data() + 1,
                                 .ldx = 3,
                                 .m = 1,
                                 .n = 3,
                                 .per_gate = 2}),
               InternalError);
}

TEST_P(RowwiseTest, SoftCap) {
  const int64_t m = 3, n = 45;
  const Floats x = Random(m * n, 100);
  Poisoned view(m, n, 3);
  view.Fill(x);
  SoftCap(Threads(2), {.data = view.data.data(), .ld = view.ld, .m = m, .n = n}, 30.0f);
  reference::Matrix capped = ToDouble(x);
  for (double& value : capped) value = 30 * std::tanh(value / 30);
  ExpectClose(view.Dense(), capped, 4e-7);
  view.ExpectPaddingUntouched();
}

TEST_P(RowwiseTest, SoftCapKeepsRelativePrecisionNearZero) {
  Floats x = Random(1000, 1e-3f);
  const Floats before = x;
  SoftCap(Threads(1), {.data = x.data(), .ld = 1000, .m = 1, .n = 1000}, 50.0f);
  for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i] / before[i], 1.0, 1e-6);
}

TEST_P(RowwiseTest, RowsAreTheSameInEveryBatchOnEveryThreadCount) {
  const int64_t m = 40, dim = 1100;
  const Floats x = Random(m * 2 * dim), weight = Random(2 * dim);
  const auto run = [&](const Cpu& cpu, int64_t from, int64_t rows) {
    Floats y(rows * 2 * dim), act(rows * dim);
    Normalize(cpu, {.x = &x[from * 2 * dim],
                    .ldx = 2 * dim,
                    .y = y.data(),
                    .ldy = 2 * dim,
                    .weight = weight.data(),
                    .m = rows,
                    .dim = 2 * dim});
    Activate(cpu,
             {.x = y.data(), .ldx = 2 * dim, .out = act.data(), .ldo = dim, .m = rows, .ffn = dim});
    return act;
  };
  const Floats all = run(Threads(1), 0, m);
  EXPECT_EQ(run(Threads(2), 0, m), all);
  EXPECT_EQ(run(Threads(3), 0, m), all);
  for (int64_t row = 0; row < m; row += 7) {
    const Floats one = run(Threads(1), row, 1);
    ASSERT_TRUE(SameBits(one.data(), &all[row * dim], dim));
  }
}

// Several kernels in one loop give what they give one after the other, also into a linear.
TEST_P(RowwiseTest, StepsInOneLoopAreTheStepsOneByOne) {
  const int64_t m = 70, dim = 48, ffn = 24, n = 40;
  const Floats x = Random(m * dim), r = Random(m * dim), weight = Random(dim),
               dense = Random(n * ffn);
  const AlignedBuffer packed(PackedLinearBytes(isa(), WeightFormat::kQ8, n, ffn));
  const PackedLinear w = MakePackedLinear(isa(), WeightFormat::kQ8, n, ffn, packed.data());
  PackLinear(w, 0, {.dtype = DType::kFloat32, .data = dense.data(), .ld = ffn, .rows = n});
  const AlignedBuffer workspace(LinearWorkspaceBytes(m, ffn));
  const auto run = [&](const Cpu& cpu, bool fused) {
    Floats residual = r, normed(m * dim), active(m * ffn), y(m * n);
    const NormalizeArgs norm{.x = x.data(),
                             .ldx = dim,
                             .residual = residual.data(),
                             .ld_residual = dim,
                             .y = normed.data(),
                             .ldy = dim,
                             .weight = weight.data(),
                             .m = m,
                             .dim = dim};
    const ActivateArgs gate{
        .x = normed.data(), .ldx = dim, .out = active.data(), .ldo = ffn, .m = m, .ffn = ffn};
    const LinearArgs linear{.x = active.data(),
                            .ldx = ffn,
                            .m = m,
                            .y = y.data(),
                            .ldy = n,
                            .workspace = workspace.data()};
    if (fused) {
      Linear(cpu, w, linear, std::array<RowStep, 2>{norm, gate});
    } else {
      Normalize(cpu, norm);
      Activate(cpu, gate);
      Linear(cpu, w, linear);
    }
    y.insert(y.end(), residual.begin(), residual.end());
    return y;
  };
  const Floats one_by_one = run(Threads(1), false);
  for (int threads : {1, 2, 3}) EXPECT_EQ(run(Threads(threads), true), one_by_one) << threads;
}

TEST_P(RowwiseTest, StepsOfDifferentNumbersOfRowsAreRefused) {
  Floats x(100), weight(10);
  const NormalizeArgs norm{.x = x.data(),
                           .ldx = 10,
                           .y = x.data(),
                           .ldy = 10,
                           .weight = weight.data(),
                           .m = 3,
                           .dim = 10};
  NormalizeArgs other = norm;
  other.m = 4;
  EXPECT_THROW(RunRows(Threads(1), std::array<RowStep, 2>{norm, other}), InternalError);
}

INSTANTIATE_TEST_SUITE_P(Isa, RowwiseTest, testing::ValuesIn(IsaNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace mlc_native::kernels
