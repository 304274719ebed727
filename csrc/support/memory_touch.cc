#include "support/memory_touch.h"

#include <algorithm>
#include <cstdint>
#include <system_error>
#include <utility>

#include "support/library_thread.h"

#if defined(__linux__)
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#if !defined(MADV_POPULATE_WRITE)
#define MADV_POPULATE_WRITE 23
#endif
#endif

namespace mlc_native {
namespace {

constexpr size_t kPiece = size_t{2} << 20;  // between two looks at whether to stop

#if defined(__linux__)
size_t PageSize() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

bool Populate(void* data, size_t size) { return madvise(data, size, MADV_POPULATE_WRITE) == 0; }

// A thread that computes comes first, and yet this one goes on while all processors compute.
void LowerPriority() {
  constexpr int kNice = 15;
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNice);
}
#else
size_t PageSize() { return 4096; }
bool Populate(void*, size_t) { return false; }
void LowerPriority() {}
#endif

}  // namespace

MemoryTouch::MemoryTouch(std::vector<MemoryRange> ranges) {
  try {
    thread_ = StartThread("mlcn-touch", [this, ranges = std::move(ranges)] {
      LowerPriority();
      Run(ranges);
      is_done_.store(true, std::memory_order_release);
    });
  } catch (const std::system_error&) {
    is_done_ = true;
  }
}

MemoryTouch::~MemoryTouch() {
  is_stopped_.store(true, std::memory_order_relaxed);
  Wait();
}

void MemoryTouch::Wait() {
  if (thread_.joinable()) thread_.join();
}

// Whether it happens, too: an emulator of another processor may say yes to any advice, and one of a
// system may say that all memory is there.
bool MemoryTouch::IsSupported() {
#if defined(__linux__)
  const size_t page = PageSize();
  void* const data =
      mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return false;
  const auto is_there = [&] {
    unsigned char mark = 0;
    return mincore(data, page, &mark) == 0 && (mark & 1) != 0;
  };
  const bool is_supported = !is_there() && Populate(data, page) && is_there();
  munmap(data, page);
  return is_supported;
#else
  return false;
#endif
}

void MemoryTouch::Run(const std::vector<MemoryRange>& ranges) {
  const size_t page = PageSize();
  for (const MemoryRange& range : ranges) {
    const auto begin = reinterpret_cast<uintptr_t>(range.data);
    const uintptr_t end = (begin + range.size) / page * page;
    for (uintptr_t at = (begin + page - 1) / page * page; at < end;) {
      if (is_stopped_.load(std::memory_order_relaxed)) return;
      const uintptr_t next = std::min<uintptr_t>(end, (at / kPiece + 1) * kPiece);
      if (!Populate(reinterpret_cast<void*>(at), next - at)) return;
      at = next;
    }
  }
}

}  // namespace mlc_native
