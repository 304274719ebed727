#include "cuda/test_util.h"

namespace mlc_native::kernels::cuda {
namespace {

struct NormCase {
  int64_t m;
  int64_t dim;
  bool adds;
  bool has_post;
  bool has_pre;
  bool has_y = true;
};

class NormTest : public CudaKernelTest {
 protected:
  void Check(DType dtype, const NormCase& c) {
    const Floats residual = Random(DType::kFloat32, c.m * c.dim, 2);
    const Floats x = Random(dtype, c.m * c.dim, 3);
    const Floats post = Random(dtype, c.dim);
    const Floats pre = Random(dtype, c.dim);
    DeviceArray<float> device_residual(residual);
    DeviceBytes device_x(Encode(dtype, x)), device_post(Encode(dtype, post)),
        device_pre(Encode(dtype, pre)), y(c.m * c.dim * DTypeSize(dtype));
    AddNorm({.dtype = dtype,
             .residual = device_residual.data(),
             .x = c.adds ? device_x.data() : nullptr,
             .post_weight = c.has_post ? device_post.data() : nullptr,
             .pre_weight = c.has_pre ? device_pre.data() : nullptr,
             .y = c.has_y ? y.data() : nullptr,
             .weight_offset = 0.5f,
             .eps = 1e-5f,
             .m = c.m,
             .dim = c.dim},
            nullptr);
    reference::Matrix sum = ToDouble(residual);
    if (c.adds) {
      reference::Matrix added = ToDouble(x);
      if (c.has_post) added = reference::Normalize(added, ToDouble(post), 0.5, 1e-5);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += added[i];
    }
    ExpectClose(device_residual.Download(), sum, 2e-6);
    if (!c.has_y) return;
    if (c.has_pre) sum = reference::Normalize(sum, ToDouble(pre), 0.5, 1e-5);
    ExpectClose(Decode(dtype, y.Download()), sum, Epsilon(dtype) + 2e-6);
  }
};

TEST_F(NormTest, MatchesTheReference) {
  for (DType dtype : kDTypes) {
    for (int64_t dim : {8, 72, 1024, 2056, 5120}) {
      Check(dtype, {.m = 3, .dim = dim, .adds = false, .has_post = false, .has_pre = true});
      Check(dtype, {.m = 2, .dim = dim, .adds = true, .has_post = false, .has_pre = true});
      Check(dtype, {.m = 2, .dim = dim, .adds = true, .has_post = true, .has_pre = true});
    }
    Check(dtype, {.m = 1, .dim = 9000, .adds = true, .has_post = true, .has_pre = true});
    NormCase c{.m = 2, .dim = 64, .adds = true, .has_post = true, .has_pre = false};
    Check(dtype, c);
    c.has_y = false;
    Check(dtype, c);
  }
}

TEST_F(NormTest, NormalizesPartsOfRows) {
  for (DType dtype : kDTypes) {
    const int64_t dim = 2056;
    const int64_t ld = dim + 16;
    const Floats x = Random(dtype, 3 * ld, 3);
    const Floats weight = Random(dtype, dim);
    DeviceBytes device_x(Encode(dtype, x)), device_weight(Encode(dtype, weight));
    Normalize({.dtype = dtype,
               .x = device_x.data(),
               .ld = ld,
               .weight = device_weight.data(),
               .weight_offset = 1.0f,
               .m = 3,
               .dim = dim},
              nullptr);
    const Floats got = Decode(dtype, device_x.Download());
    for (int64_t row = 0; row < 3; ++row) {
      const auto begin = row * ld;
      const Floats part(x.begin() + begin, x.begin() + begin + dim);
      ExpectClose(Floats(got.begin() + begin, got.begin() + begin + dim),
                  reference::Normalize(ToDouble(part), ToDouble(weight), 1.0, 1e-6),
                  Epsilon(dtype) + 2e-6);
      for (int64_t i = begin + dim; i < begin + ld; ++i) ASSERT_EQ(got[i], x[i]);
    }
  }
}

TEST_F(NormTest, ChecksTheShape) {
  EXPECT_ANY_THROW(AddNorm({.m = 1, .dim = 12}, nullptr));
  EXPECT_ANY_THROW(AddNorm({.m = 1, .dim = kMaxNormDim + 8}, nullptr));
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
