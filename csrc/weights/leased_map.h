// LeasedMap is a read-only map of a file that no other process can change or cut short while it is
// mapped, which would otherwise end this process with SIGBUS, or change weights during an answer.
//
// The map holds a read lease (fcntl F_SETLEASE). A process that opens the file for writing, or
// truncates it, waits in that call until a thread of the map has copied the content to memory of
// this process and put the copy over the mapping, at the same addresses; the lease ends
// then. The kernel lets the other process wait for /proc/sys/fs/lease-break-time seconds, 45 by
// default. If reading takes longer and the file is cut short, the missing bytes read as zeros and
// lost() is true. Deleting and renaming the file need no copy. No signal handler is used: the
// kernel's notice goes to the map's own thread, which has it blocked.
//
// File systems whose files other machines can change have no such leases (they are not mapped), nor
// has a file that some process has open for writing. Owned by the weights in it; any thread reads.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>

#include "support/regular_file.h"

namespace mlc_native {

class LeasedMap {
 public:
  // Returns null if there can be no lease, or no map. `copied` is called on the map's thread when
  // the content was copied.
  static std::unique_ptr<LeasedMap> Make(RegularFile file, std::function<void()> copied);
  ~LeasedMap();
  LeasedMap(const LeasedMap&) = delete;
  LeasedMap& operator=(const LeasedMap&) = delete;

  std::span<const std::byte> bytes() const { return {data_, file_.size()}; }
  // Whether the content was copied, so that other processes may change the file. Stays true.
  bool has_copy() const { return has_copy_; }
  // Whether bytes were lost. Stays true.
  const std::atomic<bool>& lost() const { return lost_; }

 private:
  LeasedMap(RegularFile file, std::function<void()> copied);

  enum class Lease { kAsked, kTaken, kRefused };

  bool Start();
  bool TakeLease() const;
  void Watch();
  void KeepCopy();

  const RegularFile file_;
  const std::function<void()> copied_;
  std::byte* data_ = nullptr;
  std::atomic<bool> has_copy_ = false;
  std::atomic<bool> lost_ = false;
  std::atomic<bool> stop_ = false;
  std::atomic<Lease> lease_ = Lease::kAsked;
  std::thread watcher_;
};

}  // namespace mlc_native
