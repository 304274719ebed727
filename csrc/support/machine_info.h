// The memory and CPUs that are available to this process, within the limits of its cgroup. Reads
// /proc and /sys at each call. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mlc_native/detail/export.h"

namespace mlc_native {

// Available memory in bytes: MemAvailable or the rest of the cgroup's limit (v2 or v1), whichever
// is less.
int64_t AvailableMemoryBytes();

// Number of CPUs that computing pays on: of those that the process may run on, one per core, and
// where cores differ, only the fast ones, because every loop waits for the slowest thread. At most
// the cgroup's quota (rounded up), at least 1.
MLC_NATIVE_PRIVATE_API int64_t ComputeCpus();

// The CPUs of each NUMA node that computing pays on, nodes without one left out. One node where the
// system does not tell them apart.
MLC_NATIVE_PRIVATE_API std::vector<std::vector<int>> ComputeNodes();

// Resident memory of this process in bytes, including shared pages; 0 if the system does not report
// it.
int64_t ResidentMemoryBytes();

// The same with pseudo file systems below `root`, for tests: `root` + "/proc/meminfo", ...
int64_t AvailableMemoryBytes(const std::string& root);
int64_t ComputeCpus(const std::string& root, const std::vector<int>& allowed);
std::vector<std::vector<int>> ComputeNodes(const std::string& root,
                                           const std::vector<int>& allowed);

}  // namespace mlc_native
