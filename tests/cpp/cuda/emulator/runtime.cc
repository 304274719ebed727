// kernels/cuda/runtime.h on the emulated machine.
#include "kernels/cuda/runtime.h"

#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "cuda/emulator/machine.h"

struct CUevent_st {
  int device = 0;
  std::shared_ptr<CUstream_st> stream;  // of the last Record
  uint64_t num_put = 0;                 // there, then
};

struct CUgraphExec_st {
  int device = 0;
  std::vector<mlc_native::emulator::Work> work;

  ~CUgraphExec_st() {
    work.clear();
    mlc_native::emulator::Lock()->changed.notify_all();
  }
};

namespace mlc_native::kernels::cuda {

using emulator::CurrentThread;
using emulator::Lock;
using emulator::Work;

int DeviceCount() { return emulator::kNumDevices; }

DeviceInfo GetDeviceInfo(int device) {
  const Lock machine;
  // It makes the device current, and then again the one before.
  machine->device(device).has_context = true;
  machine->device(CurrentThread().device).has_context = true;
  const int64_t used = machine->device(device).used_bytes;
  machine->CheckDevice();
  return {.name = "emulator",
          .compute_capability = 80,
          .num_multiprocessors = 3,
          .total_bytes = machine->total_bytes,
          .free_bytes = machine->total_bytes - used,
          .is_emulated = true};
}

void UseDevice(int device) {
  const Lock machine;
  machine->device(device).has_context = true;
  CurrentThread().device = device;
}

DeviceMemory::DeviceMemory(size_t bytes) : size_(bytes) {
  if (bytes > 0) data_ = Lock()->Allocate(bytes, /*is_pinned=*/false);
}
DeviceMemory::~DeviceMemory() {
  if (data_ != nullptr) Lock()->Free(data_);
}

PinnedMemory::PinnedMemory(size_t bytes) : size_(bytes) {
  if (bytes > 0) data_ = Lock()->Allocate(bytes, /*is_pinned=*/true);
}
PinnedMemory::~PinnedMemory() {
  if (data_ != nullptr) Lock()->Free(data_);
}

namespace {

// Copies to memory that is not pinned wait, and those from such memory are read at once.
void PutCopy(Stream on, const void* host, const void* device, const Work& work, bool waits) {
  const Lock machine;
  machine->CheckDevice();
  machine->CheckDeviceMemory(device, "a copy");
  const bool is_pinned = machine->IsPinned(host);
  if (!is_pinned) machine->CheckNotCapturing("a copy of memory that is not pinned");
  const auto stream = machine->Find(on.handle());
  machine->Put(*stream, work);
  if (!is_pinned && waits) machine->RunAll(*stream);
}

}  // namespace

void CopyToDevice(void* device, const void* host, size_t bytes, Stream stream) {
  if (bytes == 0) return;
  std::function<void()> run = [=] { std::memcpy(device, host, bytes); };
  if (!Lock()->IsPinned(host)) {
    const auto* first = static_cast<const std::byte*>(host);
    run = [=, read = std::vector<std::byte>(first, first + bytes)] {
      std::memcpy(device, read.data(), bytes);
    };
  }
  PutCopy(stream, host, device, {.run = run, .put = {}}, /*waits=*/false);
}

void CopyToHost(void* host, const void* device, size_t bytes, Stream stream) {
  if (bytes == 0) return;
  PutCopy(stream, host, device,
          {.run = [=] { std::memcpy(host, device, bytes); },
           .put = [=] { std::memset(host, 0xff, bytes); }},
          /*waits=*/true);
}

void SetToZero(void* device, size_t bytes, Stream stream) {
  if (bytes == 0) return;
  const Lock machine;
  machine->CheckDevice();
  machine->CheckDeviceMemory(device, "clearing");
  machine->Put(*machine->Find(stream.handle()),
               {.run = [=] { std::memset(device, 0, bytes); }, .put = {}});
}

OwnedStream::OwnedStream(LaunchOrder) {  // kernels follow one another one by one
  const Lock machine;
  machine->CheckDevice();
  stream_ = machine->AddStream().get();
}
OwnedStream::~OwnedStream() { Lock()->RemoveStream(stream_.handle()); }

void OwnedStream::Synchronize() const {
  const Lock machine;
  machine->CheckDevice();
  machine->CheckNotCapturing("waiting for a stream");
  ++machine->counts[MLC_NATIVE_EMULATED_WAITS];
  machine->RunAll(*stream_.handle());
}

Event::Event() {
  const Lock machine;
  machine->CheckDevice();
  event_ = new CUevent_st{.device = CurrentThread().device, .stream = nullptr, .num_put = 0};
}
Event::~Event() { delete event_; }

void Event::Record(Stream on) {
  const Lock machine;
  machine->CheckDevice();
  machine->CheckNotCapturing("the record of an event");
  if (event_->device != CurrentThread().device)
    throw DeviceError("CUDA: an event of another device");
  event_->stream = machine->Find(on.handle());
  event_->num_put = event_->stream->num_put;
}

void Event::Synchronize() const {
  const Lock machine;
  machine->CheckDevice();
  machine->CheckNotCapturing("waiting for an event");
  ++machine->counts[MLC_NATIVE_EMULATED_WAITS];
  if (event_->stream != nullptr) machine->RunUntil(*event_->stream, event_->num_put);
}

void Event::MakeWait(Stream on) const {
  const Lock machine;
  machine->CheckDevice();
  machine->CheckNotCapturing("the wait for an event");
  if (event_->stream == nullptr) return;
  const auto wait = [first = event_->stream, num_put = event_->num_put] {
    emulator::Machine::Get().RunUntil(*first, num_put);
  };
  machine->Put(*machine->Find(on.handle()), {.run = wait, .put = {}});
}

Graph::~Graph() { delete exec_; }

Graph Graph::Capture(Stream on, const std::function<void()>& work) {
  auto exec = std::make_unique<CUgraphExec_st>();
  exec->device = CurrentThread().device;
  std::shared_ptr<CUstream_st> stream;
  {
    const Lock machine;
    machine->CheckDevice();
    machine->CheckNotCapturing("another capture");
    ++machine->counts[MLC_NATIVE_EMULATED_CAPTURES];
    stream = machine->Find(on.handle());
    stream->recording = &exec->work;
    CurrentThread().captured = stream.get();
  }
  const auto stop = [&] {
    const Lock machine;
    stream->recording = nullptr;
    CurrentThread().captured = nullptr;
  };
  try {
    work();
  } catch (...) {
    stop();
    throw;
  }
  stop();
  if (!Lock()->device(exec->device).allows_graphs) throw DeviceError("CUDA: no graphs");
  Graph graph;
  graph.exec_ = exec.release();
  return graph;
}

void Graph::Launch(Stream on) const {
  const Lock machine;
  machine->CheckDevice();
  if (exec_->device != CurrentThread().device) throw DeviceError("CUDA: a graph of another device");
  ++machine->counts[MLC_NATIVE_EMULATED_GRAPHS];
  const auto stream = machine->Find(on.handle());
  for (const Work& work : exec_->work) machine->Put(*stream, work);
}

}  // namespace mlc_native::kernels::cuda
