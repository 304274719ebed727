// Blocks of every size are aligned, their own, and gone when they are freed.
#include "support/aligned_buffer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace mlc_native {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// In KiB, as Linux counts it: "VmSize" for addresses, "RssAnon" for memory that was written.
int64_t Status(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1));
  }
  return 0;
}

TEST(AlignedBuffer, EverySizeIsAlignedAndWritable) {
  const size_t sizes[] = {1,        63,           4096,         AlignedBuffer::kMapped - 1,
                          kMiB / 8, kMiB / 8 + 1, kMiB + 12345, 2 * kMiB - 1,
                          2 * kMiB, 2 * kMiB + 1, 5 * kMiB + 7, 6 * kMiB};
  std::vector<AlignedBuffer> buffers;
  for (const size_t size : sizes) {
    buffers.emplace_back(size);
    EXPECT_EQ(buffers.back().size(), size);
    const auto address = reinterpret_cast<uintptr_t>(buffers.back().data());
    EXPECT_EQ(address % (size >= 2 * kMiB ? 2 * kMiB : 64), 0u) << size;
    std::memset(buffers.back().data(), static_cast<int>(buffers.size()), size);
  }
  for (size_t i = 0; i < buffers.size(); ++i) {
    const auto* bytes = static_cast<const unsigned char*>(buffers[i].data());
    for (size_t k = 0; k < sizes[i]; ++k) ASSERT_EQ(bytes[k], i + 1) << sizes[i];
  }
}

TEST(AlignedBuffer, NoneAndMoved) {
  EXPECT_EQ(AlignedBuffer().data(), nullptr);
  EXPECT_EQ(AlignedBuffer(0).data(), nullptr);
  AlignedBuffer first(kMiB);
  void* const data = first.data();
  const AlignedBuffer second = std::move(first);
  EXPECT_EQ(second.data(), data);
}

TEST(AlignedBuffer, WhatNoMachineHasIsBadAlloc) {
  for (const size_t size : {std::numeric_limits<size_t>::max(),
                            std::numeric_limits<size_t>::max() / 2, size_t{1} << 62}) {
    EXPECT_THROW(AlignedBuffer{size}, std::bad_alloc) << size;
  }
}

// Small allocations in between would keep blocks of the heap from being given back.
TEST(AlignedBuffer, MemoryGoesBackToTheSystem) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers keep memory";
#endif
  if (Status("RssAnon") == 0) GTEST_SKIP() << "needs /proc";
  std::vector<std::vector<char>> small;
  const int64_t before = Status("RssAnon"), addresses = Status("VmSize");
  for (int round = 0; round < 4; ++round) {
    std::vector<AlignedBuffer> model;
    for (int i = 0; i < 32; ++i) {
      model.emplace_back(AlignedBuffer::kMapped + static_cast<size_t>(i) * 100000);
      std::memset(model.back().data(), 1, model.back().size());
      small.emplace_back(1000);
    }
    EXPECT_GT(Status("RssAnon"), before + 40 * 1024);
  }
  EXPECT_LT(Status("RssAnon"), before + 4 * 1024);
  EXPECT_LT(Status("VmSize"), addresses + 4 * 1024);
}

}  // namespace
}  // namespace mlc_native
