#include "cuda/gemv_weights.h"

namespace mlc_native::kernels::cuda {
namespace {

class GemvTest : public GemvWeightsTest {
 protected:
  struct Shape {
    int64_t n, k, m;
    bool has_bias = false;
    bool float_output = false;
  };

  static Floats Run(DType dtype, const GemvWeights& weights, const Shape& s, const Floats& x,
                    const Floats& bias) {
    const int64_t ldx = s.k + 8;
    const int64_t ldy = s.n + 8;
    Floats padded(s.m * ldx, 1e30f);
    for (int64_t i = 0; i < s.m; ++i) std::copy_n(&x[i * s.k], s.k, &padded[i * ldx]);
    const DType out = s.float_output ? DType::kFloat32 : dtype;
    DeviceBytes weight(weights.bytes), device_x(Encode(dtype, padded)),
        device_bias(Encode(dtype, bias)), y(s.m * ldy * DTypeSize(out));
    Gemv({.format = weights.format,
          .dtype = dtype,
          .weight = weight.data(),
          .n = s.n,
          .k = s.k,
          .x = device_x.data(),
          .ldx = ldx,
          .m = s.m,
          .bias = s.has_bias ? device_bias.data() : nullptr,
          .y = y.data(),
          .ldy = ldy,
          .float_output = s.float_output},
         nullptr);
    const Floats got = Decode(out, y.Download());
    Floats dense;
    for (int64_t i = 0; i < s.m; ++i) {
      dense.insert(dense.end(), &got[i * ldy], &got[i * ldy] + s.n);
      for (int64_t j = s.n; j < ldy; ++j) EXPECT_TRUE(std::isnan(got[i * ldy + j]));
    }
    return dense;
  }

  void Check(DType dtype, WeightFormat format, const Shape& s) {
    const GemvWeights weights = RandomWeights(format, s.n, s.k);
    const Floats x = Random(dtype, s.m * s.k);
    const Floats bias = Random(dtype, s.n, 4);
    const auto want = reference::Linear(ToDouble(x), ToDouble(weights.dense),
                                        s.has_bias ? ToDouble(bias) : reference::Matrix(), s.m);
    ExpectClose(Run(dtype, weights, s, x, bias), want,
                (s.float_output ? 0 : Epsilon(dtype)) + 3e-5);
  }
};

TEST_F(GemvTest, EveryFormatAndOddShapes) {
  for (DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (WeightFormat format : FormatsWith(dtype)) {
      Check(dtype, format, {.n = 1, .k = 8, .m = 1});
      Check(dtype, format, {.n = 17, .k = 40, .m = 3, .has_bias = true});
      Check(dtype, format, {.n = 100, .k = 264, .m = 8, .float_output = true});
      Check(dtype, format, {.n = 24, .k = 1160, .m = 9});
      Check(dtype, format, {.n = 9, .k = 128, .m = 32, .has_bias = true, .float_output = true});
    }
  }
  Check(DType::kFloat32, WeightFormat::kFloat32, {.n = 11, .k = 72, .m = 5, .has_bias = true});
}

TEST_F(GemvTest, ARowIsTheSameInEveryBatch) {
  const int64_t n = 104;
  const int64_t k = 520;
  for (WeightFormat format : FormatsWith(DType::kBFloat16)) {
    const GemvWeights weights = RandomWeights(format, n, k);
    const Floats x = Random(DType::kBFloat16, 20 * k);
    const Shape all{.n = n, .k = k, .m = 20, .float_output = true};
    const Floats batch = Run(DType::kBFloat16, weights, all, x, Floats(n));
    for (int64_t row : {0, 7, 19}) {
      const Floats one(x.begin() + row * k, x.begin() + (row + 1) * k);
      Shape alone = all;
      alone.m = 1;
      EXPECT_EQ(Run(DType::kBFloat16, weights, alone, one, Floats(n)),
                Floats(batch.begin() + row * n, batch.begin() + (row + 1) * n));
    }
  }
}

// With the bits of a product and an activation, in every batch.
TEST_F(GemvTest, Activates) {
  const int64_t k = 264;
  const int64_t ffn = 24;
  const int64_t rows = 19;
  for (DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (WeightFormat format : FormatsWith(dtype)) {
      for (const ActivationRule& rule :
           {ActivationRule{}, ActivationRule{.activation = Activation::kGeluTanh},
            ActivationRule{.activation = Activation::kRelu, .gated = false},
            ActivationRule{.activation = Activation::kReluSquared, .gated = false},
            ActivationRule{
                .activation = Activation::kClampedSwiGlu, .sharpness = 1.702f, .limit = 3}}) {
        const int64_t n = rule.gated ? 2 * ffn : ffn;
        const GemvWeights weights = RandomWeights(format, n, k);
        const Floats x = Random(dtype, rows * k, 0.2f);
        const Floats bias = Random(dtype, n, 4);
        const auto want = reference::Activate(
            reference::Linear(ToDouble(x), ToDouble(weights.dense), ToDouble(bias), rows),
            {.ffn = ffn,
             .activation = rule.activation,
             .gated = rule.gated,
             .sharpness = rule.sharpness,
             .limit = rule.limit});
        const DeviceBytes weight(weights.bytes), device_x(Encode(dtype, x)),
            device_bias(Encode(dtype, bias));
        const auto run = [&](int64_t first, int64_t m, bool is_fused) {
          const auto size = static_cast<int64_t>(DTypeSize(dtype));
          const DeviceBytes sums(m * n * size), y(m * ffn * size);
          GemvArgs args{.format = format,
                        .dtype = dtype,
                        .weight = weight.data(),
                        .n = n,
                        .k = k,
                        .x = device_x.data() + first * k * size,
                        .ldx = k,
                        .m = m,
                        .bias = device_bias.data(),
                        .y = sums.data(),
                        .ldy = n};
          if (is_fused) {
            args.y = y.data();
            args.ldy = ffn;
            args.activates = true;
            args.activation = rule;
          }
          Gemv(args, nullptr);
          if (!is_fused) {
            Activate({.dtype = dtype,
                      .rule = rule,
                      .x = sums.data(),
                      .out = y.data(),
                      .m = m,
                      .ffn = ffn},
                     nullptr);
          }
          return Decode(dtype, y.Download());
        };
        const Floats all = run(0, rows, true);
        ExpectClose(all, want, 3 * Epsilon(dtype));
        EXPECT_EQ(all, run(0, rows, false));
        for (const int64_t row : {0, 7, 18}) {
          EXPECT_EQ(run(row, 1, true),
                    Floats(all.begin() + row * ffn, all.begin() + (row + 1) * ffn));
        }
      }
    }
  }
}

// The last block of columns is not full, and the last tile of rows neither.
TEST_F(GemvTest, ActivatesOddShapes) {
  const int64_t k = 40;
  const int64_t ffn = 21;
  const GemvWeights weights = RandomWeights(WeightFormat::kBFloat16, 2 * ffn, k);
  const Floats x = Random(DType::kBFloat16, 3 * k);
  const DeviceBytes weight(weights.bytes), device_x(Encode(DType::kBFloat16, x)),
      y(3 * (ffn + 3) * 2);
  Gemv({.weight = weight.data(),
        .n = 2 * ffn,
        .k = k,
        .x = device_x.data(),
        .ldx = k,
        .m = 3,
        .y = y.data(),
        .ldy = ffn + 3,
        .activates = true},
       nullptr);
  const auto want = reference::Activate(
      reference::Linear(ToDouble(x), ToDouble(weights.dense), {}, 3), {.ffn = ffn});
  const Floats got = Decode(DType::kBFloat16, y.Download());
  for (int64_t i = 0; i < 3; ++i) {
    const Floats row(&got[i * (ffn + 3)], &got[i * (ffn + 3)] + ffn);
    ExpectClose(row, {want.begin() + i * ffn, want.begin() + (i + 1) * ffn}, 0.02);
    for (int64_t j = ffn; j < ffn + 3; ++j) EXPECT_TRUE(std::isnan(got[i * (ffn + 3) + j]));
  }
}

// With the bits of a product and AddNorm.
TEST_F(GemvTest, AddsToTheResidual) {
  const int64_t n = 24;
  const int64_t k = 64;
  const int64_t rows = 3;
  for (DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
    const GemvWeights weights = RandomWeights(FormatOf(dtype), n, k);
    const Floats before = Random(DType::kFloat32, rows * n, 5);
    const DeviceBytes weight(weights.bytes), x(Encode(dtype, Random(dtype, rows * k))),
        y(rows * n * DTypeSize(dtype));
    const DeviceArray<float> want(before), got(before);
    GemvArgs args{.format = weights.format,
                  .dtype = dtype,
                  .weight = weight.data(),
                  .n = n,
                  .k = k,
                  .x = x.data(),
                  .ldx = k,
                  .m = rows,
                  .y = y.data(),
                  .ldy = n};
    Gemv(args, nullptr);
    AddNorm({.dtype = dtype, .residual = want.data(), .x = y.data(), .m = rows, .dim = n}, nullptr);
    args.y = got.data();
    args.float_output = args.accumulate = true;
    Gemv(args, nullptr);
    EXPECT_EQ(got.Download(), want.Download());
    EXPECT_NE(got.Download(), before);
  }
}

TEST_F(GemvTest, DequantizesSlicesOfRows) {
  const int64_t n = 17;
  const int64_t k = 264;  // the last step is not full
  for (DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (WeightFormat format : QuantizedFormats(dtype)) {
      const GemvWeights weights = RandomWeights(format, n, k);
      const Floats want = Decode(dtype, Encode(dtype, weights.dense));
      DeviceBytes packed(weights.bytes);
      for (const auto& [first, rows] : {std::pair{0, 17}, std::pair{5, 7}, std::pair{16, 1}}) {
        DeviceBytes out(rows * k * DTypeSize(dtype));
        Dequantize({.format = format,
                    .dtype = dtype,
                    .weight = packed.data(),
                    .n = n,
                    .k = k,
                    .first_row = first,
                    .num_rows = rows,
                    .out = out.data()},
                   nullptr);
        EXPECT_EQ(Decode(dtype, out.Download()),
                  Floats(want.begin() + first * k, want.begin() + (first + rows) * k));
      }
    }
  }
}

TEST_F(GemvTest, ChecksTheShape) {
  EXPECT_ANY_THROW(Gemv({.n = 8, .k = 12, .m = 1}, nullptr));
  EXPECT_ANY_THROW(Gemv({.n = 8, .k = 16, .m = kMaxGemvRows + 1}, nullptr));
  EXPECT_ANY_THROW(Gemv({.n = 8, .k = 16, .m = 1, .accumulate = true}, nullptr));
  EXPECT_ANY_THROW(Gemv({.format = WeightFormat::kFloat16, .n = 8, .k = 16, .m = 1}, nullptr));
  EXPECT_ANY_THROW(Gemv({.n = 7, .k = 16, .m = 1, .activates = true}, nullptr));
  EXPECT_ANY_THROW(
      Gemv({.n = 8, .k = 16, .m = 1, .float_output = true, .activates = true}, nullptr));
  EXPECT_ANY_THROW(Gemv({.n = 8,
                         .k = 16,
                         .m = 1,
                         .activates = true,
                         .activation = {.activation = Activation::kXielu}},
                        nullptr));
  EXPECT_ANY_THROW(GemvWeightBytes(WeightFormat::kBFloat16, 8, 16));
  EXPECT_ANY_THROW(Dequantize({.format = WeightFormat::kBFloat16, .n = 8, .k = 16}, nullptr));
  EXPECT_ANY_THROW(Dequantize({.n = 8, .k = 16, .first_row = 4, .num_rows = 5}, nullptr));
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
