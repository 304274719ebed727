// The state of the emulated machine (emulator.h): streams with their work, memory, lost devices.
// The caller holds the lock (Lock). Throws DeviceError where CUDA reports an error.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "cuda/emulator/emulator.h"

namespace mlc_native::emulator {

// `put` runs on the host when the work is queued, `run` later.
struct Work {
  std::function<void()> run;
  std::function<void()> put;
  bool is_kernel = false;
};

}  // namespace mlc_native::emulator

struct CUstream_st {
  int device = 0;
  std::deque<mlc_native::emulator::Work> pending;
  uint64_t num_put = 0;
  uint64_t num_taken = 0;  // of those put, that run or have run
  std::thread::id runner;  // that runs its work now
  std::vector<mlc_native::emulator::Work>* recording = nullptr;
};

namespace mlc_native::emulator {

// Of the calling thread.
struct ThreadState {
  int device = 0;
  CUstream_st* captured = nullptr;
};
ThreadState& CurrentThread();

class Machine {
 public:
  static Machine& Get();

  struct Device {
    int64_t used_bytes = 0;
    int64_t launches_left = -1;  // until it is lost
    bool is_lost = false;
    bool has_context = false;
    bool allows_graphs = true;
  };

  std::recursive_mutex mutex;
  int num_locks = 0;                    // of the thread that has it
  std::condition_variable_any changed;  // something that a piece of work may wait for
  int64_t total_bytes = 256 << 20;      // of each device
  std::array<int64_t, MLC_NATIVE_EMULATED_NUM_COUNTS> counts{};

  Device& device(int i);
  void CheckDevice();  // every call begins so
  static void CheckNotCapturing(const char* what);

  // Streams, of the current device.
  std::shared_ptr<CUstream_st> AddStream();
  void RemoveStream(CUstream_st* stream);
  std::shared_ptr<CUstream_st> Find(CUstream_st* stream);
  void Put(CUstream_st& stream, const Work& work);
  void RunUntil(CUstream_st& stream, uint64_t num_done);
  void RunAll(CUstream_st& stream) { RunUntil(stream, stream.num_put); }
  // Unlocks the machine meanwhile. Requires: the calling thread has locked it once.
  bool WaitUntil(const std::function<bool()>& is_done, std::chrono::seconds patience);

  std::byte* Allocate(size_t bytes, bool is_pinned);
  void Free(std::byte* data);
  bool IsPinned(const void* host) const;
  void CheckDeviceMemory(const void* address, const char* what) const;
  // ShieldMemory of a device.
  void Shield(bool shielded);
  // Whether an access that was refused can be repeated; ends the process if it must not be.
  bool Admit(const void* address);
  // Checks that no word of a kernel's arguments is an address of host memory or another device.
  void CheckArguments(const void* args, size_t bytes) const;

 private:
  struct Allocation {
    std::byte* pages;    // a guard, the data, a guard
    size_t num_bytes;    // of all pages
    size_t asked_bytes;  // requested size; 0 for pinned host memory
    int device;
    bool is_written;  // by a kernel
    int access;       // PROT_.. of the data
  };

  Machine();
  static void Protect(Allocation& allocation, int access);
  void CountLaunch();
  void RunAllOf(int device);
  // Returns the allocation whose pages contain the address, or null.
  const Allocation* Holding(const void* address) const;
  Allocation* Holding(const void* address);

  std::array<Device, kNumDevices> devices_;
  std::map<CUstream_st*, std::shared_ptr<CUstream_st>> streams_;
  std::array<std::shared_ptr<CUstream_st>, kNumDevices> own_streams_;
  std::map<std::byte*, Allocation> allocations_;
};

// The machine, locked for the duration of a call.
class Lock {
 public:
  Lock() : machine_(Machine::Get()), lock_(machine_.mutex) { ++machine_.num_locks; }
  ~Lock() { --machine_.num_locks; }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  Machine* operator->() const { return &machine_; }

 private:
  Machine& machine_;
  const std::lock_guard<std::recursive_mutex> lock_;
};

}  // namespace mlc_native::emulator
