#include "support/memory_nodes.h"

#include <cstdint>

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace mlc_native {

#if defined(__linux__) && defined(SYS_mbind) && defined(SYS_get_mempolicy)
// As in linux/mempolicy.h, which not every system has.
bool SpreadOverNodes(std::byte* data, size_t size) {
  constexpr int kInterleave = 3;     // MPOL_INTERLEAVE
  constexpr int kOfTheProcess = 4;   // MPOL_F_MEMS_ALLOWED
  constexpr unsigned kNodes = 1024;  // as many as a kernel may have
  unsigned long nodes[kNodes / (8 * sizeof(unsigned long))] = {};
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + page - 1) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + size) / page * page;
  if (begin >= end) return true;
  return syscall(SYS_get_mempolicy, nullptr, nodes, kNodes, nullptr, kOfTheProcess) == 0 &&
         syscall(SYS_mbind, begin, end - begin, kInterleave, nodes, kNodes, 0) == 0;
}
#else
bool SpreadOverNodes(std::byte*, size_t) { return false; }
#endif

}  // namespace mlc_native
