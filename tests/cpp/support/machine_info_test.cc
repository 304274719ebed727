#include "support/machine_info.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

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
  // Of a process that may run on the CPUs in [0, count) or on those named.
  int64_t Cpus(int count) const {
    std::vector<int> allowed(count);
    std::iota(allowed.begin(), allowed.end(), 0);
    return ComputeCpus(root_.path(), allowed);
  }
  int64_t CpusOf(const std::vector<int>& allowed) const {
    return ComputeCpus(root_.path(), allowed);
  }
  std::vector<std::vector<int>> NodesOf(const std::vector<int>& allowed) const {
    return ComputeNodes(root_.path(), allowed);
  }
  void CpuFile(int cpu, const std::string& name, const std::string& text) {
    File("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/" + name, text);
  }

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

TEST_F(MachineInfoTest, ACpuQuotaOfTheFirstVersionOfCgroupsLimitsToo) {
  File("proc/self/cgroup", "5:cpu,cpuacct:/x\n");
  File("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "250000\n");
  File("sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Cpus(8), 3);
  File("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(Cpus(8), 8);
}

TEST_F(MachineInfoTest, ThreadsOfOneCoreCountOnce) {
  for (int cpu = 0; cpu < 4; ++cpu) {  // two cores as 0, 2 and 1, 3, as many servers number them
    CpuFile(cpu, "topology/thread_siblings_list", cpu % 2 == 0 ? "0,2\n" : "1,3\n");
  }
  EXPECT_EQ(Cpus(4), 2);
  EXPECT_EQ(CpusOf({2, 3}), 2);
  EXPECT_EQ(CpusOf({1, 3}), 1);
  for (int cpu = 0; cpu < 4; ++cpu) {  // and as laptops do
    CpuFile(cpu, "topology/thread_siblings_list", cpu < 2 ? "0-1\n" : "2-3\n");
  }
  EXPECT_EQ(Cpus(4), 2);
  EXPECT_EQ(Cpus(2), 1);
}

TEST_F(MachineInfoTest, SlowCoresDoNotCountBesideFastOnes) {
  // Two fast cores of two threads, and four slow ones.
  for (int cpu = 0; cpu < 4; ++cpu) {
    CpuFile(cpu, "topology/thread_siblings_list", cpu < 2 ? "0-1\n" : "2-3\n");
  }
  File("sys/devices/cpu_core/cpus", "0-3\n");
  File("sys/devices/cpu_atom/cpus", "4-7\n");
  EXPECT_EQ(Cpus(8), 2);
  EXPECT_EQ(CpusOf({4, 5, 6}), 3) << "all that it has";
}

TEST_F(MachineInfoTest, CapacitiesTellFastCoresFromSlowOnes) {
  const int capacities[] = {250, 250, 250, 250, 760, 760, 760, 1024};
  for (int cpu = 0; cpu < 8; ++cpu) {
    CpuFile(cpu, "cpu_capacity", std::to_string(capacities[cpu]) + "\n");
  }
  EXPECT_EQ(Cpus(8), 4);
  EXPECT_EQ(Cpus(4), 4);
}

TEST_F(MachineInfoTest, ListsThatMakeNoSenseAreIgnored) {
  for (const char* text : {"", "x", "3-1", "0-99999999", "-5", "0-"}) {
    CpuFile(0, "topology/thread_siblings_list", text);
    File("sys/devices/cpu_core/cpus", text);
    EXPECT_EQ(Cpus(4), 4) << text;
  }
}

TEST_F(MachineInfoTest, CpusOfEachNode) {
  const std::vector<int> all = {0, 1, 2, 3, 4, 5, 6, 7};
  using Nodes = std::vector<std::vector<int>>;
  EXPECT_EQ(NodesOf(all), (Nodes{all})) << "the system does not tell";
  File("sys/devices/system/node/online", "0,2\n");
  File("sys/devices/system/node/node0/cpulist", "0-1,4-5\n");
  File("sys/devices/system/node/node2/cpulist", "2-3,6-7\n");
  EXPECT_EQ(NodesOf(all), (Nodes{{0, 1, 4, 5}, {2, 3, 6, 7}}));
  EXPECT_EQ(NodesOf({4, 5}), (Nodes{{4, 5}})) << "a node without an allowed one";
  for (int cpu = 0; cpu < 4; ++cpu) {  // two threads of each core
    const std::string siblings = std::to_string(cpu) + "," + std::to_string(cpu + 4);
    for (const int thread : {cpu, cpu + 4}) {
      CpuFile(thread, "topology/thread_siblings_list", siblings);
    }
  }
  EXPECT_EQ(NodesOf(all), (Nodes{{0, 1}, {2, 3}}));
  File("sys/devices/system/node/node2/cpulist", "3\n");
  EXPECT_EQ(NodesOf(all), (Nodes{{0, 1, 2, 3}})) << "2 belongs to no node";
}

TEST(MachineInfo, ThisMachineHasSomething) {
  EXPECT_GT(AvailableMemoryBytes(), 0);
  EXPECT_GE(ComputeCpus(), 1);
}

}  // namespace
}  // namespace mlc_native
