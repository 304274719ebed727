#include "cuda/device_memory.h"

#include <sys/mman.h>

#include <new>

namespace mlc_native::kernels::cuda {
namespace {

constexpr size_t kGuard = 4096;

size_t Pages(size_t bytes) { return (bytes + kGuard - 1) / kGuard * kGuard; }
// Where in its pages an allocation starts: as far behind as its alignment allows.
size_t Offset(size_t bytes) { return Pages(bytes) - (bytes + 15) / 16 * 16; }

}  // namespace

void* AllocateDevice(size_t bytes) {
  void* pages = mmap(nullptr, Pages(bytes) + kGuard, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  mprotect(static_cast<char*>(pages) + Pages(bytes), kGuard, PROT_NONE);
  return static_cast<char*>(pages) + Offset(bytes);
}

void FreeDevice(void* data, size_t bytes) {
  munmap(static_cast<char*>(data) - Offset(bytes), Pages(bytes) + kGuard);
}

void CopyToDevice(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}
void CopyToHost(void* to, const void* from, size_t bytes) { CopyToDevice(to, from, bytes); }

}  // namespace mlc_native::kernels::cuda
