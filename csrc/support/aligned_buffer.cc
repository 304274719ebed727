#include "support/aligned_buffer.h"

#include <cstdint>
#include <cstdlib>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

// AddressSanitizer watches the ends of blocks of the heap only.
#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__)
#if defined(__has_feature)
#if !__has_feature(address_sanitizer)
#define MLC_NATIVE_MAPS_BUFFERS 1
#endif
#else
#define MLC_NATIVE_MAPS_BUFFERS 1
#endif
#endif

namespace mlc_native {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kCacheLine = 64;

size_t AlignmentOf(size_t bytes) { return bytes >= kHugePage ? kHugePage : kCacheLine; }

// For whole huge pages only: the rest of a partial one would be allocated but not used.
void AdviseHugePages([[maybe_unused]] void* data, [[maybe_unused]] size_t bytes) {
#if defined(__linux__)
  if (bytes >= kHugePage) madvise(data, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
#endif
}

void* Allocate(size_t bytes) {
  void* data = nullptr;
  if (posix_memalign(&data, AlignmentOf(bytes), bytes) != 0) throw std::bad_alloc();
  return data;
}

#if defined(MLC_NATIVE_MAPS_BUFFERS)
size_t RoundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Returns null if the system has no such mapping, also because it has too many. What the alignment
// leaves over at both ends is given back. Requires: a multiple of the page size.
void* Map(size_t bytes, size_t alignment, size_t page) {
  const size_t spare = alignment > page ? alignment - page : 0;
  void* const mapped =
      mmap(nullptr, bytes + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<uintptr_t>(mapped);
  const size_t before = RoundUp(begin, alignment) - begin;
  auto* const data = static_cast<std::byte*>(mapped) + before;
  if (before > 0) munmap(mapped, before);
  if (spare > before) munmap(data + bytes, spare - before);
  return data;
}
#endif

}  // namespace

AlignedBuffer::AlignedBuffer(size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  if (bytes > PTRDIFF_MAX - kHugePage) throw std::bad_alloc();
#if defined(MLC_NATIVE_MAPS_BUFFERS)
  if (bytes >= kMapped) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t mapped = RoundUp(bytes, page);
    data_ = {Map(mapped, AlignmentOf(bytes), page), Free(mapped)};
  }
#endif
  if (data_ == nullptr) data_ = {Allocate(bytes), Free()};
  AdviseHugePages(data(), bytes);
}

void AlignedBuffer::Free::operator()(void* p) const {
#if defined(MLC_NATIVE_MAPS_BUFFERS)
  if (mapped_ > 0) {
    munmap(p, mapped_);
    return;
  }
#endif
  std::free(p);
}

}  // namespace mlc_native
