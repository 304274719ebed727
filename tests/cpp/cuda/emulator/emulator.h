// The emulated machine behind kernels/cuda/runtime.h: two devices, and hooks for tests.
//
// As asynchronous as a GPU may be: what is put on a stream runs when somebody waits for it (or when
// thousands of pieces have piled up), not before. So a host that reads a result too early finds
// poison, and one that changes a pinned buffer too early sends the change. Device memory starts as
// NaNs, ends at a page that may not be touched, and belongs to one device; freeing it waits for the
// device. A kernel's arguments may not point to host memory. Any thread; kernels run one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

struct CUstream_st;

namespace mlc_native::emulator {

inline constexpr int kNumDevices = 2;

// A kernel, on the stream (null: the current device's own).
void PutLaunch(CUstream_st* stream, std::function<void()> run);

// Throws DeviceError when a word of a kernel's arguments is an address of the host's.
void CheckArguments(const void* args, size_t bytes);

}  // namespace mlc_native::emulator

// Hooks, callable through ctypes, too.
extern "C" {

// Of each device, from now on. At first MLC_NATIVE_EMULATED_MEMORY, or 256 MiB.
void mlc_native_emulated_set_memory(int64_t bytes);

// From its `launches`-th launch from now on (graphs count what they hold; 0: at once) every call
// for the device fails. A number below zero repairs it.
void mlc_native_emulated_lose_device(int device, int64_t launches);

// Whether graphs can be instantiated.
void mlc_native_emulated_allow_graphs(int allowed);

// Since the process started, of all devices.
enum mlc_native_emulated_count {
  MLC_NATIVE_EMULATED_LAUNCHES,  // of kernels; graphs count what they hold
  MLC_NATIVE_EMULATED_GRAPHS,    // launched
  MLC_NATIVE_EMULATED_CAPTURES,
  MLC_NATIVE_EMULATED_ALLOCATIONS,  // of device and pinned memory
  MLC_NATIVE_EMULATED_WAITS,        // of the host
  MLC_NATIVE_EMULATED_NUM_COUNTS
};
int64_t mlc_native_emulated_counter(int which);
// Device memory in use now, in bytes, of one device.
int64_t mlc_native_emulated_used_memory(int device);
}
