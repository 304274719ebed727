#include <algorithm>
#include <cmath>

#include "kernels/packed_format.h"
#include "kernels/test_util.h"
#include "support/check.h"
#include "support/half.h"

namespace mlc_native::kernels {
namespace {

class LinearTest : public KernelTest {
 protected:
  // A packed [n, k] weight and its dense values as the kernel sees them.
  struct Weight {
    Floats dense;
    AlignedBuffer buffer;
    PackedLinear packed;
  };

  Weight MakeWeight(WeightFormat format, int64_t n, int64_t k) {
    Weight w;
    w.dense = Random(n * k);
    w.buffer = AlignedBuffer(PackedLinearBytes(isa(), format, n, k));
    std::memset(w.buffer.data(), 0xff, w.buffer.size());  // NaN in every float type
    w.packed = MakePackedLinear(isa(), format, n, k, w.buffer.data());
    PackLinear(w.packed, 0, {.dtype = DType::kFloat32, .data = w.dense.data(), .ld = k, .rows = n});
    w.dense = Unpack(w.packed);
    return w;
  }

  // Every row of the weight, as a table look-up gives it.
  Floats Unpack(const PackedLinear& w) {
    Floats dense(w.n * w.k);
    std::vector<int32_t> ids(w.n);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
    GatherPackedRows(Threads(1), w, {.ids = ids.data(), .m = w.n, .out = dense.data(), .ldo = w.k});
    return dense;
  }

  // x as the kernel multiplies it: rounded to bfloat16, or to 8 bits group by group.
  Floats Rounded(WeightFormat format, Floats x, int64_t k) {
    const bool as_bfloat16 = format == WeightFormat::kBFloat16 || format == WeightFormat::kFloat8;
    if (as_bfloat16 && rounds_inputs()) {
      for (float& value : x) value = RoundTo(DType::kBFloat16, value);
    }
    if (!SumsIntegers(format)) return x;
    const int64_t group = LayoutOf(format).group;
    for (int64_t row = 0; row < static_cast<int64_t>(x.size()); row += k) {
      for (int64_t at = row; at < row + k; at += group) {
        const int64_t end = std::min(at + group, row + k);
        float largest = 0;
        for (int64_t i = at; i < end; ++i) largest = std::max(largest, std::fabs(x[i]));
        const float scale = InputScaleOf(format, largest);
        const float inverse = HasExponentScale(format) ? 1 / scale : 127.0f / largest;
        for (int64_t i = at; i < end; ++i) {
          x[i] = largest > 0 ? std::nearbyint(x[i] * inverse) * scale : 0;
        }
      }
    }
    return x;
  }

  Floats Run(const Cpu& cpu, const PackedLinear& w, const Floats& x, const Floats& bias) {
    const int64_t m = static_cast<int64_t>(x.size()) / w.k;
    const AlignedBuffer workspace(LinearWorkspaceBytes(m, w.k));
    std::memset(workspace.data(), 0xff, workspace.size());
    Poisoned y(m, w.n, 3);
    Linear(cpu, w,
           {.x = x.data(),
            .ldx = w.k,
            .m = m,
            .bias = bias.empty() ? nullptr : bias.data(),
            .y = y.data.data(),
            .ldy = y.ld,
            .workspace = workspace.data()});
    y.ExpectPaddingUntouched();
    return y.Dense();
  }
};

TEST_P(LinearTest, MatchesReference) {
  for (int trial = 0; trial < 140; ++trial) {
    const WeightFormat format = kWeightFormats[trial % std::size(kWeightFormats)];
    const int64_t n = RandomInt(1, 200);
    const int64_t k = RandomInt(1, trial % 4 == 0 ? 1500 : 90);
    const int64_t m = RandomInt(1, trial % 3 == 0 ? 70 : 14);
    SCOPED_TRACE(testing::Message()
                 << FormatName(format) << " m " << m << " n " << n << " k " << k);
    const Weight w = MakeWeight(format, n, k);
    const Floats x = Random(m * k);
    const Floats bias = trial % 2 == 0 ? Random(n) : Floats();
    ExpectClose(
        Run(Threads(1 + trial % 3), w.packed, x, bias),
        reference::Linear(ToDouble(Rounded(format, x, k)), ToDouble(w.dense), ToDouble(bias), m),
        3e-7 * std::sqrt(static_cast<double>(k)) * 4);
  }
}

TEST_P(LinearTest, RowIsTheSameInEveryBatchAtEveryIndexOnEveryThreadCount) {
  for (WeightFormat format : kWeightFormats) {
    const int64_t n = 32 * 3 + 5, k = 701;  // several panels a thread, more than one block of k
    const Weight w = MakeWeight(format, n, k);
    const int64_t rows = 100;
    const Floats x = Random(rows * k), bias = Random(n);
    const Floats all = Run(Threads(1), w.packed, x, bias);
    for (int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 16, 24, 25, 49, 97}) {
      for (int64_t at : {int64_t{0}, RandomInt(0, rows - m)}) {
        const Floats part(x.begin() + at * k, x.begin() + (at + m) * k);
        const Floats y = Run(Threads(1 + static_cast<int>(m) % 3), w.packed, part, bias);
        ASSERT_TRUE(SameBits(y.data(), &all[at * n], m * n))
            << "format " << static_cast<int>(format) << " m " << m << " at " << at;
      }
    }
    for (int threads : {2, 3}) {
      const Floats y = Run(Threads(threads), w.packed, x, bias);
      ASSERT_TRUE(SameBits(y.data(), all.data(), rows * n)) << threads << " threads";
    }
  }
}

TEST_P(LinearTest, FusedPartsPackLikeOneMatrix) {
  for (WeightFormat format : kWeightFormats) {
    const int64_t n = 77, k = 37;
    const Floats dense = Random(n * k);
    const AlignedBuffer one(PackedLinearBytes(isa(), format, n, k));
    const AlignedBuffer several(one.size());
    std::memset(one.data(), 0xff, one.size());
    std::memset(several.data(), 0xff, several.size());
    const PackedLinear whole = MakePackedLinear(isa(), format, n, k, one.data());
    PackLinear(whole, 0, {.data = dense.data(), .ld = k, .rows = n});
    const PackedLinear parts = MakePackedLinear(isa(), format, n, k, several.data());
    // Last part first, offsets off the panel grid, source rows with a stride.
    for (auto [from, rows] : {std::pair<int64_t, int64_t>{41, 36}, {0, 19}, {19, 22}}) {
      Poisoned source(rows, k, 5);
      source.Fill(Floats(dense.begin() + from * k, dense.begin() + (from + rows) * k));
      PackLinear(parts, from, {.data = source.data.data(), .ld = source.ld, .rows = rows});
    }
    const Floats x = Random(3 * k);
    EXPECT_EQ(Run(Threads(1), parts, x, {}), Run(Threads(1), whole, x, {}));
    EXPECT_EQ(Unpack(parts), Unpack(whole));
  }
}

TEST_P(LinearTest, PacksEverySourceType) {
  for (WeightFormat format : kWeightFormats) {
    for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      const int64_t n = 40, k = 70;
      Floats dense = Random(n * k);
      const AlignedBuffer source(n * k * 4);
      for (int64_t i = 0; i < n * k; ++i) {
        dense[i] = RoundTo(dtype, dense[i]);
        StoreElement(dtype, source.data(), i, dense[i]);
      }
      const AlignedBuffer from_type(PackedLinearBytes(isa(), format, n, k));
      const AlignedBuffer from_float(from_type.size());
      const PackedLinear a = MakePackedLinear(isa(), format, n, k, from_type.data());
      const PackedLinear b = MakePackedLinear(isa(), format, n, k, from_float.data());
      PackLinear(a, 0, {.dtype = dtype, .data = source.data(), .ld = k, .rows = n});
      PackLinear(b, 0, {.data = dense.data(), .ld = k, .rows = n});
      EXPECT_EQ(Unpack(a), Unpack(b));
    }
  }
}

TEST_P(LinearTest, RowsOfThePackedTableAreTheWeights) {
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    const int64_t n = 53, k = 41;
    Floats dense = Random(n * k);
    const AlignedBuffer buffer(PackedLinearBytes(isa(), FormatOf(dtype), n, k));
    const PackedLinear packed = MakePackedLinear(isa(), FormatOf(dtype), n, k, buffer.data());
    PackLinear(packed, 0, {.data = dense.data(), .ld = k, .rows = n});
    for (float& value : dense) value = RoundTo(dtype, value);
    EXPECT_EQ(Unpack(packed), dense);
  }
}

TEST_P(LinearTest, InputStrideIsUsed) {
  const Weight w = MakeWeight(WeightFormat::kBFloat16, 40, 33);
  const Floats x = Random(9 * 33);
  Poisoned padded(9, 33, 7);
  padded.Fill(x);
  Floats y(9 * 40);
  const AlignedBuffer workspace(LinearWorkspaceBytes(9, 33));
  Linear(Threads(1), w.packed,
         {.x = padded.data.data(),
          .ldx = padded.ld,
          .m = 9,
          .y = y.data(),
          .ldy = 40,
          .workspace = workspace.data()});
  EXPECT_EQ(y, Run(Threads(1), w.packed, x, {}));
}

TEST_P(LinearTest, InputsOfZerosAndDustGiveTheBias) {
  for (const WeightFormat format : kWeightFormats) {
    if (!SumsIntegers(format)) continue;
    const Weight w = MakeWeight(format, 20, 70);
    Floats x(2 * 70, 0.0f);
    std::fill(x.begin() + 70, x.end(), 1e-38f);
    const Floats bias = Random(20);
    const Floats y = Run(Threads(1), w.packed, x, bias);
    EXPECT_TRUE(SameBits(y.data(), bias.data(), 20));
    EXPECT_TRUE(SameBits(&y[20], bias.data(), 20));
  }
}

// Sums of products of 8 bits at their extremes: nothing may saturate.
TEST_P(LinearTest, LargestCodesDoNotOverflow) {
  for (const WeightFormat format : kWeightFormats) {
    if (!SumsIntegers(format)) continue;
    const int64_t n = 33, k = 96;
    const AlignedBuffer buffer(PackedLinearBytes(isa(), format, n, k));
    const PackedLinear packed = MakePackedLinear(isa(), format, n, k, buffer.data());
    for (float sign : {1.0f, -1.0f}) {
      const Floats dense(n * k, 0.5f * sign);
      PackLinear(packed, 0, {.data = dense.data(), .ld = k, .rows = n});
      const Floats x(k, -3.0f), weights = Unpack(packed);
      ExpectClose(Run(Threads(1), packed, x, {}),
                  reference::Linear(ToDouble(x), ToDouble(weights), {}, 1), 1e-6);
    }
  }
}

TEST_P(LinearTest, NanInOneRowStaysInThatRow) {
  for (WeightFormat format : kWeightFormats) {
    for (float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      const Weight w = MakeWeight(format, 20, 50);
      Floats x = Random(8 * 50);
      const Floats before = Run(Threads(1), w.packed, x, {});
      x[3 * 50 + 7] = bad;
      const Floats after = Run(Threads(1), w.packed, x, {});
      EXPECT_FALSE(std::isfinite(after[3 * 20]));
      EXPECT_TRUE(SameBits(after.data(), before.data(), 3 * 20));
      EXPECT_TRUE(SameBits(&after[4 * 20], &before[4 * 20], 4 * 20));
    }
  }
}

TEST_P(LinearTest, GathersRowsOfTables) {
  for (WeightFormat format : kWeightFormats) {
    const int64_t n = 53, k = 41;
    const Weight w = MakeWeight(format, n, k);
    std::vector<int32_t> ids;
    for (int i = 0; i < 20; ++i) ids.push_back(static_cast<int32_t>(RandomInt(0, n - 1)));
    ids.push_back(52);
    const auto m = static_cast<int64_t>(ids.size());
    Poisoned packed_out(m, k, 2), plain_out(m, k, 2);
    GatherArgs args{.ids = ids.data(), .m = m, .scale = 3.0f, .ldo = packed_out.ld};
    args.out = packed_out.data.data();
    GatherPackedRows(Threads(2), w.packed, args);
    args.out = plain_out.data.data();
    GatherRows(Threads(2), {.data = w.dense.data(), .n = n, .k = k, .ld = k}, args);
    packed_out.ExpectPaddingUntouched();
    EXPECT_EQ(packed_out.data, plain_out.data);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < k; ++j) {
        ASSERT_EQ(packed_out.data[i * packed_out.ld + j], 3.0f * w.dense[ids[i] * k + j]);
      }
    }
  }
}

TEST_P(LinearTest, AddsRowsOfTables) {
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    const int64_t n = 9, k = 41;
    const std::vector<int32_t> ids = {8, 0, 3, 3};
    const auto m = static_cast<int64_t>(ids.size());
    Floats table = Random(n * k, 5), before = Random(m * k, 6);
    std::vector<std::byte> stored(table.size() * DTypeSize(dtype));
    for (size_t i = 0; i < table.size(); ++i) {
      StoreElement(dtype, stored.data(), static_cast<int64_t>(i), table[i]);
      table[i] = LoadElement(dtype, stored.data(), static_cast<int64_t>(i));
    }
    Poisoned out(m, k, 3);
    out.Fill(before);
    GatherRows(Threads(2), {.dtype = dtype, .data = stored.data(), .n = n, .k = k, .ld = k},
               {.ids = ids.data(), .m = m, .out = out.data.data(), .ldo = out.ld, .adds = true});
    out.ExpectPaddingUntouched();
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < k; ++j) {
        ASSERT_EQ(out.data[i * out.ld + j], before[i * k + j] + table[ids[i] * k + j]);
      }
    }
  }
}

TEST_P(LinearTest, WrongCallsAreInternalErrors) {
  const Weight w = MakeWeight(WeightFormat::kFloat32, 10, 10);
  Floats x(10), y(10), workspace(64);
  const LinearArgs args{
      .x = x.data(), .ldx = 10, .m = 1, .y = y.data(), .ldy = 10, .workspace = workspace.data()};
  PackedLinear other_isa = w.packed;
  other_isa.panel_width *= 2;
  EXPECT_THROW(Linear(Threads(1), other_isa, args), InternalError);
  LinearArgs no_workspace = args;
  no_workspace.workspace = nullptr;
  EXPECT_THROW(Linear(Threads(1), w.packed, no_workspace), InternalError);
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
