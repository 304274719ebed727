#include "models/kv_storage.h"

#include <gtest/gtest.h>

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>

#include <vector>
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

// The pages of one huge page after the other, in every layer and head.
TEST(KvStorageTest, MemoryIsThereBeforeItIsUsed) {
  if (!MemoryTouch::IsSupported()) GTEST_SKIP() << "before Linux 5.14";
  constexpr int64_t kPages = 3000;
  constexpr int64_t kPageBytes = 16 * 128 * 2, kAtOnce = (2 << 20) / kPageBytes;
  KvStorage kv(ShapeOfKv(), kernels::KvFormat::kBFloat16, kPages);
  // Not the ends, which may share a huge page with what is not meant.
  const auto share = [&](size_t layer, bool values, int64_t head, int64_t block) {
    const kernels::KvPages& pages = kv.layer(layer);
    const int64_t first = head * kPages + block * kAtOnce;
    const auto* data = static_cast<const std::byte*>(values ? pages.v_pages : pages.k_pages);
    return ShareThatIsThere(data + first * kPageBytes, kAtOnce * kPageBytes);
  };
  kv.Expect(kAtOnce / 2 - 1);
  kv.WaitForMemory();
  EXPECT_LT(share(0, false, 0, 1), 0.5);
  for (const int64_t block : {1, 2}) {
    kv.Expect(block * kAtOnce - kAtOnce / 2);
    kv.WaitForMemory();
    for (const size_t layer : {0, 1}) {
      for (const bool values : {false, true}) {
        for (const int64_t head : {0, 1}) EXPECT_EQ(share(layer, values, head, block), 1.0);
      }
    }
    EXPECT_LT(share(1, true, 0, block + 2), 1.0);
  }
}
#endif

TEST(KvStorageTest, ExpectsTheLastPageToo) {
  KvStorage kv(ShapeOfKv(), kernels::KvFormat::kInt8, 1100);
  for (const int64_t page : {0, 600, 1099, 1099}) {
    kv.Expect(page);
    kv.WaitForMemory();
  }
}

}  // namespace
}  // namespace mlc_native
