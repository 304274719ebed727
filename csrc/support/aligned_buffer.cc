#include "support/aligned_buffer.h"

#include <cstdlib>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace mlc_native {

AlignedBuffer::AlignedBuffer(size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  constexpr size_t kHugePage = size_t{2} << 20;
  void* p = nullptr;
  if (posix_memalign(&p, bytes >= kHugePage ? kHugePage : 64, bytes) != 0) throw std::bad_alloc();
  data_.reset(p);
#if defined(__linux__)
  // A hint, for whole huge pages only: the rest of a partial one would be allocated but not used.
  if (bytes >= kHugePage) madvise(p, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
#endif
}

void AlignedBuffer::Free::operator()(void* p) const { std::free(p); }

}  // namespace mlc_native
