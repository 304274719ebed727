#include "cuda/gemv_weights.h"

namespace mlc_native::kernels::cuda {
namespace {

using Bytes = std::vector<uint8_t>;
using Product = void (*)(const GemvArgs&, Stream);

class GemmTest : public GemvWeightsTest {
 protected:
  // A product of the first m rows of x, whose bits it returns. Rows lie further apart than they
  // need be, and what lies between those of y is not written.
  struct Case {
    Case(GemmTest& test, DType dtype, WeightFormat format, int64_t n, int64_t k, int64_t max_rows,
         bool has_bias, bool float_output)
        : weights(test.RandomWeights(format, n, k)),
          x(Encode(dtype, test.Random(dtype, max_rows * (k + 8)))),
          bias(Encode(dtype, test.Random(dtype, n, 4))),
          args{.format = format,
               .dtype = dtype,
               .n = n,
               .k = k,
               .ldx = k + 8,
               .ldy = n + 8,
               .float_output = float_output},
          y_type(float_output ? DType::kFloat32 : dtype),
          weight(weights.bytes),
          device_bias(bias) {
      args.weight = weight.data();
      args.bias = has_bias ? device_bias.data() : nullptr;
    }

    // Of m rows from row `first` on.
    Bytes Run(Product product, int64_t m, int64_t first = 0) const {
      const int64_t row_bytes = args.ldx * static_cast<int64_t>(DTypeSize(args.dtype));
      const DeviceBytes rows(
          Bytes(x.begin() + first * row_bytes, x.begin() + (first + m) * row_bytes));
      const DeviceBytes y(m * args.ldy * DTypeSize(y_type));
      GemvArgs all = args;
      all.x = rows.data();
      all.y = y.data();
      all.m = m;
      product(all, nullptr);
      const Bytes padded = y.Download();
      const Floats values = Decode(y_type, padded);
      const auto size = static_cast<int64_t>(DTypeSize(y_type));
      Bytes dense;
      for (int64_t i = 0; i < m; ++i) {
        const auto begin = padded.begin() + i * args.ldy * size;
        const int64_t columns_of_y = columns > 0 ? columns : args.n;
        dense.insert(dense.end(), begin, begin + columns_of_y * size);
        for (int64_t j = columns_of_y; j < args.ldy; ++j) {
          EXPECT_TRUE(std::isnan(values[i * args.ldy + j])) << "written outside the row";
        }
      }
      return dense;
    }

    void CheckSomeRows(Product product, int64_t m) const {
      const Bytes all = Run(product, m);
      const int64_t row_bytes = std::ssize(all) / m;
      for (int64_t row : {int64_t{0}, int64_t{7}, int64_t{63}, m / 2, m - 1}) {
        const auto begin = all.begin() + row * row_bytes;
        ASSERT_EQ(Bytes(begin, begin + row_bytes), Run(Gemv, 1, row))
            << args.n << " x " << args.k << ", row " << row << " of " << m;
      }
    }

    // Gemv of each row alone.
    Bytes RowByRow(int64_t m) const {
      Bytes all;
      for (int64_t i = 0; i < m; ++i) {
        const Bytes row = Run(Gemv, 1, i);
        all.insert(all.end(), row.begin(), row.end());
      }
      return all;
    }

    GemvWeights weights;
    Bytes x, bias;
    GemvArgs args;
    int64_t columns = 0;  // of y; 0: n
    DType y_type;
    DeviceBytes weight, device_bias;
  };

  static Bytes FirstRows(const Bytes& all, const Bytes& some) {
    return {all.begin(), all.begin() + std::ssize(some)};
  }
};

// Any two batch sizes have equal rows if each has those of the rows alone.
TEST_F(GemmTest, ARowIsTheSameInEveryBatchOfUpTo64) {
  for (WeightFormat format : FormatsWith(DType::kBFloat16)) {
    const Case c(*this, DType::kBFloat16, format, 21, 328, 64, false, true);
    const Bytes want = c.RowByRow(64);
    for (int64_t m = 1; m <= 64; ++m) {
      const Bytes got = c.Run(Gemm, m);
      ASSERT_EQ(got, FirstRows(want, got)) << "format " << static_cast<int>(format) << ", " << m;
      if (m > kMaxGemvRows) continue;
      ASSERT_EQ(c.Run(Gemv, m), got) << "format " << static_cast<int>(format) << ", " << m;
    }
  }
}

// More than eight steps, so that chains have several; tiles of all sizes; ends of n and k.
TEST_F(GemmTest, LargerBatchesHaveTheSameRows) {
  for (WeightFormat format : FormatsWith(DType::kBFloat16)) {
    const Case c(*this, DType::kBFloat16, format, 150, 1288, 257, true, false);
    for (int64_t m : {65, 128, 257}) c.CheckSomeRows(Gemm, m);
  }
  for (WeightFormat format : {WeightFormat::kQ8Group32, WeightFormat::kQ4Affine}) {
    const Case c(*this, DType::kFloat16, format, 150, 1288, 257, true, false);
    for (int64_t m : {65, 257}) c.CheckSomeRows(Gemm, m);
  }
  for (const auto& [n, k] : {std::pair{1, 8}, {40, 264}, {300, 72}, {33, 2184}}) {
    const Case c(*this, DType::kFloat16, WeightFormat::kFloat16, n, k, 1000, true, true);
    c.CheckSomeRows(Gemm, 100);
    c.CheckSomeRows(Gemm, 1000);
  }
}

// The last chain has as many steps as the others, or one less, or none. (With 15 and 23 steps its
// sum was once left out.)
TEST_F(GemmTest, EveryNumberOfStepsHasTheSameRows) {
  for (int64_t steps = 1; steps <= 24; ++steps) {
    const Case c(*this, DType::kBFloat16, WeightFormat::kBFloat16, 16, steps * kGemvStep, 65, false,
                 true);
    c.CheckSomeRows(Gemm, 65);
    if (HasBatchGemv(c.args)) c.CheckSomeRows(BatchGemv, 65);
    if (HasWarpgroupGemm(c.args)) c.CheckSomeRows(WarpgroupGemm, 65);
  }
}

// Each tile; ends of n and k; several chains of several steps, and chains without one.
TEST_F(GemmTest, WarpgroupsHaveTheSameRows) {
  const Case c(*this, DType::kBFloat16, WeightFormat::kBFloat16, 150, 1288, 257, true, false);
  if (!HasWarpgroupGemm({.format = c.args.format, .dtype = c.args.dtype})) GTEST_SKIP();
  for (int64_t m : {1, 9, 33}) ASSERT_EQ(c.Run(WarpgroupGemm, m), c.RowByRow(m));
  for (int64_t m : {65, 128, 257}) c.CheckSomeRows(WarpgroupGemm, m);
  for (const auto& [n, k] : {std::pair{1, 8}, {40, 264}, {300, 72}, {33, 2184}, {700, 136}}) {
    const Case d(*this, DType::kFloat16, WeightFormat::kFloat16, n, k, 1000, true, true);
    d.CheckSomeRows(WarpgroupGemm, 100);
    d.CheckSomeRows(WarpgroupGemm, 1000);
  }
  const Case e(*this, DType::kBFloat16, WeightFormat::kBFloat16, 21, 328, 70, false, true);
  ASSERT_EQ(e.Run(WarpgroupGemm, 70), e.RowByRow(70));
}

// The sums of 16 products are added as one, whatever their order: the two kernels differ in it.
TEST_F(GemmTest, WarpgroupsRoundAsOtherProductsDo) {
  const Case c(*this, DType::kBFloat16, WeightFormat::kBFloat16, 128, 4096, 100, false, true);
  if (!HasWarpgroupGemm({.format = c.args.format, .dtype = c.args.dtype})) GTEST_SKIP();
  ASSERT_EQ(c.Run(WarpgroupGemm, 100), c.Run(BatchGemv, 100));
}

TEST_F(GemmTest, Float16AndFloat32) {
  for (WeightFormat format : QuantizedFormats(DType::kFloat16)) {
    const Case c(*this, DType::kFloat16, format, 40, 200, 70, true, false);
    ASSERT_EQ(c.Run(Gemm, 70), c.RowByRow(70));
  }
  const Case c(*this, DType::kFloat32, WeightFormat::kFloat32, 11, 72, 70, true, true);
  ASSERT_EQ(c.Run(Gemm, 70), c.RowByRow(70));
}

TEST_F(GemmTest, ProductsAreThoseOfTheReference) {
  for (WeightFormat format : FormatsWith(DType::kBFloat16)) {
    const Case c(*this, DType::kBFloat16, format, 140, 1160, 130, true, true);
    Floats x;
    const Floats wide = Decode(DType::kBFloat16, c.x);
    for (int64_t i = 0; i < 130; ++i) {
      x.insert(x.end(), &wide[i * c.args.ldx], &wide[i * c.args.ldx] + 1160);
    }
    const auto want = reference::Linear(ToDouble(x), ToDouble(c.weights.dense),
                                        ToDouble(Decode(DType::kBFloat16, c.bias)), 130);
    ExpectClose(Decode(c.y_type, c.Run(Gemm, 130)), want, 3e-5);
  }
}

TEST_F(GemmTest, AddsToTheResidual) {
  Case c(*this, DType::kBFloat16, WeightFormat::kBFloat16, 20, 64, 40, false, true);
  const Floats residual = Random(DType::kFloat32, 40 * c.args.ldy, 5);
  const DeviceBytes x(c.x);
  const DeviceArray<float> y(residual), plain(40 * c.args.ldy);
  c.args.x = x.data();
  c.args.m = 40;
  c.args.y = plain.data();
  Gemm(c.args, nullptr);
  c.args.y = y.data();
  c.args.accumulate = true;
  Gemm(c.args, nullptr);
  const Floats got = y.Download();
  const Floats added = Decode(DType::kBFloat16, Encode(DType::kBFloat16, plain.Download()));
  for (int64_t i = 0; i < 40 * c.args.ldy; ++i) {
    const bool is_inside = i % c.args.ldy < c.args.n;
    ASSERT_EQ(got[i], is_inside ? residual[i] + added[i] : residual[i]) << i;
  }
}

// Of all numbers of rows that a block may have, with steps for some of the eight chains, one each,
// and several; with ends of n and k.
TEST_F(GemmTest, BatchGemvHasTheRowsOfGemv) {
  for (const auto& [n, k] : {std::pair{21, 328}, {70, 2184}}) {
    for (WeightFormat format : FormatsWith(DType::kBFloat16)) {
      const Case c(*this, DType::kBFloat16, format, n, k, 128, true, n == 70);
      const Bytes want = c.Run(Gemm, 128);
      for (int64_t m : {9, 16, 31, 64, 100}) {
        const Bytes got = c.Run(BatchGemv, m);
        ASSERT_EQ(got, FirstRows(want, got)) << "format " << static_cast<int>(format) << ", " << m;
      }
    }
  }
  // Enough columns for fewer splits on a GPU.
  for (WeightFormat format : {WeightFormat::kBFloat16, WeightFormat::kQ8}) {
    const Case c(*this, DType::kBFloat16, format, 2200, 136, 40, false, true);
    for (int64_t m : {20, 40}) ASSERT_EQ(c.Run(BatchGemv, m), c.Run(Gemm, m));
  }
  for (WeightFormat format : FormatsWith(DType::kFloat16)) {
    const Case c(*this, DType::kFloat16, format, 33, 1032, 128, true, false);
    const Bytes want = c.Run(Gemm, 128);
    for (int64_t m : {12, 24, 48}) ASSERT_EQ(c.Run(BatchGemv, m), FirstRows(want, c.Run(Gemm, m)));
  }
}

TEST_F(GemmTest, BatchGemvActivatesAsGemv) {
  for (const bool gated : {true, false}) {
    for (WeightFormat format : FormatsWith(DType::kBFloat16)) {
      Case c(*this, DType::kBFloat16, format, 88, 1160, 96, true, false);
      c.args.activates = true;
      c.args.activation = {.activation = Activation::kSilu, .gated = gated};
      c.columns = gated ? 44 : 88;
      const Bytes all = c.Run(BatchGemv, 96);
      for (int64_t first : {0, 32, 64}) {
        const Bytes want = c.Run(Gemv, 32, first);
        ASSERT_EQ(Bytes(all.begin() + first * (std::ssize(want) / 32),
                        all.begin() + (first + 32) * (std::ssize(want) / 32)),
                  want)
            << static_cast<int>(format);
      }
    }
  }
}

TEST_F(GemmTest, BatchGemvAddsToTheResidual) {
  Case c(*this, DType::kBFloat16, WeightFormat::kBFloat16, 20, 64, 40, false, true);
  const Floats residual = Random(DType::kFloat32, 40 * c.args.ldy, 5);
  const DeviceBytes x(c.x);
  const DeviceArray<float> y(residual), want(residual);
  c.args.x = x.data();
  c.args.m = 40;
  c.args.accumulate = true;
  c.args.y = want.data();
  Gemm(c.args, nullptr);
  c.args.y = y.data();
  BatchGemv(c.args, nullptr);
  EXPECT_EQ(y.Download(), want.Download());
}

TEST_F(GemmTest, ChecksTheShape) {
  EXPECT_ANY_THROW(BatchGemv({.n = 8, .k = 12, .m = 40}, nullptr));
  EXPECT_ANY_THROW(BatchGemv({.n = 8, .k = 16, .m = 129}, nullptr));
  EXPECT_ANY_THROW(BatchGemv({.n = 8, .k = 16, .m = 40, .accumulate = true}, nullptr));
  EXPECT_ANY_THROW(Gemm({.n = 8, .k = 12, .m = 40}, nullptr));
  EXPECT_ANY_THROW(Gemm({.n = 8, .k = 16, .m = 40, .accumulate = true}, nullptr));
  EXPECT_ANY_THROW(Gemm({.format = WeightFormat::kFloat16, .n = 8, .k = 16, .m = 40}, nullptr));
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
