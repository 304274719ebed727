#include "support/memory_nodes.h"

#include <gtest/gtest.h>

#if defined(__linux__)
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

namespace mlc_native {
namespace {

int PolicyAt(const std::byte* data) {
  constexpr int kOfAnAddress = 2;  // MPOL_F_ADDR
  int policy = -1;
  EXPECT_EQ(syscall(SYS_get_mempolicy, &policy, nullptr, 0, data, kOfAnAddress), 0);
  return policy;
}

TEST(MemoryNodesTest, SpreadsWholePagesAndNothingElse) {
  constexpr int kDefault = 0, kInterleave = 3;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t size = 8 * page;
  void* const mapped =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  auto* const data = static_cast<std::byte*>(mapped);
  if (!SpreadOverNodes(data + 1, 6 * page)) {
    munmap(mapped, size);
    GTEST_SKIP() << "the system has no such memory, or does not allow it";
  }
  EXPECT_EQ(PolicyAt(data), kDefault);
  for (const size_t i : {1, 5}) EXPECT_EQ(PolicyAt(data + i * page), kInterleave) << i;
  for (const size_t i : {6, 7}) EXPECT_EQ(PolicyAt(data + i * page), kDefault) << i;
  std::memset(mapped, 1, size);
  munmap(mapped, size);
}

TEST(MemoryNodesTest, LessThanAPageIsLeftAsItIs) {
  std::byte few[16];
  SpreadOverNodes(few, sizeof(few));
}

}  // namespace
}  // namespace mlc_native

#endif
