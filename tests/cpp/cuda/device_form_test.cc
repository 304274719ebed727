// DeviceForm: what a product on the device reads is what was packed on the host.
#include "models/cuda/device_form.h"

#include "cuda/test_util.h"
#include "kernels/packed_format.h"
#include "kernels/quantize.h"
#include "support/float8.h"

namespace mlc_native {
namespace {

using kernels::WeightFormat;
using kernels::cuda::DeviceArray;
using kernels::cuda::DeviceBytes;
using kernels::cuda::Floats;

constexpr int64_t kN = 19;
constexpr int64_t kK = 88;  // not whole groups, nor steps

class DeviceFormTest : public kernels::cuda::CudaKernelTest {
 protected:
  // A weight [kN, kK], read by products with rows of the unit matrix.
  Floats Read(WeightFormat format, const std::vector<std::byte>& packed,
              DType dtype = DType::kFloat16) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(packed.data());
    const DeviceBytes weight(std::vector<uint8_t>(bytes, bytes + packed.size()));
    Floats unit(kK * kK);
    for (int64_t i = 0; i < kK; ++i) unit[i * kK + i] = 1;
    const DeviceBytes x(kernels::cuda::Encode(dtype, unit));
    const DeviceArray<float> y(static_cast<size_t>(kK * kN));
    for (int64_t row = 0; row < kK; row += kernels::cuda::kMaxGemvRows) {
      kernels::cuda::Gemv({.format = format,
                           .dtype = dtype,
                           .weight = weight.data(),
                           .n = kN,
                           .k = kK,
                           .x = x.data() + row * kK * 2,
                           .ldx = kK,
                           .m = std::min(kernels::cuda::kMaxGemvRows, kK - row),
                           .y = y.data() + row * kN,
                           .ldy = kN,
                           .float_output = true},
                          nullptr);
    }
    const Floats columns = y.Download();
    Floats weights(kN * kK);
    for (int64_t n = 0; n < kN; ++n) {
      for (int64_t k = 0; k < kK; ++k) weights[n * kK + k] = columns[k * kN + n];
    }
    return weights;
  }

  // In two calls, the second one first.
  template <typename Source>
  std::vector<std::byte> Pack(WeightFormat format, const Source& rows_from) {
    const DeviceForm form;
    std::vector<std::byte> packed(form.MatrixBytes(format, kN, kK), std::byte{0xff});
    const PackedMatrix matrix{.format = format, .n = kN, .k = kK, .data = packed.data()};
    form.Pack(matrix, 8, rows_from(8, kN));
    form.Pack(matrix, 0, rows_from(0, 8));
    return packed;
  }
};

TEST_F(DeviceFormTest, FloatsAreRoundedOrQuantizedLikeTheCpus) {
  const Floats weights = Random(DType::kFloat32, kN * kK);
  const auto rows = [&](int64_t begin, int64_t end) {
    return kernels::PackSource{.data = weights.data() + begin * kK, .ld = kK, .rows = end - begin};
  };
  EXPECT_EQ(
      Read(WeightFormat::kFloat16, Pack(WeightFormat::kFloat16, rows)),
      kernels::cuda::Decode(DType::kFloat16, kernels::cuda::Encode(DType::kFloat16, weights)));
  const Floats q8 = Read(WeightFormat::kQ8, Pack(WeightFormat::kQ8, rows));
  const Floats q4 = Read(WeightFormat::kQ4, Pack(WeightFormat::kQ4, rows));
  const Floats short8 = Read(WeightFormat::kQ8Group32, Pack(WeightFormat::kQ8Group32, rows));
  for (int64_t n = 0; n < kN; ++n) {
    std::array<float, kernels::kQ8Group> group8{};
    std::copy_n(weights.begin() + n * kK, kernels::kQ8Group, group8.begin());
    const auto want8 = kernels::QuantizeQ8(group8);
    for (int64_t k = 0; k < kernels::kQ8Group; ++k) {
      ASSERT_EQ(q8[n * kK + k], Float16ToFloat(want8.scale) * (want8.codes[k] - 128)) << n;
    }
    kernels::Q4Values group4{};  // the last one, which is not whole
    const int64_t begin = kK / kernels::kQ4Group * kernels::kQ4Group;
    std::copy_n(weights.begin() + n * kK + begin, kK - begin, group4.begin());
    const auto want4 = kernels::QuantizeQ4(group4);
    const auto want_short8 = kernels::QuantizeQ8(group4);
    for (int64_t k = begin; k < kK; ++k) {
      ASSERT_EQ(q4[n * kK + k], Float16ToFloat(want4.scale) * (want4.codes[k - begin] - 8)) << n;
      ASSERT_EQ(short8[n * kK + k],
                Float16ToFloat(want_short8.scale) * (want_short8.codes[k - begin] - 128))
          << n;
    }
  }
}

TEST_F(DeviceFormTest, CodesStayWhatTheyAre) {
  for (const int64_t group : {int64_t{64}, kK}) {
    const int64_t groups = (kK + group - 1) / group;
    std::vector<int8_t> codes(kN * kK);
    for (int8_t& code : codes) code = static_cast<int8_t>(RandomInt(-8, 7));
    std::vector<uint16_t> scales(kN * groups);
    for (uint16_t& scale : scales) {
      scale = FloatToFloat16(static_cast<float>(RandomInt(1, 1000)) / 512);
    }
    const auto rows = [&](int64_t begin, int64_t end) {
      return kernels::PackCodes{.codes = codes.data() + begin * kK,
                                .ld = kK,
                                .scales = scales.data() + begin * groups,
                                .group = group,
                                .rows = end - begin};
    };
    for (const WeightFormat format :
         {WeightFormat::kQ8, WeightFormat::kQ8Group32, WeightFormat::kQ4}) {
      const Floats got = Read(format, Pack(format, rows));
      for (int64_t i = 0; i < kN * kK; ++i) {
        const float scale = Float16ToFloat(scales[i / kK * groups + i % kK / group]);
        ASSERT_EQ(got[i], scale * static_cast<float>(codes[i])) << i;
      }
    }
  }
}

// Sums of codes and shifts are rounded to float16.
TEST_F(DeviceFormTest, CodesWithShiftsStayWhatTheyAre) {
  constexpr int64_t kGroup = 32;
  constexpr int64_t kGroups = (kK + kGroup - 1) / kGroup;
  std::vector<int8_t> codes(kN * kK);
  for (int8_t& code : codes) code = static_cast<int8_t>(RandomInt(-8, 7));
  std::vector<uint16_t> scales(2 * kN * kGroups);  // and shifts
  for (uint16_t& number : scales) {
    number = FloatToFloat16(static_cast<float>(RandomInt(-4000, 4000)) / 512);
  }
  const auto rows = [&](int64_t begin, int64_t end) {
    return kernels::PackCodes{.codes = codes.data() + begin * kK,
                              .ld = kK,
                              .scales = scales.data() + 2 * begin * kGroups,
                              .group = kGroup,
                              .rows = end - begin};
  };
  const Floats got = Read(WeightFormat::kQ4Affine, Pack(WeightFormat::kQ4Affine, rows));
  for (int64_t i = 0; i < kN * kK; ++i) {
    const uint16_t* pair = &scales[2 * (i / kK * kGroups + i % kK / kGroup)];
    const float sum = static_cast<float>(codes[i]) + Float16ToFloat(pair[1]);
    ASSERT_EQ(got[i], Float16ToFloat(pair[0]) * Float16ToFloat(FloatToFloat16(sum))) << i;
  }
}

TEST_F(DeviceFormTest, CodesOfMxfp4StayWhatTheyAre) {
  constexpr int64_t kGroup = 32;
  constexpr int64_t kGroups = (kK + kGroup - 1) / kGroup;
  std::vector<int8_t> codes(kN * kK);
  for (int8_t& code : codes) code = static_cast<int8_t>(RandomInt(0, 15));
  std::vector<uint16_t> scales(kN * kGroups);
  for (uint16_t& scale : scales) {
    scale = FloatToBFloat16(std::ldexp(1.0f, static_cast<int>(RandomInt(-9, 9))));
  }
  const auto rows = [&](int64_t begin, int64_t end) {
    return kernels::PackCodes{.codes = codes.data() + begin * kK,
                              .ld = kK,
                              .scales = scales.data() + begin * kGroups,
                              .group = kGroup,
                              .rows = end - begin};
  };
  const Floats got = Read(WeightFormat::kMxfp4, Pack(WeightFormat::kMxfp4, rows));
  for (int64_t i = 0; i < kN * kK; ++i) {
    const float scale = BFloat16ToFloat(scales[i / kK * kGroups + i % kK / kGroup]);
    ASSERT_EQ(got[i], scale * static_cast<float>(kernels::kMxfp4Doubled[codes[i]])) << i;
  }
}

// Scales, and products of codes and scales, are rounded to bfloat16.
TEST_F(DeviceFormTest, CodesOfNvfp4StayWhatTheyAre) {
  constexpr int64_t kGroup = 16;
  constexpr int64_t kGroups = (kK + kGroup - 1) / kGroup;
  std::vector<int8_t> codes(kN * kK);
  for (int8_t& code : codes) code = kernels::kMxfp4Doubled[RandomInt(0, 15)];
  std::vector<uint16_t> scales(kN * kGroups);
  for (uint16_t& scale : scales) {
    scale = FloatToFloat16(static_cast<float>(RandomInt(1, 4000)) / 4096);
  }
  const auto rows = [&](int64_t begin, int64_t end) {
    return kernels::PackCodes{.codes = codes.data() + begin * kK,
                              .ld = kK,
                              .scales = scales.data() + begin * kGroups,
                              .group = kGroup,
                              .rows = end - begin};
  };
  const Floats got =
      Read(WeightFormat::kFp4Group16, Pack(WeightFormat::kFp4Group16, rows), DType::kBFloat16);
  const auto rounded = [](float x) { return BFloat16ToFloat(FloatToBFloat16(x)); };
  for (int64_t i = 0; i < kN * kK; ++i) {
    const float scale = rounded(Float16ToFloat(scales[i / kK * kGroups + i % kK / kGroup]));
    ASSERT_EQ(got[i], rounded(scale * static_cast<float>(codes[i]))) << i;
  }
}

// Scales of float32, each of a group, or one of the whole row; every number that E4M3 has.
TEST_F(DeviceFormTest, CodesOfFloat8StayWhatTheyAre) {
  for (const int64_t group : {int64_t{64}, int64_t{128}}) {
    const int64_t groups = (kK + group - 1) / group;
    std::vector<int8_t> codes(kN * kK);
    for (int64_t i = 0; i < kN * kK; ++i) {
      codes[i] = static_cast<int8_t>(i % 256);
      if (std::isnan(Float8ToFloat(static_cast<uint8_t>(i)))) codes[i] = 0;
    }
    std::vector<float> values(kN * groups);
    for (float& value : values) {
      value = std::ldexp(static_cast<float>(RandomInt(1 << 23, 1 << 24)),
                         static_cast<int>(RandomInt(-60, 10)));
    }
    std::vector<uint16_t> scales(2 * values.size());
    std::memcpy(scales.data(), values.data(), values.size() * sizeof(float));
    const auto rows = [&](int64_t begin, int64_t end) {
      return kernels::PackCodes{.codes = codes.data() + begin * kK,
                                .ld = kK,
                                .scales = scales.data() + 2 * begin * groups,
                                .group = group,
                                .rows = end - begin};
    };
    const Floats got =
        Read(WeightFormat::kFloat8, Pack(WeightFormat::kFloat8, rows), DType::kBFloat16);
    for (int64_t i = 0; i < kN * kK; ++i) {
      const float scale = values[i / kK * groups + i % kK / group];
      ASSERT_EQ(got[i], scale * Float8ToFloat(static_cast<uint8_t>(codes[i]))) << i;
    }
  }
}

}  // namespace
}  // namespace mlc_native
