// What the host needs of the CUDA runtime: devices, memory, streams, events, graphs. No CUDA
// header, so that a build against the emulator of the tests sees the same words.
//
// Every object belongs to the device that was current when it was made; UseDevice is per thread.
// Failures throw DeviceError, with the runtime's words; after a lost device every call does.
// Objects are freed without throwing. One thread at a time per object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "kernels/cuda/device_error.h"
#include "kernels/cuda/stream.h"

struct CUevent_st;
struct CUgraphExec_st;

namespace mlc_native::kernels::cuda {

struct DeviceInfo {
  std::string name;
  int compute_capability = 0;  // 90 is 9.0
  int num_multiprocessors = 0;
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;    // now, of all processes
  bool is_emulated = false;  // no GPU, and nothing for NVIDIA's own libraries
};

int DeviceCount();  // 0 without a driver
DeviceInfo GetDeviceInfo(int device);
void UseDevice(int device);

// Uninitialized device memory, aligned to 256 bytes.
class DeviceMemory {
 public:
  DeviceMemory() = default;  // empty
  explicit DeviceMemory(size_t bytes);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Host memory that copies to and from a device need not stage.
class PinnedMemory {
 public:
  PinnedMemory() = default;  // empty
  explicit PinnedMemory(size_t bytes);
  ~PinnedMemory();
  PinnedMemory(PinnedMemory&& other) noexcept { *this = std::move(other); }
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// A queue of its own, not ordered with the device's default one.
class OwnedStream {
 public:
  explicit OwnedStream(LaunchOrder order = LaunchOrder::kOneByOne);
  ~OwnedStream();
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;

  Stream get() const { return stream_; }
  void Synchronize() const;

 private:
  Stream stream_;
};

// Without timing.
class Event {
 public:
  Event();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void Record(Stream stream);
  void Synchronize() const;  // returns at once before the first Record
  void MakeWait(Stream stream) const;

 private:
  CUevent_st* event_ = nullptr;
};

// What was launched once, to be launched again with the same arguments.
class Graph {
 public:
  Graph() = default;  // empty
  ~Graph();
  Graph(Graph&& other) noexcept { *this = std::move(other); }
  Graph& operator=(Graph&& other) noexcept {
    std::swap(exec_, other.exec_);
    return *this;
  }

  // Records what `work` puts on the stream, without running it. Throws what `work` throws, and
  // DeviceError; the stream is usable afterwards.
  static Graph Capture(Stream stream, const std::function<void()>& work);
  void Launch(Stream stream) const;
  explicit operator bool() const { return exec_ != nullptr; }

 private:
  CUgraphExec_st* exec_ = nullptr;
};

// On the stream; the host's memory is read or written when its turn comes. With memory that is not
// pinned they wait until it has been; what CopyToDevice has read may arrive later, in its turn.
void CopyToDevice(void* device, const void* host, size_t bytes, Stream stream);
void CopyToHost(void* host, const void* device, size_t bytes, Stream stream);
void SetToZero(void* device, size_t bytes, Stream stream);

}  // namespace mlc_native::kernels::cuda
