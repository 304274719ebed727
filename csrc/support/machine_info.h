// The memory and CPUs that are available to this process, within the limits of its cgroup. Reads
// /proc and /sys at each call. Any thread.
#pragma once

#include <cstdint>
#include <string>

namespace mlc_native {

// Available memory in bytes: MemAvailable or the rest of the cgroup's limit (v2 or v1), whichever
// is less.
int64_t AvailableMemoryBytes();

// Number of CPUs that the process may use: its affinity or the cgroup's quota (rounded up),
// whichever is less. At least 1.
int64_t AvailableCpus();

// Resident memory of this process in bytes, including shared pages; 0 if the system does not report
// it.
int64_t ResidentMemoryBytes();

// The same with pseudo file systems below `root`, for tests: `root` + "/proc/meminfo", ...
int64_t AvailableMemoryBytes(const std::string& root);
int64_t AvailableCpus(const std::string& root, int64_t affinity);

}  // namespace mlc_native
