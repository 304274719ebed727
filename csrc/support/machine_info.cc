#include "support/machine_info.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <numeric>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

namespace mlc_native {
namespace {

constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();
constexpr int kMaxCpus = CPU_SETSIZE;
// The kernel lists fast cores on machines where it gives all the same capacity, or none.
constexpr int64_t kListedCapacity = int64_t{1} << 20;

std::string CpuFolder(const std::string& root, int cpu) {
  return root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu);
}

// Returns the number at the start of a file; nullopt for "max", other text or a missing file.
std::optional<int64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (!(file >> value)) return std::nullopt;
  return value;
}

// Returns the value of a name ("MemAvailable:", "inactive_file") in a file of lines "name value
// ...".
std::optional<int64_t> ReadNamed(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string first;
    int64_t value = 0;
    if (words >> first >> value && first == name) return value;
  }
  return std::nullopt;
}

// Returns the path of the process's own cgroup, "/" if unknown. `controller` is empty for v2.
std::string CgroupPath(const std::string& root, const std::string& controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {  // hierarchy-ID:controllers:path
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers.find("," + controller + ",") == std::string::npos) continue;
    return line.substr(second + 1);
  }
  return "/";
}

// Returns the smallest result of `read` over the cgroup and its ancestors below `mount`.
template <typename Read>
int64_t MinOverAncestors(const std::string& mount, std::string path, Read read) {
  int64_t result = read(mount);
  while (path.size() > 1) {
    result = std::min(result, read(mount + path));
    path.resize(std::max<size_t>(path.rfind('/'), 0));
  }
  return result;
}

// Page cache that can be dropped does not count as used.
int64_t CgroupV2Left(const std::string& folder) {
  const auto limit = ReadNumber(folder + "/memory.max");
  const auto used = ReadNumber(folder + "/memory.current");
  if (!limit || !used) return kUnknown;
  const int64_t cache = ReadNamed(folder + "/memory.stat", "inactive_file").value_or(0);
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, *used - cache));
}

int64_t CgroupV1Left(const std::string& folder) {
  const auto limit = ReadNumber(folder + "/memory.limit_in_bytes");
  const auto used = ReadNumber(folder + "/memory.usage_in_bytes");
  if (!limit || !used) return kUnknown;
  const int64_t cache = ReadNamed(folder + "/memory.stat", "total_inactive_file").value_or(0);
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, *used - cache));
}

int64_t CgroupV2Cpus(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");  // "quota period", quota may be "max"
  int64_t quota = 0;
  int64_t period = 0;
  if (!(file >> quota >> period) || quota <= 0 || period <= 0) return kUnknown;
  return (quota + period - 1) / period;
}

int64_t CgroupV1Cpus(const std::string& folder) {
  const auto quota = ReadNumber(folder + "/cpu.cfs_quota_us");  // -1: no limit
  const auto period = ReadNumber(folder + "/cpu.cfs_period_us");
  if (!quota || !period || *quota <= 0 || *period <= 0) return kUnknown;
  return (*quota + *period - 1) / *period;
}

// Returns the CPUs of a file such as "0-3,8,10-11"; nothing without the file or if it has another
// form.
std::vector<int> ReadCpuList(const std::string& path) {
  std::ifstream file(path);
  std::vector<int> cpus;
  int first = 0;
  while (file >> first) {
    int last = first;
    if (file.peek() == '-' && !(file.ignore() >> last)) return {};
    if (first < 0 || last < first || last >= kMaxCpus) return {};
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    if (file.peek() == ',') file.ignore();
  }
  return cpus;
}

// Keeps those whose cores are fast: what the kernel lists as such (hybrids of Intel), else those
// with at least half of the largest capacity (AArch64). All, if the kernel does not tell cores
// apart.
std::vector<int> FastCpus(const std::string& root, std::vector<int> cpus) {
  const std::vector<int> listed = ReadCpuList(root + "/sys/devices/cpu_core/cpus");
  std::vector<int64_t> capacities(kMaxCpus);  // 0: not among `cpus`
  for (const int cpu : cpus) {
    capacities[cpu] = ReadNumber(CpuFolder(root, cpu) + "/cpu_capacity").value_or(1);
  }
  for (const int cpu : listed) {
    if (capacities[cpu] > 0) capacities[cpu] = kListedCapacity;
  }
  const int64_t largest = *std::ranges::max_element(capacities);
  std::erase_if(cpus, [&](int cpu) { return 2 * capacities[cpu] < largest; });
  return cpus;
}

// Keeps the first of the CPUs that share a core.
std::vector<int> OnePerCore(const std::string& root, std::vector<int> cpus) {
  std::vector<bool> taken(kMaxCpus);
  std::erase_if(cpus, [&](int cpu) {
    if (taken[cpu]) return true;
    for (const int other : ReadCpuList(CpuFolder(root, cpu) + "/topology/thread_siblings_list")) {
      taken[other] = true;
    }
    return false;
  });
  return cpus;
}

}  // namespace

int64_t AvailableMemoryBytes(const std::string& root) {
  const int64_t kib = ReadNamed(root + "/proc/meminfo", "MemAvailable:").value_or(kUnknown / 1024);
  const int64_t v2 = MinOverAncestors(root + "/sys/fs/cgroup", CgroupPath(root, ""), CgroupV2Left);
  const int64_t v1 =
      MinOverAncestors(root + "/sys/fs/cgroup/memory", CgroupPath(root, "memory"), CgroupV1Left);
  return std::min({kib * 1024, v2, v1});
}

int64_t ComputeCpus(const std::string& root, const std::vector<int>& allowed) {
  if (allowed.empty()) return 1;
  const int64_t v2 = MinOverAncestors(root + "/sys/fs/cgroup", CgroupPath(root, ""), CgroupV2Cpus);
  const int64_t v1 =
      MinOverAncestors(root + "/sys/fs/cgroup/cpu", CgroupPath(root, "cpu"), CgroupV1Cpus);
  const int64_t cores = std::ssize(OnePerCore(root, FastCpus(root, allowed)));
  return std::max<int64_t>(1, std::min({cores, v2, v1}));
}

std::vector<std::vector<int>> ComputeNodes(const std::string& root,
                                           const std::vector<int>& allowed) {
  const std::vector<int> cpus = OnePerCore(root, FastCpus(root, allowed));
  std::vector<int> rest = cpus;
  const std::string folder = root + "/sys/devices/system/node";
  std::vector<std::vector<int>> nodes;
  for (const int node : ReadCpuList(folder + "/online")) {
    const std::vector<int> all = ReadCpuList(folder + "/node" + std::to_string(node) + "/cpulist");
    const auto [taken, end] =
        std::ranges::stable_partition(rest, [&](int cpu) { return !std::ranges::count(all, cpu); });
    if (taken != end) nodes.emplace_back(taken, end);
    rest.erase(taken, end);
  }
  // All of one node, or some that no node has.
  if (nodes.empty() || !rest.empty()) return {cpus};
  return nodes;
}

int64_t ResidentMemoryBytes() {
  return ReadNamed("/proc/self/status", "VmRSS:").value_or(0) * 1024;
}

int64_t AvailableMemoryBytes() { return AvailableMemoryBytes(""); }

namespace {

std::vector<int> AllowedCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> allowed;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int cpu = 0; cpu < kMaxCpus; ++cpu) {
      if (CPU_ISSET(cpu, &set)) allowed.push_back(cpu);
    }
  } else {  // more CPUs than the set has room for
    allowed.resize(std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, kMaxCpus));
    std::iota(allowed.begin(), allowed.end(), 0);
  }
  return allowed;
}

}  // namespace

int64_t ComputeCpus() { return ComputeCpus("", AllowedCpus()); }

std::vector<std::vector<int>> ComputeNodes() { return ComputeNodes("", AllowedCpus()); }

}  // namespace mlc_native
