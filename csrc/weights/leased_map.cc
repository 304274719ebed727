#include "weights/leased_map.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>
#include <utility>

#include "support/error.h"
#include "support/library_thread.h"

namespace mlc_native {
namespace {

// Whether all changes to the files of a file system pass through this machine's kernel.
bool IsLocal(int descriptor) {
  constexpr std::array<uint32_t, 7> kLocal{
      0xEF53,      // ext2, ext3, ext4
      0x58465342,  // xfs
      0x9123683E,  // btrfs
      0xF2F52010,  // f2fs
      0x2FC12FC1,  // zfs
      0x01021994,  // tmpfs
      0x794C7630,  // overlayfs
  };
  struct statfs info;
  return fstatfs(descriptor, &info) == 0 &&
         std::ranges::count(kLocal, static_cast<uint32_t>(info.f_type)) > 0;
}

sigset_t LeaseSignal() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGIO);
  return set;
}

void* MapZeros(size_t size, void* at, int flags) {
  return mmap(at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags,
              -1, 0);
}

}  // namespace

std::unique_ptr<LeasedMap> LeasedMap::Make(RegularFile file, std::function<void()> copied) {
  if (file.size() == 0 || !IsLocal(file.descriptor())) return nullptr;
  std::unique_ptr<LeasedMap> map(new LeasedMap(std::move(file), std::move(copied)));
  return map->Start() ? std::move(map) : nullptr;
}

LeasedMap::LeasedMap(RegularFile file, std::function<void()> copied)
    : file_(std::move(file)), copied_(std::move(copied)) {}

bool LeasedMap::Start() {
  void* data = mmap(nullptr, file_.size(), PROT_READ, MAP_PRIVATE, file_.descriptor(), 0);
  if (data == MAP_FAILED) return false;
  data_ = static_cast<std::byte*>(data);
#if defined(MADV_HUGEPAGE)
  madvise(data, file_.size(), MADV_HUGEPAGE);  // where the file system has them
#endif
  watcher_ = StartThread("mlcn-lease", [this] { Watch(); });
  lease_.wait(Lease::kAsked);
  if (lease_ == Lease::kRefused) return false;
  try {
    file_.RequireStamp(file_.stamp());  // it may have changed before there was a lease
  } catch (const LoadError&) {
    return false;
  }
  return true;
}

LeasedMap::~LeasedMap() {
  if (watcher_.joinable()) {
    stop_ = true;
    pthread_kill(watcher_.native_handle(), SIGIO);  // which it has blocked
    watcher_.join();
  }
  if (data_ != nullptr) munmap(data_, file_.size());
}

// The owner of the notice is this thread, set before the lease makes the process its owner.
bool LeasedMap::TakeLease() const {
  const f_owner_ex owner{.type = F_OWNER_TID, .pid = gettid()};
  return fcntl(file_.descriptor(), F_SETOWN_EX, &owner) == 0 &&
         fcntl(file_.descriptor(), F_SETLEASE, F_RDLCK) == 0;
}

void LeasedMap::Watch() {
  const sigset_t signal = LeaseSignal();  // which StartThread has blocked
  const bool ok = TakeLease();
  lease_ = ok ? Lease::kTaken : Lease::kRefused;
  lease_.notify_one();
  if (!ok) return;
  const auto is_held = [&] { return fcntl(file_.descriptor(), F_GETLEASE) == F_RDLCK; };
  // The notice ends the wait. Emulators of a processor may lose it, so the lease is also looked at.
  constexpr timespec kWait{.tv_sec = 5, .tv_nsec = 0};
  while (!stop_ && is_held()) sigtimedwait(&signal, nullptr, &kWait);
  if (!stop_) KeepCopy();
  fcntl(file_.descriptor(), F_SETLEASE, F_UNLCK);
}

void LeasedMap::KeepCopy() {
  const size_t size = file_.size();
  void* copy = MapZeros(size, nullptr, 0);
  if (copy != MAP_FAILED) {
#if defined(MADV_HUGEPAGE)
    madvise(copy, size, MADV_HUGEPAGE);
#endif
    try {
      file_.Read(0, {static_cast<std::byte*>(copy), size});
    } catch (const std::exception&) {  // it is cut short, perhaps without memory to say so
      lost_ = true;
    }
    mprotect(copy, size, PROT_READ);
    // Other threads see either the file or the copy at each address, and wait in between.
    if (mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, data_) == MAP_FAILED) {
      copy = MAP_FAILED;
    }
  }
  if (copy == MAP_FAILED) {  // no memory
    lost_ = true;
    MapZeros(size, data_, MAP_FIXED);
  }
  has_copy_ = true;
  try {
    copied_();
  } catch (const std::exception&) {  // no memory for a report; this thread has no caller
    return;
  }
}

}  // namespace mlc_native
