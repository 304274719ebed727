// MemoryTouch has the system provide memory before it is used, on a thread of low priority. The
// first write to a huge page waits until it is full of zeros, and what a program reaches for the
// first time often lies on hundreds of them. What has been written already stays, also what others
// write meanwhile. Where the system cannot do that (before Linux 5.14), nothing happens.
//
// Owned by the owner of the memory, which must outlive it; its thread only.
#pragma once

#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace mlc_native {

struct MemoryRange {
  std::byte* data = nullptr;
  size_t size = 0;
};

class MemoryTouch {
 public:
  // Of each range whole pages of the system. Without a thread to be had, nothing happens.
  explicit MemoryTouch(std::vector<MemoryRange> ranges);
  ~MemoryTouch();  // leaves the rest
  MemoryTouch(const MemoryTouch&) = delete;
  MemoryTouch& operator=(const MemoryTouch&) = delete;

  bool is_done() const { return is_done_.load(std::memory_order_acquire); }
  void Wait();

  static bool IsSupported();

 private:
  void Run(const std::vector<MemoryRange>& ranges);

  std::atomic<bool> is_stopped_ = false;
  std::atomic<bool> is_done_ = false;
  std::thread thread_;
};

}  // namespace mlc_native
