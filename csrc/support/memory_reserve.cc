#include "support/memory_reserve.h"

#include <sys/mman.h>

#include <chrono>
#include <cstddef>
#include <thread>

namespace mlc_native {
namespace {

// glibc's heap grows by 132 KiB at a time, or else by a mapping of 1 MiB.
constexpr size_t kBytes = size_t{256} << 10;
constexpr std::chrono::milliseconds kPause{5};

void* NewPages() noexcept {
  void* const pages = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  return pages == MAP_FAILED ? nullptr : pages;
}

}  // namespace

MemoryReserve::MemoryReserve() : pages_(NewPages()) {
  if (pages_ == nullptr) throw std::bad_alloc();
}

bool MemoryReserve::Release() noexcept {
  void* const pages = pages_.exchange(nullptr);
  if (pages == nullptr) return false;
  munmap(pages, kBytes);
  return true;
}

void MemoryReserve::Refill() noexcept {
  if (pages_ != nullptr) return;
  void* const pages = NewPages();
  void* none = nullptr;
  if (pages != nullptr && !pages_.compare_exchange_strong(none, pages)) munmap(pages, kBytes);
}

void MemoryReserve::Pause() noexcept { std::this_thread::sleep_for(kPause); }

}  // namespace mlc_native
