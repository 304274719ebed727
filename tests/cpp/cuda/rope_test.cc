#include "cuda/test_util.h"

namespace mlc_native::kernels::cuda {
namespace {

// Which of the three numbers of its row turns each pair: in turns, or in sections.
enum class Components { kNone, kInTurns, kInSections };

// What rows have of values, and whether these are normalized.
struct Values {
  KvParts parts = KvParts::kBoth;
  bool has_norm = false;
};

constexpr uint8_t kNoComponent = 0;

class RopeTest : public CudaKernelTest {
 protected:
  void Check(DType dtype, KvFormat format, int64_t head_dim, int64_t rotary_dim, bool has_norm,
             bool interleaved = false, float amplitude = 1.0f, const Values& values = {},
             Components places = Components::kNone) {
    const int64_t m = 4;
    const int64_t q_heads = 6;
    KvPages kv{.format = format, .kv_heads = 3, .head_dim = head_dim, .num_pages = 3};
    const bool is_q_alone = values.parts == KvParts::kNone;
    const int64_t kv_heads = is_q_alone ? 0 : kv.kv_heads;
    const int64_t v_columns = values.parts == KvParts::kBoth ? kv_heads : 0;
    const int64_t width = (q_heads + kv_heads + v_columns) * head_dim;
    const int64_t ld = width + 8;
    const Floats x = Random(dtype, m * ld, amplitude);
    const Floats q_norm = Random(dtype, head_dim);
    const Floats k_norm = Random(dtype, head_dim);
    const Floats v_norm = Random(dtype, head_dim);
    const std::vector<int32_t> positions{0, 17, 3, 18};
    const std::vector<int64_t> slots{47, 1, -1, 16};  // row 2 is an unused one
    std::vector<double> frequencies(rotary_dim / 2);
    for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] = 1.0 / (1.0 + 3.0 * i);
    Floats cos, sin;
    for (int p = 0; p < 19; ++p) {
      for (double f : frequencies) {
        cos.push_back(static_cast<float>(std::cos(p * f)));
        sin.push_back(static_cast<float>(std::sin(p * f)));
      }
    }
    DeviceBytes qkv(Encode(dtype, x)), device_q_norm(Encode(dtype, q_norm)),
        device_k_norm(Encode(dtype, k_norm)), device_v_norm(Encode(dtype, v_norm));
    const size_t pool = kv.num_pages * kv.kv_heads * kv.head_bytes();
    DeviceBytes k_pages(pool), v_pages(pool);
    kv.k = k_pages.data();
    kv.v = v_pages.data();
    DeviceArray<int32_t> device_positions(positions);
    DeviceArray<int64_t> device_slots(slots);
    DeviceArray<float> device_cos(cos), device_sin(sin);
    const std::vector<int32_t> three{5, 0, 18, 1, 2, 3, 7, 7, 7, 16, 17, 4};
    std::vector<uint8_t> components;
    for (size_t i = 0; i < frequencies.size(); ++i) {
      const size_t section = i < 3 ? 0 : i < frequencies.size() / 2 ? 1 : 2;
      components.push_back(static_cast<uint8_t>(places == Components::kInTurns ? i % 3 : section));
    }
    const bool has_places = places != Components::kNone;
    DeviceArray<int32_t> device_three(three);
    DeviceArray<uint8_t> device_components(components);
    QkRopeWriteKv(kv,
                  {.dtype = dtype,
                   .qkv = qkv.data(),
                   .ld = ld,
                   .m = m,
                   .q_heads = q_heads,
                   .parts = values.parts,
                   .q_norm = has_norm ? device_q_norm.data() : nullptr,
                   .k_norm = has_norm ? device_k_norm.data() : nullptr,
                   .v_norm = values.has_norm ? device_v_norm.data() : nullptr,
                   .weight_offset = 1.0f,
                   .eps = 1e-5f,
                   .rotary_dim = rotary_dim,
                   .positions = device_positions.data(),
                   .slots = device_slots.data(),
                   .cos = device_cos.data(),
                   .sin = device_sin.data(),
                   .rope_positions = has_places ? device_three.data() : nullptr,
                   .components = has_places ? device_components.data() : nullptr,
                   .interleaved = interleaved},
                  nullptr);

    const Floats got = Decode(dtype, qkv.Download());
    const auto k_bytes = k_pages.Download();
    const auto v_bytes = v_pages.Download();
    const double tolerance = 2 * Epsilon(dtype) + 1e-5;
    for (int64_t row = 0; row < m; ++row) {
      for (int64_t h = 0; h < q_heads + 2 * kv_heads; ++h) {
        const bool is_q = h < q_heads;
        const bool is_v = h >= q_heads + kv_heads;
        const int64_t source = is_v && v_columns == 0 ? h - kv_heads : h;
        const auto begin = x.begin() + row * ld + source * head_dim;
        reference::Matrix want(begin, begin + head_dim);
        if (values.has_norm && is_v) {
          want = reference::Normalize(want, ToDouble(v_norm), 1.0, 1e-5);
        }
        if (has_norm && !is_v) {
          want = reference::Normalize(want, ToDouble(is_q ? q_norm : k_norm), 1.0, 1e-5);
        }
        if (!is_v) {
          std::vector<double> angles = frequencies;
          for (size_t i = 0; has_places && i < angles.size(); ++i) {
            angles[i] *= three[3 * row + components[i]];
          }
          want = reference::Rope(want, head_dim, {has_places ? 1 : positions[row]}, angles,
                                 interleaved);
        }
        if (is_q) {
          const auto at = got.begin() + row * ld + h * head_dim;
          if (slots[row] >= 0) ExpectClose(Floats(at, at + head_dim), want, tolerance);
          continue;
        }
        if (slots[row] < 0) continue;
        const int64_t kv_head = h - q_heads - (is_v ? kv.kv_heads : 0);
        const Floats stored = ReadRow(kv, dtype, is_v ? v_bytes : k_bytes, slots[row], kv_head);
        if (format == KvFormat::kFloat8) {
          ExpectCodesNear(stored, want);
        } else {
          ExpectClose(stored, want, tolerance);
        }
      }
      const int64_t behind_q = row * ld + q_heads * head_dim;
      for (int64_t i = behind_q; i < (row + 1) * ld; ++i) ASSERT_EQ(got[i], x[i]);
    }
    ExpectWritten(kv, k_bytes, 3 * kv_heads);
    ExpectWritten(kv, v_bytes, 3 * kv_heads);
  }

  static Floats ReadRow(const KvPages& kv, DType dtype, const std::vector<uint8_t>& bytes,
                        int64_t slot, int64_t kv_head) {
    const int64_t row_bytes = kv.head_dim * KvElementBytes(kv.format);
    const uint8_t* page =
        bytes.data() + (slot / kKvPageSize * kv.kv_heads + kv_head) * kv.head_bytes();
    const uint8_t* row = page + slot % kKvPageSize * row_bytes;
    float scale = 1.0f;
    if (kv.format == KvFormat::kFloat8) {
      std::memcpy(&scale, page + kKvPageSize * row_bytes + slot % kKvPageSize * 4, sizeof scale);
    }
    Floats x(kv.head_dim);
    for (int64_t i = 0; i < kv.head_dim; ++i) {
      x[i] =
          kv.format == KvFormat::kFloat8 ? scale * Float8Value(row[i]) : LoadElement(dtype, row, i);
    }
    return x;
  }

  // A number of E4M3 has 4 bits, or is a multiple of 2^-9; the largest one is 448.
  static void ExpectCodesNear(const Floats& got, const reference::Matrix& want) {
    double largest = 0;
    for (const double x : want) largest = std::max(largest, std::abs(x));
    for (size_t i = 0; i < got.size(); ++i) {
      const double error = std::max(std::abs(want[i]) / 16, largest / 448 / 1024);
      ASSERT_NEAR(got[i], want[i], 1.02 * error + 1e-3 * largest) << "at " << i;
    }
  }

  // The poison has all bits set; no result has, and no scale, of which single bytes may.
  static void ExpectWritten(const KvPages& kv, const std::vector<uint8_t>& bytes, int64_t heads) {
    const size_t row_bytes = kv.head_dim * KvElementBytes(kv.format);
    int64_t elements = 0, scales = 0;
    const auto count = [&](size_t begin, size_t end, size_t size, int64_t* written) {
      for (size_t at = begin; at < end; at += size) {
        const auto first = bytes.begin() + static_cast<ptrdiff_t>(at);
        *written += std::all_of(first, first + static_cast<ptrdiff_t>(size),
                                [](uint8_t byte) { return byte == 0xff; })
                        ? 0
                        : 1;
      }
    };
    for (size_t page = 0; page < bytes.size(); page += kv.head_bytes()) {
      const size_t behind_rows = page + kKvPageSize * row_bytes;
      count(page, behind_rows, KvElementBytes(kv.format), &elements);
      count(behind_rows, page + kv.head_bytes(), sizeof(float), &scales);
    }
    EXPECT_EQ(elements, heads * kv.head_dim);
    EXPECT_EQ(scales, kv.format == KvFormat::kFloat8 ? heads : 0);
  }
};

TEST_F(RopeTest, MatchesTheReference) {
  for (DType dtype : kDTypes) {
    const auto same = KvFormatOf(dtype);
    Check(dtype, same, 64, 64, false);
    Check(dtype, same, 128, 128, true);
    Check(dtype, same, 80, 20, false);
    Check(dtype, same, 256, 256, true);
    Check(dtype, same, 8, 6, true);
    Check(dtype, same, 16, 0, true);
    Check(dtype, same, 80, 20, true, true);
    if (dtype != DType::kFloat32) Check(dtype, KvFormat::kFloat8, 96, 96, false);
  }
}

TEST_F(RopeTest, PairsTurnByTheNumberOfTheirComponent) {
  for (DType dtype : kDTypes) {
    for (const Components places : {Components::kInTurns, Components::kInSections}) {
      const auto check = [&](int64_t head_dim, int64_t rotary_dim, bool interleaved) {
        Check(dtype, KvFormatOf(dtype), head_dim, rotary_dim, true, interleaved, 1.0f, {}, places);
      };
      check(128, 128, false);
      check(80, 20, false);
      check(64, 64, true);
      check(512, 512, false);
    }
  }
  EXPECT_ANY_THROW(QkRopeWriteKv({.kv_heads = 1, .head_dim = 64},
                                 {.m = 1, .q_heads = 1, .components = &kNoComponent}, nullptr));
}

TEST_F(RopeTest, HeadsOfUpTo512Elements) {
  for (DType dtype : kDTypes) {
    const auto same = KvFormatOf(dtype);
    Check(dtype, same, 512, 512, true);
    Check(dtype, same, 264, 40, false);
    Check(dtype, same, 504, 504, true, true);
    if (dtype != DType::kFloat32) Check(dtype, KvFormat::kFloat8, 512, 128, true);
  }
  EXPECT_ANY_THROW(Check(DType::kBFloat16, KvFormat::kBFloat16, 520, 520, false));
}

TEST_F(RopeTest, ValuesAreNormalizedMadeOfKeysOrAbsent) {
  for (DType dtype : kDTypes) {
    for (const int64_t head_dim : {24, 256, 512}) {
      for (const KvParts parts : {KvParts::kBoth, KvParts::kKeysAlone, KvParts::kNone}) {
        for (const bool has_norm : {true, false}) {
          const Values values{parts, has_norm};
          Check(dtype, KvFormatOf(dtype), head_dim, head_dim, has_norm, false, 1.0f, values);
          if (dtype == DType::kFloat32) continue;
          Check(dtype, KvFormat::kFloat8, head_dim, 8, true, false, 1.0f, values);
        }
      }
    }
  }
}

// Whatever the magnitude is, which without a scale would have to be in [2^-9, 448].
TEST_F(RopeTest, AScaleKeepsLargeAndSmallNumbers) {
  for (const float amplitude : {0.0f, 1e-4f, 1000.0f, 30000.0f}) {
    Check(DType::kFloat16, KvFormat::kFloat8, 64, 64, false, false, amplitude);
    Check(DType::kBFloat16, KvFormat::kFloat8, 40, 16, false, false, amplitude);
  }
  Check(DType::kBFloat16, KvFormat::kFloat8, 256, 256, false, false, 1e20f);
}

// On every GPU, also where codes of NaNs are read as numbers: the scale is infinite, and the codes
// of finite numbers are zeros.
TEST_F(RopeTest, ANumberThatIsNoneShowsInTheWholeHead) {
  constexpr int64_t kDim = 64;
  KvPages kv;
  kv.format = KvFormat::kFloat8;
  kv.num_pages = 1;
  kv.kv_heads = 1;
  kv.head_dim = kDim;
  for (const float bad : {NAN, INFINITY}) {
    Floats x = Random(DType::kBFloat16, 3 * kDim);
    x[2 * kDim + 37] = bad;  // of v
    DeviceBytes qkv(Encode(DType::kBFloat16, x));
    DeviceBytes k_pages(kv.head_bytes()), v_pages(kv.head_bytes());
    kv.k = k_pages.data();
    kv.v = v_pages.data();
    DeviceArray<int32_t> positions(std::vector<int32_t>{0});
    DeviceArray<int64_t> slots(std::vector<int64_t>{5});
    QkRopeWriteKv(kv,
                  {.dtype = DType::kBFloat16,
                   .qkv = qkv.data(),
                   .ld = 3 * kDim,
                   .m = 1,
                   .q_heads = 1,
                   .positions = positions.data(),
                   .slots = slots.data()},
                  nullptr);
    const std::vector<uint8_t> page = v_pages.Download();
    float scale;
    std::memcpy(&scale, page.data() + kKvPageSize * kDim + 5 * sizeof scale, sizeof scale);
    EXPECT_TRUE(std::isnan(scale)) << scale;
    for (int64_t i = 0; i < kDim; ++i) {
      const uint8_t code = page[5 * kDim + i];
      EXPECT_EQ(code & 0x7f, 0) << i;
    }
  }
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
