#include "support/machine_info.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <thread>

namespace mlc_native {
namespace {

constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();

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

}  // namespace

int64_t AvailableMemoryBytes(const std::string& root) {
  const int64_t kib = ReadNamed(root + "/proc/meminfo", "MemAvailable:").value_or(kUnknown / 1024);
  const int64_t v2 = MinOverAncestors(root + "/sys/fs/cgroup", CgroupPath(root, ""), CgroupV2Left);
  const int64_t v1 =
      MinOverAncestors(root + "/sys/fs/cgroup/memory", CgroupPath(root, "memory"), CgroupV1Left);
  return std::min({kib * 1024, v2, v1});
}

int64_t AvailableCpus(const std::string& root, int64_t affinity) {
  const int64_t quota =
      MinOverAncestors(root + "/sys/fs/cgroup", CgroupPath(root, ""), CgroupV2Cpus);
  return std::max<int64_t>(1, std::min(affinity, quota));
}

int64_t ResidentMemoryBytes() {
  return ReadNamed("/proc/self/status", "VmRSS:").value_or(0) * 1024;
}

int64_t AvailableMemoryBytes() { return AvailableMemoryBytes(""); }

int64_t AvailableCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const bool known = sched_getaffinity(0, sizeof(set), &set) == 0;
  const int64_t affinity =
      known ? CPU_COUNT(&set) : static_cast<int64_t>(std::thread::hardware_concurrency());
  return AvailableCpus("", affinity);
}

}  // namespace mlc_native
