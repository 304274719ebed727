#include <algorithm>
#include <numeric>

#include "cuda/test_util.h"

namespace mlc_native::kernels::cuda {
namespace {

class ElementwiseTest : public CudaKernelTest {};

TEST_F(ElementwiseTest, EmbedsIdsAndSampledTokens) {
  const int64_t k = 40;
  const int64_t n = 17;
  for (DType dtype : kDTypes) {
    const Floats table = Random(dtype, n * k);
    const std::vector<int32_t> ids{3, -2, 16, -1, 0};
    const std::vector<int32_t> meant{3, 5, 16, 11, 0};
    DeviceBytes device_table(Encode(dtype, table));
    DeviceArray<int32_t> device_ids(ids), sampled(std::vector<int32_t>{11, 5});
    DeviceArray<float> out(ids.size() * k);
    Embed({.dtype = dtype,
           .table = device_table.data(),
           .k = k,
           .ids = device_ids.data(),
           .sampled = sampled.data(),
           .m = static_cast<int64_t>(ids.size()),
           .scale = 1.5f,
           .out = out.data()},
          nullptr);
    const Floats got = out.Download();
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i], 1.5f * table[meant[i / k] * k + i % k]) << i;
    }
  }
}

TEST_F(ElementwiseTest, GathersRows) {
  const Floats in = Random(DType::kFloat32, 9 * 12);
  const std::vector<int32_t> rows{8, 0, 0, 5};
  DeviceArray<float> device_in(in), out(rows.size() * 12);
  DeviceArray<int32_t> device_rows(rows);
  GatherRows(device_in.data(), device_rows.data(), 4, 48, out.data(), nullptr);
  const Floats got = out.Download();
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], in[rows[i / 12] * 12 + i % 12]);
}

TEST_F(ElementwiseTest, Activates) {
  for (DType dtype : kDTypes) {
    for (const reference::ActivationShape shape :
         {reference::ActivationShape{.activation = Activation::kSilu},
          {.activation = Activation::kGeluTanh},
          {.activation = Activation::kReluSquared, .gated = false},
          {.activation = Activation::kXielu, .gated = false},
          {.activation = Activation::kClampedSwiGlu, .sharpness = 1.702, .limit = 7}}) {
      const int64_t m = 3;
      const int64_t ffn = 776;
      const Floats x = Random(dtype, m * (shape.gated ? 2 : 1) * ffn, 20);
      const Floats alphas = Random(dtype, 2, 3);
      DeviceBytes device_x(Encode(dtype, x)), out(m * ffn * DTypeSize(dtype)),
          device_alphas(Encode(dtype, alphas));
      const bool is_xielu = shape.activation == Activation::kXielu;
      Activate({.dtype = dtype,
                .activation = shape.activation,
                .gated = shape.gated,
                .sharpness = static_cast<float>(shape.sharpness),
                .limit = static_cast<float>(shape.limit),
                .xielu = is_xielu ? device_alphas.data() : nullptr,
                .x = device_x.data(),
                .out = out.data(),
                .m = m,
                .ffn = ffn},
               nullptr);
      reference::ActivationShape want = shape;
      want.ffn = ffn;
      if (is_xielu) {
        want.alpha_p = std::log1p(std::exp(alphas[0]));
        want.alpha_n = 0.5 + std::log1p(std::exp(alphas[1]));
      }
      ExpectClose(Decode(dtype, out.Download()), reference::Activate(ToDouble(x), want),
                  Epsilon(dtype) + 2e-6);
    }
  }
}

TEST_F(ElementwiseTest, CapsSoftly) {
  const Floats x = Random(DType::kFloat32, 300, 100);
  DeviceArray<float> device(x);
  SoftCap(device.data(), 300, 30.0f, nullptr);
  reference::Matrix want;
  for (float value : x) want.push_back(30 * std::tanh(value / 30.0));
  ExpectClose(device.Download(), want, 1e-6);
}

TEST_F(ElementwiseTest, CopiesPagesOfAllLayersAndNothingElse) {
  KvPages kv{.format = KvFormat::kFloat8, .kv_heads = 3, .head_dim = 24, .num_pages = 5};
  const int64_t page = kKvPageSize * kv.kv_heads * kv.head_dim;
  const int64_t pool = page * kv.num_pages;
  const int64_t num_layers = 2;
  std::vector<uint8_t> bytes(2 * num_layers * pool);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(RandomInt(0, 255));
  DeviceBytes device(bytes);
  DeviceArray<PageCopy> copies(std::vector<PageCopy>{{4, 0}, {2, 3}});
  kv.k = device.data();
  kv.v = device.data() + pool;
  CopyPages({.first = kv,
             .num_layers = num_layers,
             .layer_stride = 2 * pool,
             .copies = copies.data(),
             .num_copies = 2},
            nullptr);
  for (int64_t p = 0; p < 2 * num_layers; ++p) {
    std::copy_n(&bytes[p * pool + 4 * page], page, &bytes[p * pool]);
    std::copy_n(&bytes[p * pool + 2 * page], page, &bytes[p * pool + 3 * page]);
  }
  EXPECT_EQ(device.Download(), bytes);
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
