// The emulated machine behind kernels/cuda/runtime.h: four devices, and hooks for tests.
//
// It is as asynchronous as a GPU may be: work on a stream runs when a call waits for it, or when
// thousands of pieces are queued. A host that reads a result too early finds poison, and one that
// changes a pinned buffer too early sends the change. What is copied from other memory arrives when
// the stream's turn comes. Device memory starts as NaNs, ends at a page
// that must not be accessed, and belongs to one device; freeing it waits for the device. Arguments
// of kernels must not point to host memory, nor to that of another device. Until a kernel waits for
// the previous launch (ShieldMemory), it can only read what no kernel has ever written. Any thread;
// kernels run one at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>

struct CUstream_st;

namespace mlc_native::emulator {

inline constexpr int kNumDevices = 4;

// A piece of work in its stream: the `number`-th that was put there.
struct WorkPlace {
  CUstream_st* stream = nullptr;
  uint64_t number = 0;
};

// Launches a kernel on the stream (null: the default stream of the current device). `put`, if there
// is one, learns where the launch stands, whenever it is put there: for a graph once per replay.
void PutLaunch(CUstream_st* stream, std::function<void()> run,
               std::function<void(const WorkPlace&)> put = {});

// Of a running piece of work, which waits for another stream: runs that one up to the place, unless
// its device is lost. Returns at once if another thread runs it.
void RunUpTo(const WorkPlace& place);

// Of a running piece of work: lets other threads use the machine until is_done(), which is called
// with the machine locked. Returns false if that takes too long.
bool WaitUntil(const std::function<bool()>& is_done, std::chrono::seconds patience);

// Between true and false, allocations that a kernel has written to cannot be accessed, and the
// other ones only read: an access ends the process with a message. Of the calling thread's device;
// by a running kernel's block.
void ShieldMemory(bool shielded);

// Throws DeviceError if a word of a kernel's arguments is an address of host memory, or of another
// device than the current one.
void CheckArguments(const void* args, size_t bytes);

}  // namespace mlc_native::emulator

// Hooks for tests, also callable through ctypes.
extern "C" {

// Sets the memory of each device. Initially it is MLC_NATIVE_EMULATED_MEMORY, or 256 MiB.
void mlc_native_emulated_set_memory(int64_t bytes);

// Makes every call for the device fail from its `launches`-th launch from now on (0: at once; a
// graph counts its kernels). A negative number repairs the device.
void mlc_native_emulated_lose_device(int device, int64_t launches);

// Sets whether graphs can be instantiated, on all devices or on one.
void mlc_native_emulated_allow_graphs(int allowed);
void mlc_native_emulated_allow_graphs_on(int device, int allowed);

// Whether a device has been current since it was last told to forget that, which costs a GPU some
// hundred megabytes.
int mlc_native_emulated_has_context(int device);
void mlc_native_emulated_forget_context(int device);

// Counters of all devices since the process started.
enum mlc_native_emulated_count {
  MLC_NATIVE_EMULATED_LAUNCHES,  // launched kernels, including those of graphs
  MLC_NATIVE_EMULATED_GRAPHS,    // launched graphs
  MLC_NATIVE_EMULATED_CAPTURES,
  MLC_NATIVE_EMULATED_ALLOCATIONS,  // allocations of device and pinned memory
  MLC_NATIVE_EMULATED_WAITS,        // waits of the host
  MLC_NATIVE_EMULATED_NUM_COUNTS
};
int64_t mlc_native_emulated_counter(int which);
// Returns the device memory in use on one device, in bytes.
int64_t mlc_native_emulated_used_memory(int device);
}
