// Products of many rows through cuBLASLt against Gemv in pieces: on a GPU through NVIDIA's library,
// which MLC_NATIVE_CUBLASLT_LIB may name, and on the emulator through the fake one.
#include <cstdlib>

#include "cuda/gemv_weights.h"
#include "models/cuda/cublas_lt.h"

namespace mlc_native::kernels::cuda {
namespace {

class ManyRowsTest : public GemvWeightsTest {
 protected:
#ifdef FAKE_CUBLAS_LT
  ManyRowsTest() { setenv("MLC_NATIVE_CUBLASLT_LIB", FAKE_CUBLAS_LT, 1); }
  ~ManyRowsTest() override { unsetenv("MLC_NATIVE_CUBLASLT_LIB"); }
#endif

  struct Case {
    WeightFormat format;
    DType dtype;
    int64_t m;
    bool has_bias = false;
    bool float_output = false;
  };

  // x in rows of ldx, y in rows of ldy, both wider than they need be.
  void Check(const Case& c) {
    constexpr int64_t kN = 48;
    constexpr int64_t kK = 96;
    constexpr int64_t kLdx = 104;
    constexpr int64_t kLdy = 56;
    const DType y_type = c.float_output ? DType::kFloat32 : c.dtype;
    const GemvWeights weights = RandomWeights(c.format, kN, kK);
    const DeviceBytes weight(weights.bytes), x(Encode(c.dtype, Random(c.dtype, c.m * kLdx))),
        bias(Encode(c.dtype, Random(c.dtype, kN)));
    const DeviceBytes y(c.m * kLdy * DTypeSize(y_type)), pieces(y.size());
    GemvArgs args{.format = c.format,
                  .dtype = c.dtype,
                  .weight = weight.data(),
                  .n = kN,
                  .k = kK,
                  .x = x.data(),
                  .ldx = kLdx,
                  .m = c.m,
                  .bias = c.has_bias ? bias.data() : nullptr,
                  .y = y.data(),
                  .ldy = kLdy,
                  .float_output = c.float_output};
    CublasLt cublas(0);
    ASSERT_TRUE(cublas.Multiply(args, nullptr)) << "cuBLASLt was not found, or refused " << c.m;
    for (int64_t row = 0; row < c.m; row += kMaxGemvRows) {
      args.m = std::min(kMaxGemvRows, c.m - row);
      args.x = x.data() + row * kLdx * DTypeSize(c.dtype);
      args.y = pieces.data() + row * kLdy * DTypeSize(y_type);
      Gemv(args, nullptr);
    }
    Compare(Decode(y_type, y.Download()), Decode(y_type, pieces.Download()), kN, kLdy,
            8 * Epsilon(c.dtype));
  }

  static void Compare(const Floats& got, const Floats& want, int64_t n, int64_t ld,
                      double tolerance) {
    for (size_t i = 0; i < got.size(); ++i) {
      if (static_cast<int64_t>(i) % ld >= n) {
        ASSERT_TRUE(std::isnan(got[i])) << "written outside the row, at " << i;
      } else {
        ASSERT_NEAR(got[i], want[i], tolerance * (1 + std::abs(want[i]))) << "at " << i;
      }
    }
  }
};

TEST_F(ManyRowsTest, AreTheProductsOfFewRows) {
  for (const int64_t m : {33, 64, 100, 257}) {
    Check({.format = WeightFormat::kBFloat16, .dtype = DType::kBFloat16, .m = m});
  }
  constexpr int64_t kM = 65;
  Check({.format = WeightFormat::kFloat16, .dtype = DType::kFloat16, .m = kM, .has_bias = true});
  Check({.format = WeightFormat::kBFloat16, .dtype = DType::kBFloat16, .m = kM, .has_bias = true});
  Check({.format = WeightFormat::kBFloat16,
         .dtype = DType::kBFloat16,
         .m = kM,
         .float_output = true});
}

TEST_F(ManyRowsTest, QuantizedWeightsAreDequantizedForIt) {
  constexpr int64_t kM = CublasLt::kManyQuantizedRows + 3;
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (const WeightFormat format : QuantizedFormats(dtype)) {
      Check({.format = format, .dtype = dtype, .m = kM});
    }
  }
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
