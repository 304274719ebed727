#include "weights/tensor_storage.h"

#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "kernels/kernels.h"
#include "support/error.h"

namespace mlc_native {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

std::byte* AlignUp(std::byte* p, size_t alignment) {
  const auto address = reinterpret_cast<uintptr_t>(p);
  return p + (alignment - address % alignment) % alignment;
}

}  // namespace

TensorStorage::TensorStorage(size_t bytes, const std::string& what) : size_(bytes) {
  if (bytes == 0) return;
  const size_t alignment =
      bytes >= kHugePage ? kHugePage : static_cast<size_t>(kernels::kPackedAlignment);
  try {
    memory_ = AllocateBytes(bytes + alignment);
  } catch (const std::exception&) {  // c10::Error; its text is a C++ stack trace
    throw InvalidConfig(what, what + " needs " + std::to_string(bytes) +
                                  " bytes of memory, which the system does not have");
  }
  data_ = AlignUp(memory_.get(), alignment);
#if defined(__linux__)
  // A hint, for whole huge pages only: the rest of the last one would be paid for but not used.
  if (bytes >= kHugePage) madvise(data_, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
#endif
}

}  // namespace mlc_native
