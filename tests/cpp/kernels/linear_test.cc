#include <algorithm>

#include "kernels/test_util.h"
#include "support/check.h"

namespace mlc_native::kernels {
namespace {

class LinearTest : public KernelTest {
 protected:
  // A packed [n, k] weight and its dense values as the kernel sees them (rounded to the dtype).
  struct Weight {
    Floats dense;
    AlignedBuffer buffer;
    PackedLinear packed;
  };

  Weight MakeWeight(DType dtype, int64_t n, int64_t k) {
    Weight w;
    w.dense = Random(n * k);
    w.buffer = AlignedBuffer(PackedLinearBytes(isa(), dtype, n, k));
    std::memset(w.buffer.data(), 0xff, w.buffer.size());  // NaN in every dtype
    w.packed = MakePackedLinear(isa(), dtype, n, k, w.buffer.data());
    PackLinear(w.packed, 0, {.dtype = DType::kFloat32, .data = w.dense.data(), .ld = k, .rows = n});
    for (float& value : w.dense) value = RoundTo(dtype, value);
    return w;
  }

  Floats Run(const Cpu& cpu, const PackedLinear& w, const Floats& x, const Floats& bias) {
    const int64_t m = static_cast<int64_t>(x.size()) / w.k;
    Poisoned y(m, w.n, 3);
    Linear(cpu, w,
           {.x = x.data(),
            .ldx = w.k,
            .m = m,
            .bias = bias.empty() ? nullptr : bias.data(),
            .y = y.data.data(),
            .ldy = y.ld});
    y.ExpectPaddingUntouched();
    return y.Dense();
  }
};

TEST_P(LinearTest, MatchesReference) {
  for (int trial = 0; trial < 60; ++trial) {
    const auto dtype = static_cast<DType>(trial % 3);
    const int64_t n = RandomInt(1, 200);
    const int64_t k = RandomInt(1, trial % 4 == 0 ? 700 : 90);
    const int64_t m = RandomInt(1, trial % 5 == 0 ? 70 : 14);
    SCOPED_TRACE(testing::Message() << DTypeName(dtype) << " m " << m << " n " << n << " k " << k);
    const Weight w = MakeWeight(dtype, n, k);
    const Floats x = Random(m * k);
    const Floats bias = trial % 2 == 0 ? Random(n) : Floats();
    ExpectClose(Run(Threads(1 + trial % 3), w.packed, x, bias),
                reference::Linear(ToDouble(x), ToDouble(w.dense), ToDouble(bias), m),
                3e-7 * std::sqrt(static_cast<double>(k)) * 4);
  }
}

TEST_P(LinearTest, RowIsTheSameInEveryBatchAtEveryIndexOnEveryThreadCount) {
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    const int64_t n = 16 * 66 + 5, k = 600;  // more than one block of panels and of k
    const Weight w = MakeWeight(dtype, n, k);
    const int64_t rows = 100;
    const Floats x = Random(rows * k), bias = Random(n);
    const Floats all = Run(Threads(1), w.packed, x, bias);
    for (int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 16, 24, 25, 49, 97}) {
      for (int64_t at : {int64_t{0}, RandomInt(0, rows - m)}) {
        const Floats part(x.begin() + at * k, x.begin() + (at + m) * k);
        const Floats y = Run(Threads(1 + static_cast<int>(m) % 3), w.packed, part, bias);
        ASSERT_TRUE(SameBits(y.data(), &all[at * n], m * n)) << "m " << m << " at " << at;
      }
    }
    for (int threads : {2, 3}) {
      const Floats y = Run(Threads(threads), w.packed, x, bias);
      ASSERT_TRUE(SameBits(y.data(), all.data(), rows * n)) << threads << " threads";
    }
  }
}

TEST_P(LinearTest, FusedPartsPackLikeOneMatrix) {
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    const int64_t n = 77, k = 37;
    const Weight whole = MakeWeight(dtype, n, k);
    const AlignedBuffer buffer(PackedLinearBytes(isa(), dtype, n, k));
    std::memset(buffer.data(), 0xff, buffer.size());
    const PackedLinear parts = MakePackedLinear(isa(), dtype, n, k, buffer.data());
    // Last part first, offsets off the panel grid, source rows with a stride, each in its own
    // dtype.
    for (auto [from, rows] : {std::pair<int64_t, int64_t>{41, 36}, {0, 19}, {19, 22}}) {
      const auto source_dtype = rows == 22 ? dtype : DType::kFloat32;
      const AlignedBuffer source(rows * (k + 5) * 4);
      for (int64_t i = 0; i < rows * k; ++i) {
        StoreElement(source_dtype, source.data(), i / k * (k + 5) + i % k,
                     whole.dense[from * k + i]);
      }
      PackLinear(parts, from,
                 {.dtype = source_dtype, .data = source.data(), .ld = k + 5, .rows = rows});
    }
    const Floats x = Random(3 * k);
    EXPECT_EQ(Run(Threads(1), parts, x, {}), Run(Threads(1), whole.packed, x, {}));
  }
}

TEST_P(LinearTest, ColumnsBeyondTheLastRowAreZero) {
  const int64_t n = 77, k = 10;
  const Weight w = MakeWeight(DType::kFloat32, n, k);
  const auto* data = static_cast<const float*>(w.buffer.data());
  const int64_t width = w.packed.panel_width;
  for (int64_t column = n; column % width != 0; ++column) {
    for (int64_t i = 0; i < k; ++i) {
      ASSERT_EQ(data[(column / width * k + i) * width + column % width], 0.0f);
    }
  }
}

TEST_P(LinearTest, InputStrideIsUsed) {
  const Weight w = MakeWeight(DType::kBFloat16, 40, 33);
  const Floats x = Random(9 * 33);
  Poisoned padded(9, 33, 7);
  padded.Fill(x);
  Floats y(9 * 40);
  Linear(Threads(1), w.packed,
         {.x = padded.data.data(), .ldx = padded.ld, .m = 9, .y = y.data(), .ldy = 40});
  EXPECT_EQ(y, Run(Threads(1), w.packed, x, {}));
}

TEST_P(LinearTest, NanInOneRowStaysInThatRow) {
  const Weight w = MakeWeight(DType::kFloat32, 20, 50);
  Floats x = Random(8 * 50);
  const Floats before = Run(Threads(1), w.packed, x, {});
  x[3 * 50 + 7] = std::numeric_limits<float>::quiet_NaN();
  const Floats after = Run(Threads(1), w.packed, x, {});
  EXPECT_TRUE(std::isnan(after[3 * 20]));
  EXPECT_TRUE(SameBits(after.data(), before.data(), 3 * 20));
  EXPECT_TRUE(SameBits(&after[4 * 20], &before[4 * 20], 4 * 20));
}

TEST_P(LinearTest, GathersRowsOfThePackedTable) {
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    const int64_t n = 53, k = 41;
    const Weight w = MakeWeight(dtype, n, k);
    std::vector<int32_t> ids;
    for (int i = 0; i < 20; ++i) ids.push_back(static_cast<int32_t>(RandomInt(0, n - 1)));
    ids.push_back(52);
    const auto m = static_cast<int64_t>(ids.size());
    const AlignedBuffer plain(n * k * 4);
    for (int64_t i = 0; i < n * k; ++i) StoreElement(dtype, plain.data(), i, w.dense[i]);
    Poisoned packed_out(m, k, 2), plain_out(m, k, 2);
    GatherArgs args{.ids = ids.data(), .m = m, .scale = 3.0f, .ldo = packed_out.ld};
    args.out = packed_out.data.data();
    GatherPackedRows(Threads(2), w.packed, args);
    args.out = plain_out.data.data();
    GatherRows(Threads(2), {.dtype = dtype, .data = plain.data(), .n = n, .k = k, .ld = k}, args);
    packed_out.ExpectPaddingUntouched();
    EXPECT_EQ(packed_out.data, plain_out.data);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < k; ++j) {
        ASSERT_EQ(packed_out.data[i * packed_out.ld + j], 3.0f * w.dense[ids[i] * k + j]);
      }
    }
  }
}

TEST_P(LinearTest, WrongCallsAreInternalErrors) {
  const Weight w = MakeWeight(DType::kFloat32, 10, 10);
  Floats x(10), y(10);
  PackedLinear other_isa = w.packed;
  other_isa.panel_width *= 2;
  EXPECT_THROW(
      Linear(Threads(1), other_isa, {.x = x.data(), .ldx = 10, .m = 1, .y = y.data(), .ldy = 10}),
      InternalError);
  EXPECT_THROW(PackLinear(w.packed, 5, {.data = x.data(), .ld = 10, .rows = 6}), InternalError);
  const int32_t id = 10;
  EXPECT_THROW(
      GatherPackedRows(Threads(1), w.packed, {.ids = &id, .m = 1, .out = y.data(), .ldo = 10}),
      InternalError);
}

INSTANTIATE_TEST_SUITE_P(Isa, LinearTest, testing::ValuesIn(IsaNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace mlc_native::kernels
