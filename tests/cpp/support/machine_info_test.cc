#include "support/machine_info.h"

#include <gtest/gtest.h>

#include <string>

#include "testing/temp_folder.h"

namespace mlc_native {
namespace {

// A machine as /proc and /sys tell it.
class MachineInfoTest : public ::testing::Test {
 protected:
  MachineInfoTest() {
    File("proc/meminfo", "MemTotal: 2000 kB\nMemFree: 10 kB\nMemAvailable: 1000 kB\n");
  }

  void File(const std::string& path, const std::string& text) { root_.Write(path, text); }
  int64_t Memory() const { return AvailableMemoryBytes(root_.path()); }
  int64_t Cpus(int64_t affinity) const { return AvailableCpus(root_.path(), affinity); }

 private:
  const testing::TempFolder root_;
};

TEST_F(MachineInfoTest, WithoutCgroupsItIsMemAvailable) {
  EXPECT_EQ(Memory(), 1000 * 1024);
  EXPECT_EQ(Cpus(4), 4);
}

TEST_F(MachineInfoTest, TheSmallestLimitOfTheCgroupAndItsAncestorsCounts) {
  File("proc/self/cgroup", "0::/outer/inner\n");
  File("sys/fs/cgroup/outer/memory.max", "500000\n");
  File("sys/fs/cgroup/outer/memory.current", "300000\n");
  File("sys/fs/cgroup/outer/memory.stat", "anon 7\ninactive_file 100000\n");
  File("sys/fs/cgroup/outer/inner/memory.max", "max\n");
  File("sys/fs/cgroup/outer/inner/memory.current", "300000\n");
  EXPECT_EQ(Memory(), 300000);
  File("sys/fs/cgroup/outer/inner/memory.max", "310000\n");
  EXPECT_EQ(Memory(), 10000);
  File("sys/fs/cgroup/outer/inner/memory.max", "1000\n");  // below what is used
  EXPECT_EQ(Memory(), 0);
}

TEST_F(MachineInfoTest, ReadsTheFirstVersionOfCgroupsToo) {
  File("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/box\n");
  File("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  File("sys/fs/cgroup/memory/memory.usage_in_bytes", "12345\n");
  EXPECT_EQ(Memory(), 1000 * 1024);
  File("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "5000\n");
  File("sys/fs/cgroup/memory/box/memory.usage_in_bytes", "4000\n");
  EXPECT_EQ(Memory(), 1000);
}

TEST_F(MachineInfoTest, ACpuQuotaLimitsTheAffinity) {
  File("proc/self/cgroup", "0::/\n");
  File("sys/fs/cgroup/cpu.max", "150000 100000\n");
  EXPECT_EQ(Cpus(8), 2);
  EXPECT_EQ(Cpus(1), 1);
  File("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(Cpus(8), 8);
}

TEST(MachineInfo, ThisMachineHasSomething) {
  EXPECT_GT(AvailableMemoryBytes(), 0);
  EXPECT_GE(AvailableCpus(), 1);
}

}  // namespace
}  // namespace mlc_native
