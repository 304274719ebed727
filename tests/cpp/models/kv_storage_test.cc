#include "models/kv_storage.h"

#include <gtest/gtest.h>

#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace mlc_native {
namespace {

ModelConfig ShapeOfKv() {
  ModelConfig config;
  config.num_kv_heads = 2;
  config.head_dim = 128;
  config.layers.resize(2);
  return config;
}

#if defined(__linux__)
// Of the system's pages within [data, data + size).
double ShareThatIsThere(const void* data, int64_t size) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(data) + page - 1) / page * page;
  const auto end = (reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(size)) / page * page;
  std::vector<unsigned char> marks((end - begin) / page);
  EXPECT_EQ(mincore(reinterpret_cast<void*>(begin), end - begin, marks.data()), 0);
  double there = 0;
  for (const unsigned char mark : marks) there += mark & 1;
  return there / static_cast<double>(marks.size());
}

TEST(KvStorageTest, MemoryIsThereBeforeItIsUsedAndNoSooner) {
  if (!MemoryTouch::IsSupported()) GTEST_SKIP() << "before Linux 5.14";
  using kernels::kKvBlockPages;
  constexpr int64_t kBlockBytes = 2 * 2 * 2 * kKvBlockPages * 16 * 128 * 2, kAtOnce = 8;
  static_assert(kAtOnce * kBlockBytes == 8 << 20);
  KvStorage kv(ShapeOfKv(), kernels::KvFormat::kBFloat16, 3000);
  kv.WaitForMemory();
  const auto share = [&](int64_t first_block, int64_t num_blocks) {
    const auto* data = static_cast<const std::byte*>(kv.layer(0).k_pages);
    return ShareThatIsThere(data + first_block * kBlockBytes, num_blocks * kBlockBytes);
  };
  const auto expect = [&](int64_t page) {
    kv.Expect(page);
    kv.WaitForMemory();
  };
  EXPECT_EQ(share(0, kAtOnce), 1.0);
  expect((kAtOnce - 1) * kKvBlockPages - 1);
  EXPECT_LT(share(kAtOnce, kAtOnce), 0.5);
  expect((kAtOnce - 1) * kKvBlockPages);
  EXPECT_EQ(share(kAtOnce, kAtOnce), 1.0);
  EXPECT_LT(share(2 * kAtOnce, kAtOnce), 0.5);
  constexpr int64_t kFar = 50;
  expect(kFar * kKvBlockPages);
  EXPECT_EQ(share(2 * kAtOnce, kFar + 2 - 2 * kAtOnce), 1.0);
  EXPECT_LT(share(kFar + 4, kAtOnce), 0.5);
}

TEST(KvStorageTest, IsSpreadOverTheNodesOfItsThreads) {
  const auto policy = [](int num_nodes) {
    const KvStorage kv(ShapeOfKv(), kernels::KvFormat::kBFloat16, 300, num_nodes);
    constexpr int kOfAnAddress = 2;  // MPOL_F_ADDR
    int policy = -1;
    syscall(SYS_get_mempolicy, &policy, nullptr, 0, kv.layer(0).k_pages, kOfAnAddress);
    return policy;
  };
  constexpr int kNone = -1, kDefault = 0, kInterleave = 3;
  if (policy(1) == kNone) GTEST_SKIP() << "the system has no such memory, or does not allow it";
  EXPECT_EQ(policy(1), kDefault);
  EXPECT_EQ(policy(2), kInterleave);
}
#endif

// Layers with 2 heads of 128, 1 head of 256, and one that reads the keys and values of the first.
ModelConfig ShapeOfLayersWithTheirOwnSizes() {
  ModelConfig config = ShapeOfKv();
  config.layers.resize(3);
  config.layers[1].own_kv_heads = 1;
  config.layers[1].own_head_dim = 256;
  config.layers[2].kv_source = 0;
  return config;
}

TEST(KvStorageTest, LayersHaveTheirOwnSizesAndMayShareTheirPages) {
  ModelConfig config = ShapeOfLayersWithTheirOwnSizes();
  const KvStorage kv(config, kernels::KvFormat::kBFloat16, 3);
  EXPECT_EQ(kv.layer(0).kv_heads, 2);
  EXPECT_EQ(kv.layer(0).head_dim, 128);
  EXPECT_EQ(kv.layer(1).kv_heads, 1);
  EXPECT_EQ(kv.layer(1).head_dim, 256);
  EXPECT_EQ(kv.layer(2).head_dim, 128);
  EXPECT_EQ(kv.layer(2).k_pages, kv.layer(0).k_pages);
  EXPECT_EQ(kv.layer(2).v_pages, kv.layer(0).v_pages);
  EXPECT_EQ(KvStorage::BytesPerToken(config, kernels::KvFormat::kBFloat16),
            2 * 2 * (2 * 128 + 1 * 256));
  config.layers[1].own_head_dim = 512;
  EXPECT_EQ(KvStorage::BytesPerToken(config, kernels::KvFormat::kBFloat16),
            2 * 2 * (2 * 128 + 1 * 512));
}

TEST(KvStorageTest, CopiesThePagesOfLayersWithTheirOwnSizes) {
  KvStorage kv(ShapeOfLayersWithTheirOwnSizes(), kernels::KvFormat::kFloat32, 3);
  const auto page = [&](size_t layer, int64_t number) {
    const kernels::KvPages& pages = kv.layer(layer);
    return static_cast<float*>(pages.v_pages) + number * kKvPageSize * pages.head_dim;
  };
  for (const size_t layer : {0, 1}) {
    page(layer, 0)[5] = 7.0f + static_cast<float>(layer);
    page(layer, 2)[5] = 0.0f;
  }
  const PageCopy copy{.src_page = 0, .dst_page = 2};
  kv.CopyPages({&copy, 1});
  EXPECT_EQ(page(0, 2)[5], 7.0f);
  EXPECT_EQ(page(1, 2)[5], 8.0f);
}

// Layers whose tokens leave nothing, something, and something for an index, too.
TEST(KvStorageTest, HasEntriesAndWhatTokensLeaveForThem) {
  ModelConfig config;
  config.num_kv_heads = 1;
  config.head_dim = 32;
  config.compression = {.q_rank = 8, .index = {.num_heads = 2, .head_dim = 16, .num_chosen = 3}};
  config.layers.resize(3);
  config.layers[1].tokens_per_entry = 24;
  config.layers[2].tokens_per_entry = 4;
  config.layers[2].chooses_entries = true;
  KvStorage kv(config, kernels::KvFormat::kFloat32, 40);
  EXPECT_EQ(KvStorage::BytesPerToken(config, kernels::KvFormat::kFloat32),
            4 * (2 * 32 + (2 * 32 + 2 * 32) + (2 * 32 + 16 + 4 * 32 + 4 * 16)));
  EXPECT_EQ(kv.token_rows(0).data, nullptr);
  EXPECT_EQ(kv.token_rows(1).width, 2 * 32);
  EXPECT_EQ(kv.token_rows(2).width, 4 * 32 + 4 * 16);
  EXPECT_EQ(kv.layer(1).k_pages, nullptr);
  EXPECT_EQ(kv.index(1).k_pages, nullptr);
  const std::vector<float*> parts = {
      static_cast<float*>(kv.layer(2).v_pages), static_cast<float*>(kv.entries(1).v_pages),
      static_cast<float*>(kv.entries(2).v_pages), static_cast<float*>(kv.index(2).k_pages)};
  const std::vector<int64_t> widths = {32, 32, 32, 16};
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i][2 * kKvPageSize * widths[i] + 5] = static_cast<float>(i + 1);
    parts[i][7 * kKvPageSize * widths[i] + 5] = 0;
  }
  for (const size_t layer : {1, 2}) {
    kv.token_rows(layer).At(2, 15)[3] = 9;
    kv.token_rows(layer).At(39, 15)[3] = kv.token_rows(layer).At(7, 15)[3] = 0;
  }
  const PageCopy copies[] = {{.src_page = 2, .dst_page = 7}, {.src_page = 2, .dst_page = 39}};
  kv.CopyPages(copies);
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(parts[i][7 * kKvPageSize * widths[i] + 5], static_cast<float>(i + 1)) << i;
  }
  for (const size_t layer : {1, 2}) {
    EXPECT_EQ(kv.token_rows(layer).At(7, 15)[3], 9);
    EXPECT_EQ(kv.token_rows(layer).At(39, 15)[3], 9);  // in the next block
  }
}

TEST(KvStorageTest, ExpectsTheLastPageToo) {
  KvStorage kv(ShapeOfKv(), kernels::KvFormat::kInt8, 1100);
  for (const int64_t page : {0, 600, 1099, 1099}) {
    kv.Expect(page);
    kv.WaitForMemory();
  }
}

}  // namespace
}  // namespace mlc_native
