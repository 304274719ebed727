// What other processes do to a file that is mapped: a child process opens or truncates it, since a
// process does not break leases by what it does itself through the same descriptor only.
#include "weights/leased_map.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <new>
#include <string>

#include "testing/temp_folder.h"
#include "weights/block_checks.h"

namespace mlc_native {
namespace {

class LeasedMapTest : public ::testing::Test {
 protected:
  LeasedMapTest() {
    for (size_t i = 0; i < content_.size(); ++i) content_[i] = static_cast<char>(i * 31 >> 3);
    folder_.Write("x", content_);
  }
  std::unique_ptr<LeasedMap> Map() {
    return LeasedMap::Make(RegularFile(folder_.file("x")), [this] {
      copies_ = copies_ + 1;
      copies_.notify_all();
    });
  }
  static std::string TextOf(const LeasedMap& map) {
    return {reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size()};
  }
  // Runs `act` in another process and returns whether it succeeded. Only async-signal-safe
  // functions: this process has threads.
  template <typename Act>
  static bool InAnotherProcess(Act act) {
    const pid_t child = fork();
    if (child == 0) _exit(act() ? 0 : 1);
    int status = -1;
    waitpid(child, &status, 0);
    return status == 0;
  }

  const testing::TempFolder folder_;
  std::string content_ = std::string(3'000'001, '\0');
  std::atomic<int> copies_ = 0;
};

TEST_F(LeasedMapTest, ATruncatedFileKeepsItsBytesInMemory) {
  const std::unique_ptr<LeasedMap> map = Map();
  if (map == nullptr) GTEST_SKIP() << "no leases on this file system";
  const std::byte* const before = map->bytes().data();
  EXPECT_EQ(TextOf(*map), content_);
  const std::string path = folder_.file("x");
  EXPECT_TRUE(InAnotherProcess([&] { return truncate(path.c_str(), 0) == 0; }));
  EXPECT_EQ(std::filesystem::file_size(path), 0u);
  EXPECT_EQ(copies_, 1);  // made before the other process went on
  EXPECT_EQ(TextOf(*map), content_);
  EXPECT_EQ(map->bytes().data(), before);
  EXPECT_FALSE(map->lost());
}

TEST_F(LeasedMapTest, AFileThatIsOverwrittenKeepsItsBytes) {
  const std::unique_ptr<LeasedMap> map = Map();
  if (map == nullptr) GTEST_SKIP() << "no leases on this file system";
  const std::string path = folder_.file("x");
  EXPECT_TRUE(InAnotherProcess([&] {
    const int file = open(path.c_str(), O_WRONLY);
    return pwrite(file, "other", 5, 0) == 5;
  }));
  EXPECT_EQ(TextOf(*map), content_);
}

// No caller could catch what these threads throw.
TEST_F(LeasedMapTest, AReportThatLacksMemoryIsLost) {
  const std::unique_ptr<LeasedMap> map =
      LeasedMap::Make(RegularFile(folder_.file("x")), [] { throw std::bad_alloc(); });
  if (map == nullptr) GTEST_SKIP() << "no leases on this file system";
  const std::string path = folder_.file("x");
  EXPECT_TRUE(InAnotherProcess([&] { return truncate(path.c_str(), 0) == 0; }));
  EXPECT_EQ(TextOf(*map), content_);
}

TEST_F(LeasedMapTest, AReportOfDamageThatLacksMemoryIsLost) {
  const std::shared_ptr<const LeasedMap> map = Map();
  if (map == nullptr) GTEST_SKIP() << "no leases on this file system";
  std::atomic<bool> is_told = false;
  const auto on_damage = [&](const std::string&) {
    is_told = true;
    is_told.notify_all();
    throw std::bad_alloc();
  };
  BlockChecks checks(map, RegularFile(folder_.file("x")), 0, {1, 2, 3}, on_damage);
  checks.CheckTheRest();
  is_told.wait(false);
  EXPECT_FALSE(checks.IsGood(0));
}

TEST_F(LeasedMapTest, DeletingAndReadingNeedNoCopy) {
  const std::unique_ptr<LeasedMap> map = Map(), second = Map();
  if (map == nullptr) GTEST_SKIP() << "no leases on this file system";
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(RegularFile(folder_.file("x")).ReadAll(content_.size()), content_);
  std::filesystem::remove(folder_.file("x"));
  EXPECT_EQ(TextOf(*map), content_);
  EXPECT_EQ(copies_, 0);
}

TEST_F(LeasedMapTest, AFileThatIsOpenForWritingIsNotMapped) {
  const int writer = open(folder_.file("x").c_str(), O_WRONLY);
  ASSERT_GE(writer, 0);
  EXPECT_EQ(Map(), nullptr);
  close(writer);
}

TEST_F(LeasedMapTest, TheLeaseEndsWithTheMap) {
  Map().reset();
  const int writer = open(folder_.file("x").c_str(), O_WRONLY | O_NONBLOCK);
  EXPECT_GE(writer, 0);  // it would be EWOULDBLOCK
  close(writer);
  folder_.Write("x", "");
  EXPECT_EQ(Map(), nullptr);  // an empty file has no map
}

}  // namespace
}  // namespace mlc_native
