// runtime.h on the CUDA runtime. Compiled by the host compiler.
#include "kernels/cuda/runtime.h"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <exception>
#include <string_view>
#include <utility>

#include "kernels/cuda/check_cuda.h"

namespace mlc_native::kernels::cuda {
namespace {

// Makes a device current for as long as it lives.
class DeviceScope {
 public:
  explicit DeviceScope(int device) {
    CheckCuda(cudaGetDevice(&before_), "current device");
    UseDevice(device);
  }
  ~DeviceScope() { cudaSetDevice(before_); }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int before_ = 0;
};

int Attribute(cudaDeviceAttr attribute, int device) {
  int value = 0;
  CheckCuda(cudaDeviceGetAttribute(&value, attribute, device), "attribute of a device");
  return value;
}

// Of the current device, if its driver can also record dependent launches in graphs; else 0.
int DependentCapability() {
  constexpr int kFirstCapability = 90;
  constexpr int kFirstDriver = 12030;
  const char* chosen = std::getenv("MLC_NATIVE_CUDA_DEPENDENT_LAUNCH");
  if (chosen != nullptr && std::string_view(chosen) == "0") return 0;
  int driver = 0;
  CheckCuda(cudaDriverGetVersion(&driver), "version of the driver");
  int device = 0;
  CheckCuda(cudaGetDevice(&device), "current device");
  const int capability = 10 * Attribute(cudaDevAttrComputeCapabilityMajor, device) +
                         Attribute(cudaDevAttrComputeCapabilityMinor, device);
  return driver >= kFirstDriver && capability >= kFirstCapability ? capability : 0;
}

}  // namespace

// ---- Devices ----

void CheckCuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clears the error, which the next launch would report again
  const std::string message = std::string("CUDA: ") + what + ": " + cudaGetErrorString(status);
  if (status == cudaErrorMemoryAllocation) throw OutOfDeviceMemory(message);
  throw DeviceError(message);
}

int DeviceCount() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

DeviceInfo GetDeviceInfo(int device) {
  cudaDeviceProp properties{};
  CheckCuda(cudaGetDeviceProperties(&properties, device), "properties of a device");
  const DeviceScope scope(device);
  size_t free = 0;
  size_t total = 0;
  CheckCuda(cudaMemGetInfo(&free, &total), "memory of a device");
  return {.name = properties.name,
          .compute_capability = 10 * properties.major + properties.minor,
          .num_multiprocessors = Attribute(cudaDevAttrMultiProcessorCount, device),
          .total_bytes = static_cast<int64_t>(total),
          .free_bytes = static_cast<int64_t>(free)};
}

void UseDevice(int device) { CheckCuda(cudaSetDevice(device), "choice of a device"); }

// ---- Memory ----

DeviceMemory::DeviceMemory(size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  void* data = nullptr;
  CheckCuda(cudaMalloc(&data, bytes), "allocation of device memory");
  data_ = static_cast<std::byte*>(data);
}

DeviceMemory::~DeviceMemory() {
  if (data_ != nullptr) cudaFree(data_);
}

PinnedMemory::PinnedMemory(size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  void* data = nullptr;
  CheckCuda(cudaMallocHost(&data, bytes), "allocation of pinned memory");
  data_ = static_cast<std::byte*>(data);
}

PinnedMemory::~PinnedMemory() {
  if (data_ != nullptr) cudaFreeHost(data_);
}

void CopyToDevice(void* device, const void* host, size_t bytes, Stream stream) {
  if (bytes == 0) return;
  CheckCuda(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream.handle()),
            "copy to the device");
}

void CopyToHost(void* host, const void* device, size_t bytes, Stream stream) {
  if (bytes == 0) return;
  CheckCuda(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream.handle()),
            "copy to the host");
}

void SetToZero(void* device, size_t bytes, Stream stream) {
  if (bytes == 0) return;
  CheckCuda(cudaMemsetAsync(device, 0, bytes, stream.handle()), "clearing of device memory");
}

// ---- Streams and events ----

OwnedStream::OwnedStream(LaunchOrder order) {
  const int capability = order == LaunchOrder::kDependent ? DependentCapability() : 0;
  cudaStream_t handle = nullptr;
  CheckCuda(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), "creation of a stream");
  stream_ = Stream(handle, capability);
}
OwnedStream::~OwnedStream() { cudaStreamDestroy(stream_.handle()); }
void OwnedStream::Synchronize() const {
  CheckCuda(cudaStreamSynchronize(stream_.handle()), "waiting for a stream");
}

Event::Event() {
  CheckCuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "creation of an event");
}
Event::~Event() { cudaEventDestroy(event_); }
void Event::Record(Stream stream) {
  CheckCuda(cudaEventRecord(event_, stream.handle()), "record of an event");
}
void Event::Synchronize() const { CheckCuda(cudaEventSynchronize(event_), "waiting for an event"); }
void Event::MakeWait(Stream stream) const {
  CheckCuda(cudaStreamWaitEvent(stream.handle(), event_, 0), "wait of a stream for an event");
}

// ---- Graphs ----

Graph::~Graph() {
  if (exec_ != nullptr) cudaGraphExecDestroy(exec_);
}

Graph Graph::Capture(Stream stream, const std::function<void()>& work) {
  // Captures only this thread, so other engines may use the device meanwhile.
  CheckCuda(cudaStreamBeginCapture(stream.handle(), cudaStreamCaptureModeThreadLocal),
            "begin of a graph's capture");
  std::exception_ptr failure;
  try {
    work();
  } catch (...) {
    failure = std::current_exception();
  }
  cudaGraph_t graph = nullptr;  // stays null when the capture was spoiled
  const cudaError_t status = cudaStreamEndCapture(stream.handle(), &graph);
  Graph result;
  cudaError_t instantiated = cudaSuccess;
  if (failure == nullptr && status == cudaSuccess) {
    instantiated = cudaGraphInstantiate(&result.exec_, graph, 0);
  }
  if (graph != nullptr) cudaGraphDestroy(graph);
  if (status != cudaSuccess) cudaGetLastError();
  if (failure != nullptr) std::rethrow_exception(failure);
  CheckCuda(status, "capture of a graph");
  CheckCuda(instantiated, "instantiation of a graph");
  return result;
}

void Graph::Launch(Stream stream) const {
  CheckCuda(cudaGraphLaunch(exec_, stream.handle()), "launch of a graph");
}

}  // namespace mlc_native::kernels::cuda
