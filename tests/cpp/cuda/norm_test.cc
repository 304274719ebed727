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
  bool has_scale = false;
  bool keeps = false;
};

class NormTest : public CudaKernelTest {
 protected:
  void Check(DType dtype, const NormCase& c) {
    const Floats residual = Random(DType::kFloat32, c.m * c.dim, 2);
    const Floats x = Random(dtype, c.m * c.dim, 3);
    const Floats post = Random(dtype, c.dim);
    const Floats pre = Random(dtype, c.dim);
    const Floats scale = Decode(dtype, Encode(dtype, {0.3f}));
    DeviceArray<float> device_residual(residual);
    DeviceBytes device_scale(Encode(dtype, scale));
    DeviceBytes device_x(Encode(dtype, x)), device_post(Encode(dtype, post)),
        device_pre(Encode(dtype, pre)), y(c.m * c.dim * DTypeSize(dtype));
    AddNorm({.dtype = dtype,
             .residual = device_residual.data(),
             .x = c.adds ? device_x.data() : nullptr,
             .post_weight = c.has_post ? device_post.data() : nullptr,
             .scale = c.has_scale ? device_scale.data() : nullptr,
             .pre_weight = c.has_pre ? device_pre.data() : nullptr,
             .y = c.has_y ? y.data() : nullptr,
             .keeps = c.keeps,
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
    for (double& value : sum) value *= c.has_scale ? scale[0] : 1.0f;
    if (!c.keeps) ExpectClose(device_residual.Download(), sum, 2e-6);
    if (!c.has_y) return;
    if (c.has_pre) sum = reference::Normalize(sum, ToDouble(pre), 0.5, 1e-5);
    if (c.keeps) ExpectClose(device_residual.Download(), sum, 4e-6);
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

TEST_F(NormTest, ScalesTheResidual) {
  for (DType dtype : kDTypes) {
    for (int64_t dim : {8, 1024, 2056, 9000}) {
      NormCase c{.m = 2, .dim = dim, .adds = true, .has_post = true, .has_pre = true};
      c.has_scale = true;
      Check(dtype, c);
      c.has_y = false;
      Check(dtype, c);
      c.has_post = false;
      Check(dtype, c);
    }
  }
  EXPECT_ANY_THROW(Check(
      DType::kFloat32,
      {.m = 1, .dim = 8, .adds = false, .has_post = false, .has_pre = true, .has_scale = true}));
}

TEST_F(NormTest, KeepsWhatItGivesAsTheResidual) {
  for (DType dtype : kDTypes) {
    for (int64_t dim : {8, 1024, 2056, 9000}) {
      NormCase c{.m = 3, .dim = dim, .adds = true, .has_post = false, .has_pre = true};
      c.keeps = true;
      Check(dtype, c);
      c.adds = false;
      Check(dtype, c);
    }
  }
  EXPECT_ANY_THROW(Check(DType::kFloat32, {.m = 1,
                                           .dim = 8,
                                           .adds = true,
                                           .has_post = false,
                                           .has_pre = true,
                                           .has_scale = true,
                                           .keeps = true}));
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

// As two devices do that have some of the columns of q, and the same ones of k.
TEST_F(NormTest, PartsOfRowsHaveTheNormOfWholeRows) {
  for (DType dtype : kDTypes) {
    constexpr int64_t kRows = 3;
    constexpr int64_t kQ = 2064;  // of both devices
    constexpr int64_t kK = 24;
    constexpr int64_t kLd = kQ / 2 + kK + 8;
    const Floats q = Random(dtype, kRows * kQ, 3);
    const Floats k = Random(dtype, kRows * kK, 4);
    const Floats weight = Random(dtype, kQ);
    const DeviceBytes device_weight(Encode(dtype, weight));
    std::vector<DeviceBytes> parts;
    Floats sums(2 * kRows);
    for (int64_t device = 0; device < 2; ++device) {
      Floats x(kRows * kLd, 1.0f);
      for (int64_t row = 0; row < kRows; ++row) {
        std::copy_n(q.begin() + row * kQ + device * kQ / 2, kQ / 2, x.begin() + row * kLd);
        std::copy_n(k.begin() + row * kK, kK, x.begin() + row * kLd + kQ / 2);
      }
      parts.emplace_back(Encode(dtype, x));
      DeviceBytes device_sums(2 * kRows * sizeof(float));
      SquareSums({.dtype = dtype,
                  .x = parts.back().data(),
                  .ld = kLd,
                  .m = kRows,
                  .dims = {kQ / 2, device == 0 ? kK : 0},
                  .sums = reinterpret_cast<float*>(device_sums.data())},
                 nullptr);
      const Floats got = Decode(DType::kFloat32, device_sums.Download());
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += got[i];
      for (int64_t row = 0; device > 0 && row < kRows; ++row) EXPECT_EQ(got[2 * row + 1], 0.0f);
    }
    const DeviceBytes device_sums(Encode(DType::kFloat32, sums));
    for (int64_t device = 0; device < 2; ++device) {
      const DeviceBytes& x = parts[static_cast<size_t>(device)];
      NormalizeArgs args{
          .dtype = dtype,
          .x = x.data(),
          .ld = kLd,
          .weight = device_weight.data() + device * kQ / 2 * static_cast<int64_t>(DTypeSize(dtype)),
          .eps = 1e-6f,
          .m = kRows,
          .dim = kQ / 2,
          .square_sums = reinterpret_cast<const float*>(device_sums.data()),
          .whole_dim = kQ};
      Normalize(args, nullptr);
      args.x = x.data() + kQ / 2 * static_cast<int64_t>(DTypeSize(dtype));
      args.weight = device_weight.data();
      args.dim = args.whole_dim = kK;
      ++args.square_sums;
      Normalize(args, nullptr);
      const Floats got = Decode(dtype, x.Download());
      for (int64_t row = 0; row < kRows; ++row) {
        const auto part_of = [](const Floats& from, int64_t begin, int64_t count) {
          return Floats(from.begin() + begin, from.begin() + begin + count);
        };
        const auto want = [&](const Floats& rows, int64_t dim) {
          return reference::Normalize(ToDouble(part_of(rows, row * dim, dim)),
                                      ToDouble(part_of(weight, 0, dim)), 0.0, 1e-6);
        };
        const auto of_q = want(q, kQ);
        ExpectClose(part_of(got, row * kLd, kQ / 2),
                    {of_q.begin() + device * kQ / 2, of_q.begin() + (device + 1) * kQ / 2},
                    Epsilon(dtype) + 2e-6);
        ExpectClose(part_of(got, row * kLd + kQ / 2, kK), want(k, kK), Epsilon(dtype) + 2e-6);
        EXPECT_EQ(got[row * kLd + kQ / 2 + kK], 1.0f);
      }
    }
  }
}

TEST_F(NormTest, ChecksTheShape) {
  EXPECT_ANY_THROW(AddNorm({.m = 1, .dim = 12}, nullptr));
  EXPECT_ANY_THROW(AddNorm({.m = 1, .dim = kMaxNormDim + 8}, nullptr));
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
