#include "support/memory_touch.h"

#include <gtest/gtest.h>

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace mlc_native {
namespace {

// Fresh memory in small pages.
class Mapping {
 public:
  explicit Mapping(size_t pages) : size_(pages * page()) {
    data_ = static_cast<std::byte*>(
        mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(data_, MAP_FAILED);
    madvise(data_, size_, MADV_NOHUGEPAGE);
  }
  ~Mapping() { munmap(data_, size_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  static size_t page() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }
  std::byte* at(size_t page_index) const { return data_ + page_index * page(); }
  std::vector<bool> resident() const {
    std::vector<unsigned char> marks(size_ / page());
    EXPECT_EQ(mincore(data_, size_, marks.data()), 0);
    std::vector<bool> all;
    for (const unsigned char mark : marks) all.push_back((mark & 1) != 0);
    return all;
  }

 private:
  size_t size_;
  std::byte* data_;
};

TEST(MemoryTouchTest, ProvidesWholePagesAndLeavesWhatIsThere) {
  if (!MemoryTouch::IsSupported()) GTEST_SKIP() << "before Linux 5.14";
  const Mapping memory(1600);
  std::memset(memory.at(5), 7, 100);
  const size_t page = Mapping::page();
  MemoryTouch touch({{memory.at(2) + 1, 10 * page}, {memory.at(20), 1500 * page}});
  touch.Wait();
  EXPECT_TRUE(touch.is_done());
  const std::vector<bool> resident = memory.resident();
  for (size_t i = 0; i < resident.size(); ++i) {
    const bool is_in_first = i >= 3 && i < 12;  // the first and the last one in part only
    EXPECT_EQ(resident[i], is_in_first || (i >= 20 && i < 1520)) << i;
  }
  EXPECT_EQ(*memory.at(5), std::byte{7});
  EXPECT_EQ(*memory.at(6), std::byte{0});
}

TEST(MemoryTouchTest, EndsBeforeItIsDone) {
  const Mapping memory(1 << 16);
  {
    const MemoryTouch touch({{memory.at(0), (size_t{1} << 16) * Mapping::page()}});
  }
  const MemoryTouch nothing({});
}

}  // namespace
}  // namespace mlc_native

#endif
