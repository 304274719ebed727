#include "kernels/attention_fixture.h"

namespace mlc_native::kernels {
namespace {

class KvPagesTest : public KernelTest {
 protected:
  static constexpr int64_t kHeads = 3, kDim = 21, kPages = 4, kWidth = kHeads * kDim;
  static constexpr int64_t kPagesInBlocks = kKvBlockPages + 2;

  // Pages whose bytes are all the same.
  struct Pages {
    AlignedBuffer k_pages, v_pages;
    KvPages layer;

    Pages(KvFormat format, int byte, int64_t num_pages = kPages) {
      const size_t bytes = KvLayerBytes(format, num_pages, kHeads, kDim);
      k_pages = AlignedBuffer(bytes);
      v_pages = AlignedBuffer(bytes);
      std::memset(k_pages.data(), byte, bytes);
      std::memset(v_pages.data(), byte, bytes);
      layer = {.format = format,
               .kv_heads = kHeads,
               .head_dim = kDim,
               .num_pages = num_pages,
               .k_pages = k_pages.data(),
               .v_pages = v_pages.data()};
    }

    // Two blocks, each of them K, then V.
    static Pages InBlocks(KvFormat format, int byte) {
      Pages pages(format, byte, 4 * kKvBlockPages);
      const size_t bytes = KvLayerBytes(format, kKvBlockPages, kHeads, kDim);
      pages.layer.num_pages = kPagesInBlocks;
      pages.layer.v_pages = static_cast<char*>(pages.layer.k_pages) + bytes;
      pages.layer.block_bytes = static_cast<int64_t>(2 * bytes);
      return pages;
    }
  };

  void Write(const KvPages& layer, const Floats& k, const Floats& v,
             const std::vector<int64_t>& slots) {
    WriteKv(Threads(1), layer,
            {.k = k.data(),
             .ldk = kWidth,
             .v = v.data(),
             .ldv = kWidth,
             .m = static_cast<int64_t>(slots.size()),
             .slots = slots.data()});
  }

  static const char* Page(const KvPages& layer, const void* pages, int64_t page, int64_t head) {
    const auto* first = static_cast<const char*>(pages);
    int64_t in_a_row = layer.num_pages;
    if (layer.block_bytes > 0) {
      in_a_row = kKvBlockPages;
      for (; page >= in_a_row; page -= in_a_row) first += layer.block_bytes;
    }
    return first + (head * in_a_row + page) * KvPageBytes(layer.format, kDim);
  }

  static float Scaled(KvFormat format, const char* page, int64_t index, int64_t token) {
    switch (format) {
      case KvFormat::kFloat32:
        return LoadElement(DType::kFloat32, page, index);
      case KvFormat::kBFloat16:
        return LoadElement(DType::kBFloat16, page, index);
      case KvFormat::kFloat16:
        return LoadElement(DType::kFloat16, page, index);
      case KvFormat::kFloat8:
        break;  // CUDA only
      case KvFormat::kInt8: {
        const float scale = LoadElement(DType::kFloat32, page + kPageSize * KvRow(kDim), token);
        return scale * static_cast<float>(static_cast<int8_t>(page[index]));
      }
    }
    return 0;
  }
  static float Key(const KvPages& layer, int64_t slot, int64_t head, int64_t d) {
    const int64_t token = slot % kPageSize;
    return Scaled(layer.format, Page(layer, layer.k_pages, slot / kPageSize, head),
                  KvKeyIndex(KvInPairs(layer.format), token, d), token);
  }
  static float Value(const KvPages& layer, int64_t slot, int64_t head, int64_t d) {
    const int64_t token = slot % kPageSize;
    return Scaled(layer.format, Page(layer, layer.v_pages, slot / kPageSize, head),
                  KvValueIndex(KvInPairs(layer.format), KvRow(kDim), token, d), token);
  }
};

TEST_P(KvPagesTest, WriteKvTouchesOnlyItsSlotsAndCopyPageCopiesAll) {
  for (KvFormat format : kKvFormats) {
    for (const bool in_blocks : {false, true}) {
      SCOPED_TRACE(KvFormatName(format));
      SCOPED_TRACE(in_blocks);
      const auto make = [&] {
        return in_blocks ? Pages::InBlocks(format, 0x3a) : Pages(format, 0x3a);
      };
      const Pages pages = make(), old = make();
      const int64_t last = pages.layer.num_pages - 1;
      const std::vector<int64_t> slots = {1 * kPageSize + 15, last * kPageSize + 0};
      Floats k = Random(2 * kWidth), v = Random(2 * kWidth);
      RoundAsStored(format, kDim, k);
      RoundAsStored(format, kDim, v);
      Write(pages.layer, k, v, slots);
      CopyPage(pages.layer, last, 0);
      for (int64_t slot = 0; slot < pages.layer.num_pages * kPageSize; ++slot) {
        const int64_t source = slot == 0 ? slots[1] : slot;  // page 0 is a copy of the last one
        const int64_t row = source == slots[0] ? 0 : source == slots[1] ? 1 : -1;
        for (int64_t i = 0; i < kWidth; ++i) {
          const int64_t head = i / kDim, d = i % kDim;
          const auto want = [&](const Floats& written, float before) {
            return row < 0 ? before : written[row * kWidth + i];
          };
          ASSERT_FLOAT_EQ(Key(pages.layer, slot, head, d), want(k, Key(old.layer, slot, head, d)));
          ASSERT_FLOAT_EQ(Value(pages.layer, slot, head, d),
                          want(v, Value(old.layer, slot, head, d)));
        }
      }
    }
  }
}

TEST_P(KvPagesTest, ElementsOfKeysBeyondHeadDimAreZero) {
  for (KvFormat format : kKvFormats) {
    const Pages pages(format, 0xff);
    Write(pages.layer, Random(kWidth), Random(kWidth), {5});
    for (int64_t d = kDim; d < KvRow(kDim); ++d) ASSERT_EQ(Key(pages.layer, 5, 1, d), 0) << d;
  }
}

TEST_P(KvPagesTest, WhatIsNotFiniteIsNotLost) {
  const float inf = std::numeric_limits<float>::infinity();
  for (KvFormat format : kKvFormats) {
    for (float bad : {inf, -inf, std::numeric_limits<float>::quiet_NaN()}) {
      const Pages pages(format, 0);
      Floats k = Random(kWidth), v = Random(kWidth);
      k[5] = v[kDim + 6] = bad;
      Write(pages.layer, k, v, {17});
      EXPECT_FALSE(std::isfinite(Key(pages.layer, 17, 0, 5)));
      EXPECT_FALSE(std::isfinite(Value(pages.layer, 17, 1, 6)));
      EXPECT_TRUE(std::isfinite(Key(pages.layer, 17, 1, 6)));
      EXPECT_TRUE(std::isfinite(Value(pages.layer, 17, 0, 5)));
    }
  }
}

TEST_P(KvPagesTest, Int8RoundsToTheNearestOf255StepsAndKeepsZeros) {
  const Pages pages(KvFormat::kInt8, 0xff);
  Floats k = Random(kWidth, 3.0f), v(kWidth, 0.0f);
  k[0] = 127.0f, k[1] = 0.5f, k[2] = 1.5f, k[3] = -2.5f;  // ties of steps of 1: to even
  Write(pages.layer, k, v, {40});
  const Floats want = {127, 0, 2, -2};
  for (int64_t d = 0; d < 4; ++d) EXPECT_EQ(Key(pages.layer, 40, 0, d), want[d]);
  for (int64_t d = 4; d < kDim; ++d) EXPECT_NEAR(Key(pages.layer, 40, 0, d), k[d], 0.5);
  for (int64_t i = 0; i < kWidth; ++i) {
    ASSERT_EQ(Value(pages.layer, 40, i / kDim, i % kDim), 0);
  }
}

// Neighbours are written together.
TEST_P(KvPagesTest, TokensHaveTheSameBytesAloneAndTogether) {
  constexpr int64_t kTokens = 45, kFirst = 3;
  const Floats k = Random(kTokens * kWidth, 5.0f), v = Random(kTokens * kWidth, 5.0f);
  std::vector<int64_t> slots(kTokens);
  std::iota(slots.begin(), slots.end(), kFirst);
  std::swap(slots[20], slots[30]);
  for (KvFormat format : kKvFormats) {
    SCOPED_TRACE(KvFormatName(format));
    const Pages together(format, 0x3a), alone(format, 0x3a);
    Write(together.layer, k, v, slots);
    for (int64_t i = 0; i < kTokens; ++i) {
      const auto row = [i](const Floats& x) {
        return Floats(x.begin() + i * kWidth, x.begin() + (i + 1) * kWidth);
      };
      Write(alone.layer, row(k), row(v), {slots[i]});
    }
    const size_t bytes = together.k_pages.size();
    EXPECT_EQ(std::memcmp(together.k_pages.data(), alone.k_pages.data(), bytes), 0);
    EXPECT_EQ(std::memcmp(together.v_pages.data(), alone.v_pages.data(), bytes), 0);
  }
}

TEST_P(KvPagesTest, EveryIsaWritesTheSameBytes) {
  const Floats k = Random(kWidth, 5.0f), v = Random(kWidth, 5.0f);
  for (KvFormat format : kKvFormats) {
    const Pages pages(format, 0), portable(format, 0);
    Write(pages.layer, k, v, {33});
    ThreadPool one(1);
    const std::vector<int64_t> slots = {33};
    WriteKv({&SelectCpuKernels("portable"), &one}, portable.layer,
            {.k = k.data(),
             .ldk = kWidth,
             .v = v.data(),
             .ldv = kWidth,
             .m = 1,
             .slots = slots.data()});
    const size_t bytes = pages.k_pages.size();
    EXPECT_EQ(std::memcmp(pages.k_pages.data(), portable.k_pages.data(), bytes), 0);
    EXPECT_EQ(std::memcmp(pages.v_pages.data(), portable.v_pages.data(), bytes), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, KvPagesTest, testing::ValuesIn(IsaNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace mlc_native::kernels
