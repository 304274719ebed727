// Products of many rows through a fake cuBLASLt: what is asked of it, and what happens without.
#include "models/cuda/cublas_lt.h"

#include <cstdlib>

#include "cuda/fake_cublas_lt/fake_cublas_lt.h"
#include "cuda/model_driver.h"
#include "cuda/test_util.h"
#include "models/cuda/device_form.h"

namespace mlc_native {
namespace {

using kernels::cuda::DeviceArray;
using kernels::cuda::DeviceBytes;
using kernels::cuda::Floats;

class CublasLtTest : public kernels::cuda::CudaKernelTest {
 protected:
  CublasLtTest() { setenv("MLC_NATIVE_CUBLASLT_LIB", FAKE_CUBLAS_LT, 1); }
  ~CublasLtTest() override {
    fake_cublas_lt_refuse(-1);
    fake_cublas_lt_suggest(1);
    unsetenv("MLC_NATIVE_CUBLASLT_LIB");
  }

  // x [m, k] in rows of ldx, y in rows of ldy, both wider than they need be.
  void Check(DType dtype, bool has_bias, bool float_output, int times = 1) {
    constexpr int64_t kM = 35;
    constexpr int64_t kN = 11;
    constexpr int64_t kK = 24;
    constexpr int64_t kLdx = 32;
    constexpr int64_t kLdy = 16;
    const Floats w = Random(dtype, kN * kK);
    const Floats wide = Random(dtype, kM * kLdx);
    const Floats bias = Random(dtype, kN);
    Floats x;
    for (int64_t i = 0; i < kM; ++i) {
      x.insert(x.end(), wide.begin() + i * kLdx, wide.begin() + i * kLdx + kK);
    }
    const kernels::reference::Matrix want = kernels::reference::Linear(
        kernels::cuda::ToDouble(x), kernels::cuda::ToDouble(w),
        has_bias ? kernels::cuda::ToDouble(bias) : kernels::reference::Matrix(), kM);
    const DType y_type = float_output ? DType::kFloat32 : dtype;
    const DeviceBytes device_w(kernels::cuda::Encode(dtype, w));
    const DeviceBytes device_x(kernels::cuda::Encode(dtype, wide));
    const DeviceBytes device_bias(kernels::cuda::Encode(dtype, bias));
    const DeviceBytes y(kM * kLdy * DTypeSize(y_type));
    CublasLt cublas(0);
    const kernels::cuda::GemvArgs args{.format = kernels::FormatOf(dtype),
                                       .dtype = dtype,
                                       .weight = device_w.data(),
                                       .n = kN,
                                       .k = kK,
                                       .x = device_x.data(),
                                       .ldx = kLdx,
                                       .m = kM,
                                       .bias = has_bias ? device_bias.data() : nullptr,
                                       .y = y.data(),
                                       .ldy = kLdy,
                                       .float_output = float_output};
    for (int i = 0; i < times; ++i) ASSERT_TRUE(cublas.Multiply(args, nullptr));
    const Floats all = kernels::cuda::Decode(y_type, y.Download());
    Floats got;
    for (int64_t i = 0; i < kM; ++i) {
      got.insert(got.end(), all.begin() + i * kLdy, all.begin() + i * kLdy + kN);
      ASSERT_TRUE(std::isnan(all[i * kLdy + kN])) << "written outside the row";
    }
    kernels::cuda::ExpectClose(got, want, kernels::cuda::Epsilon(y_type));
  }
};

// The first suggestion is slow, the second one has other bits, the last two are as good.
TEST_F(CublasLtTest, ProductsTakeTheFastestAlgorithmWithTheBitsOfTheFirst) {
  fake_cublas_lt_suggest(4);
  const auto products = [](int algorithm) { return fake_cublas_lt_num_products_of(algorithm); };
  const int slow = products(0);
  const int other_bits = products(1);
  const int good = products(2) + products(3);
  constexpr int kTimes = 10;
  Check(DType::kBFloat16, true, false, kTimes);
  EXPECT_EQ(products(0) - slow, 4) << "compared, and timed three times";
  EXPECT_EQ(products(1) - other_bits, 1) << "compared only";
  EXPECT_EQ(products(2) + products(3) - good, 2 * 4 + kTimes);
}

TEST_F(CublasLtTest, ProductsAreThoseOfTheReference) {
  for (DType dtype : kernels::cuda::kDTypes) {
    Check(dtype, false, false);
    Check(dtype, true, false);
    Check(dtype, false, true);
  }
  EXPECT_EQ(fake_cublas_lt_num_objects(), 0);
}

TEST_F(CublasLtTest, QuantizedWeightsAreMultipliedInParts) {
  constexpr int64_t kM = CublasLt::kManyQuantizedRows + 1;
  constexpr int64_t kN = 270;
  constexpr int64_t kK = 72;
  const Floats weights = Random(DType::kFloat32, kN * kK);
  const DeviceBytes x(kernels::cuda::Encode(DType::kFloat16, Random(DType::kFloat16, kM * kK)));
  const DeviceBytes bias(kernels::cuda::Encode(DType::kFloat16, Random(DType::kFloat16, kN)));
  CublasLt cublas(0, {}, 2 * 128 * kK * sizeof(uint16_t));  // 128 outputs at a time
  for (const auto format : {kernels::WeightFormat::kQ8, kernels::WeightFormat::kQ4}) {
    const DeviceForm form;
    std::vector<std::byte> packed(form.MatrixBytes(format, kN, kK));
    form.Pack({.format = format, .n = kN, .k = kK, .data = packed.data()}, 0,
              kernels::PackSource{.data = weights.data(), .ld = kK, .rows = kN});
    const auto* bytes = reinterpret_cast<const uint8_t*>(packed.data());
    const DeviceBytes w(std::vector<uint8_t>(bytes, bytes + packed.size()));
    const DeviceBytes y(kM * kN * sizeof(uint16_t)), want(kM * kN * sizeof(uint16_t));
    kernels::cuda::GemvArgs args{.format = format,
                                 .dtype = DType::kFloat16,
                                 .weight = w.data(),
                                 .n = kN,
                                 .k = kK,
                                 .x = x.data(),
                                 .ldx = kK,
                                 .m = kM,
                                 .bias = bias.data(),
                                 .y = y.data(),
                                 .ldy = kN};
    const int before = fake_cublas_lt_num_products();
    ASSERT_TRUE(cublas.Multiply(args, nullptr));
    EXPECT_EQ(fake_cublas_lt_num_products(), before + 3);
    args.m = 32;
    EXPECT_FALSE(cublas.Multiply(args, nullptr)) << "few rows";
    args.y = want.data();
    Gemv(args, nullptr);
    const Floats got = kernels::cuda::Decode(DType::kFloat16, y.Download());
    Floats reference = kernels::cuda::Decode(DType::kFloat16, want.Download());
    reference.resize(static_cast<size_t>(32 * kN));
    kernels::cuda::ExpectClose({got.begin(), got.begin() + 32 * kN},
                               kernels::cuda::ToDouble(reference), 4e-3);
  }
}

TEST_F(CublasLtTest, PromptsAreTheSameWithAndWithoutIt) {
  TinyModel tiny("Qwen2ForCausalLM");
  const auto prompt = [&](Model& model) {
    TestSequence sequence(0);
    return Logits(model, TestBatch().Add(sequence, SomeTokens(40, 1)));
  };
  const auto with = tiny.OnDevice();
  const int before = fake_cublas_lt_num_products();
  const std::vector<float> want = prompt(*with);
  // Four products in the first layer, the query's, key's and value's in the last.
  EXPECT_EQ(fake_cublas_lt_num_products(), before + 5);
  setenv("MLC_NATIVE_CUBLASLT_LIB", "/nowhere.so", 1);
  const auto without = tiny.OnDevice();
  const std::vector<float> got = prompt(*without);
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-5);
  EXPECT_EQ(fake_cublas_lt_num_products(), before + 5);
}

TEST_F(CublasLtTest, AShapeWithoutAnAlgorithmGoesToGemv) {
  TinyModel tiny("Qwen2ForCausalLM");
  const auto prompt = [&](Model& model) {
    TestSequence sequence(0);
    return Logits(model, TestBatch().Add(sequence, SomeTokens(40, 1)));
  };
  const std::vector<float> want = prompt(*tiny.OnDevice());
  const auto model = tiny.OnDevice();
  fake_cublas_lt_refuse(2);
  const int before = fake_cublas_lt_num_products();
  const std::vector<float> got = prompt(*model);
  EXPECT_GT(fake_cublas_lt_num_products(), before);
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-5);
}

}  // namespace
}  // namespace mlc_native
