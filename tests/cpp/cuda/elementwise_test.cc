#include <algorithm>
#include <cmath>
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

TEST_F(ElementwiseTest, EmbedsTokensAtTheirPositions) {
  const int64_t k = 40;
  for (DType dtype : kDTypes) {
    const Floats table = Random(dtype, 9 * k), of_positions = Random(dtype, 7 * k, 4);
    const std::vector<int32_t> meant{3, 5, 0, 8}, at{6, 0, 2, 2};
    DeviceBytes device_table(Encode(dtype, table)), positions(Encode(dtype, of_positions));
    DeviceArray<int32_t> ids(std::vector<int32_t>{3, -1, 0, 8}), sampled(std::vector<int32_t>{5}),
        device_at(at);
    DeviceArray<float> out(meant.size() * k);
    Embed({.dtype = dtype,
           .table = device_table.data(),
           .k = k,
           .ids = ids.data(),
           .sampled = sampled.data(),
           .position_table = positions.data(),
           .positions = device_at.data(),
           .m = static_cast<int64_t>(meant.size()),
           .scale = 0.5f,
           .out = out.data()},
          nullptr);
    const Floats got = out.Download();
    for (size_t i = 0; i < got.size(); ++i) {
      const size_t row = i / k, column = i % k;
      ASSERT_EQ(got[i], 0.5f * table[meant[row] * k + column] + of_positions[at[row] * k + column]);
    }
  }
}

TEST_F(ElementwiseTest, EmbedsWhatSampledTokensStandFor) {
  const int64_t k = 8;
  const Floats table = Random(DType::kFloat32, 9 * k);
  const std::vector<int32_t> meant{2, 7, 1, 4};
  DeviceArray<float> device_table(table), out(meant.size() * k);
  DeviceArray<int32_t> ids(std::vector<int32_t>{2, -1, 1, -2}),
      sampled(std::vector<int32_t>{1, -1}), stands_for(std::vector<int32_t>{4, 7});
  Embed({.dtype = DType::kFloat32,
         .table = device_table.data(),
         .k = k,
         .ids = ids.data(),
         .sampled = sampled.data(),
         .sampled_ids = stands_for.data(),
         .m = 4,
         .out = out.data()},
        nullptr);
  const Floats got = out.Download();
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i], table[meant[i / k] * k + i % k]) << i;
  }
}

TEST_F(ElementwiseTest, GatesInputs) {
  constexpr int64_t kRows = 3, kColumns = 24, kLd = 40;
  const std::vector<int32_t> rows{4, 0, 4};
  const DeviceArray<int32_t> device_rows(rows);
  for (DType dtype : kDTypes) {
    const Floats gate = Random(dtype, kRows * kColumns, 3);
    const Floats inputs = Random(DType::kFloat32, 5 * kLd, 2);
    const DeviceArray<float> device_inputs(inputs);
    for (const bool has_rows : {true, false}) {
      DeviceBytes device_gate(Encode(dtype, gate));
      GateInputs({.dtype = dtype,
                  .activation = Activation::kGeluTanh,
                  .gate = device_gate.data(),
                  .inputs = device_inputs.data() + 8,
                  .ld = kLd,
                  .rows = has_rows ? device_rows.data() : nullptr,
                  .m = kRows,
                  .n = kColumns},
                 nullptr);
      const Floats got = Decode(dtype, device_gate.Download());
      for (int64_t i = 0; i < kRows * kColumns; ++i) {
        const double x = gate[i];
        const double gelu =
            0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
        const int64_t row = has_rows ? rows[i / kColumns] : i / kColumns;
        const double want = gelu * inputs[row * kLd + 8 + i % kColumns];
        ASSERT_NEAR(got[i], want, (Epsilon(dtype) + 1e-5) * (1 + std::abs(want))) << i;
      }
    }
  }
}

TEST_F(ElementwiseTest, PicksWhatIsKnownOfRows) {
  const std::vector<int32_t> rows{2, 0, 2};
  const DeviceArray<int32_t> device_rows(rows), positions(std::vector<int32_t>{10, 11, 12}),
      lengths(std::vector<int32_t>{20, 21, 22}), tables(std::vector<int32_t>{30, 31, 32});
  const DeviceArray<int64_t> slots(std::vector<int64_t>{-1, 1, int64_t{1} << 40});
  DeviceArray<int32_t> to_positions(3), to_lengths(3), to_tables(3);
  DeviceArray<int64_t> to_slots(3);
  PickRows({.rows = device_rows.data(),
            .m = 3,
            .positions = positions.data(),
            .lengths = lengths.data(),
            .tables = tables.data(),
            .slots = slots.data(),
            .to_positions = to_positions.data(),
            .to_lengths = to_lengths.data(),
            .to_tables = to_tables.data(),
            .to_slots = to_slots.data()},
           nullptr);
  EXPECT_EQ(to_positions.Download(), (std::vector<int32_t>{12, 10, 12}));
  EXPECT_EQ(to_lengths.Download(), (std::vector<int32_t>{22, 20, 22}));
  EXPECT_EQ(to_tables.Download(), (std::vector<int32_t>{32, 30, 32}));
  EXPECT_EQ(to_slots.Download(), (std::vector<int64_t>{int64_t{1} << 40, -1, int64_t{1} << 40}));
}

// From every type to float32 and back; rows of `to` that are not named keep their poison.
TEST_F(ElementwiseTest, MovesRows) {
  const int64_t k = 16;
  const int64_t ld_from = 24;
  const int64_t ld_to = 32;
  const std::vector<int32_t> from_rows{4, 0, 4, 1}, to_rows{1, 5, -1, 0, 3}, to_index{4, 2, 1, 0};
  const std::vector<int32_t> meant{3, -1, 5, 1};  // to_rows[to_index[i]]
  DeviceArray<int32_t> rows(from_rows), places(to_rows), index(to_index);
  for (DType dtype : kDTypes) {
    for (const bool is_wide : {true, false}) {
      const DType from_dtype = is_wide ? DType::kFloat32 : dtype;
      const DType to_dtype = is_wide ? dtype : DType::kFloat32;
      const Floats from = Random(from_dtype, 5 * ld_from);
      const Floats before = Random(to_dtype, 6 * ld_to);
      DeviceBytes device_from(Encode(from_dtype, from)), device_to(Encode(to_dtype, before));
      MoveRowsArgs args{.from_dtype = from_dtype,
                        .from = device_from.data(),
                        .ld_from = ld_from,
                        .from_rows = rows.data(),
                        .to_dtype = to_dtype,
                        .to = device_to.data(),
                        .ld_to = ld_to,
                        .to_rows = places.data(),
                        .to_index = index.data(),
                        .scale = 0.5f,
                        .m = 4,
                        .k = k};
      MoveRows(args, nullptr);
      Floats want = before;
      for (size_t i = 0; i < 4; ++i) {
        for (int64_t j = 0; meant[i] >= 0 && j < k; ++j) {
          want[meant[i] * ld_to + j] = 0.5f * from[from_rows[i] * ld_from + j];
        }
      }
      want = Decode(to_dtype, Encode(to_dtype, want));
      EXPECT_EQ(Decode(to_dtype, device_to.Download()), want);
      args.from_rows = args.to_rows = args.to_index = nullptr;
      args.scale = 1.0f;
      MoveRows(args, nullptr);
      for (int64_t i = 0; i < 4; ++i) {
        for (int64_t j = 0; j < k; ++j) want[i * ld_to + j] = from[i * ld_from + j];
      }
      EXPECT_EQ(Decode(to_dtype, device_to.Download()), Decode(to_dtype, Encode(to_dtype, want)));
      args.scale = 0.25f;
      args.adds = true;
      MoveRows(args, nullptr);
      want = Decode(to_dtype, Encode(to_dtype, want));
      for (int64_t i = 0; i < 4; ++i) {
        for (int64_t j = 0; j < k; ++j) want[i * ld_to + j] += 0.25f * from[i * ld_from + j];
      }
      EXPECT_EQ(Decode(to_dtype, device_to.Download()), Decode(to_dtype, Encode(to_dtype, want)));
    }
  }
}

TEST_F(ElementwiseTest, AddsPartsInTheirOrder) {
  constexpr int kParts = 5;
  constexpr int64_t kCount = 24;
  constexpr int64_t kStride = 32;
  for (const DType dtype : kDTypes) {
    const Floats parts = Random(dtype, kParts * kStride, 100.0f);
    for (int own = 0; own < kParts; ++own) {
      const Floats mine = Random(dtype, kCount);
      Floats want(kCount);
      for (int p = 0; p < kParts; ++p) {
        for (int64_t i = 0; i < kCount; ++i) want[i] += p == own ? mine[i] : parts[p * kStride + i];
      }
      const DeviceBytes device_parts(Encode(dtype, parts));
      DeviceBytes sum(Encode(dtype, mine));
      AddParts({.dtype = dtype,
                .parts = device_parts.data(),
                .stride = kStride,
                .num_parts = kParts,
                .own = own,
                .sum = sum.data(),
                .count = kCount},
               nullptr);
      EXPECT_EQ(Decode(dtype, sum.Download()), Decode(dtype, Encode(dtype, want))) << own;
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
          {.activation = Activation::kGelu, .gated = false},
          {.activation = Activation::kRelu, .gated = false},
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
                .rule = {.activation = shape.activation,
                         .gated = shape.gated,
                         .sharpness = static_cast<float>(shape.sharpness),
                         .limit = static_cast<float>(shape.limit)},
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
  const int64_t page = kv.kv_heads * kv.head_bytes();
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
