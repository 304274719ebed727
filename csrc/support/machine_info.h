// What this machine has left for the process: memory and CPUs, with the limits of its cgroup. Reads
// /proc and /sys at each call; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace mlc_native {

// Memory that can still be used: MemAvailable, or what the cgroup (v2 or v1) has left if that is
// less.
int64_t AvailableMemoryBytes();

// CPUs that the process may run on: its affinity, or the cgroup's quota (rounded up) if that is
// less. At least 1.
int64_t AvailableCpus();

// Memory of this process that is in RAM, of which shared pages may be counted elsewhere too; 0
// where the system does not say.
int64_t ResidentMemoryBytes();

// The same with the pseudo file systems somewhere else (tests): `root` + "/proc/meminfo", ...
int64_t AvailableMemoryBytes(const std::string& root);
int64_t AvailableCpus(const std::string& root, int64_t affinity);

}  // namespace mlc_native
