#include "cuda/emulator/machine.h"

#include <signal.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "kernels/cuda/runtime.h"

namespace mlc_native::emulator {

using kernels::cuda::DeviceError;
using kernels::cuda::OutOfDeviceMemory;

namespace {

constexpr size_t kGuard = 4096;
constexpr size_t kMaxPending = 10000;
constexpr std::chrono::seconds kPatience{60};

// What the calling thread does with the memory of devices.
enum class Access { kHost, kEarly, kKernel };
thread_local Access access_now = Access::kHost;

struct sigaction handler_before;

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

// Accesses to protected memory come here, those behind the end of an array, too.
void OnRefusedAccess(int, siginfo_t* info, void*) {
  if (Machine::Get().Admit(info->si_addr)) return;
  sigaction(SIGSEGV, &handler_before, nullptr);  // the access is repeated, and is its business
}

}  // namespace

ThreadState& CurrentThread() {
  thread_local ThreadState state;
  return state;
}

Machine& Machine::Get() {
  static Machine machine;
  return machine;
}

Machine::Machine() {
  const char* memory = std::getenv("MLC_NATIVE_EMULATED_MEMORY");
  if (memory != nullptr) total_bytes = std::strtoll(memory, nullptr, 10);
  struct sigaction handler{};
  handler.sa_sigaction = OnRefusedAccess;
  handler.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &handler, &handler_before);
}

void Machine::CountLaunch() {
  ++counts[MLC_NATIVE_EMULATED_LAUNCHES];
  Device& on = device(CurrentThread().device);
  if (on.launches_left < 0) return;
  if (--on.launches_left <= 0) on.is_lost = true;
  CheckDevice();
}

Machine::Device& Machine::device(int i) {
  if (i < 0 || i >= kNumDevices) throw DeviceError("CUDA: no device " + std::to_string(i));
  return devices_[static_cast<size_t>(i)];
}

void Machine::CheckDevice() {
  if (device(CurrentThread().device).is_lost) throw DeviceError("CUDA: the device is lost");
}

void Machine::CheckNotCapturing(const char* what) {
  if (CurrentThread().captured != nullptr) {
    throw DeviceError(std::string("CUDA: not while a stream is captured: ") + what);
  }
}

// ---- Streams ----

std::shared_ptr<CUstream_st> Machine::AddStream() {
  auto stream = std::make_shared<CUstream_st>();
  stream->device = CurrentThread().device;
  streams_[stream.get()] = stream;
  return stream;
}

void Machine::RemoveStream(CUstream_st* stream) {
  RunAll(*stream);
  streams_.erase(stream);
}

std::shared_ptr<CUstream_st> Machine::Find(CUstream_st* stream) {
  if (stream == nullptr) {
    auto& own = own_streams_[static_cast<size_t>(CurrentThread().device)];
    if (own == nullptr) own = AddStream();
    return own;
  }
  const auto found = streams_.find(stream);
  if (found == streams_.end()) throw DeviceError("CUDA: no such stream");
  if (stream->device != CurrentThread().device) {
    throw DeviceError("CUDA: a stream of another device than the current one");
  }
  return found->second;
}

void Machine::Put(CUstream_st& stream, const Work& work) {
  if (stream.recording != nullptr) {
    stream.recording->push_back(work);
    return;
  }
  if (work.is_kernel) CountLaunch();
  if (work.put) work.put();
  stream.pending.push_back(work);
  ++stream.num_put;
  if (stream.pending.size() > kMaxPending) RunUntil(stream, stream.num_taken + 1);
}

// Another thread may run the stream meanwhile, within work of it that waits (WaitUntil): the last
// piece that has been taken from it.
void Machine::RunUntil(CUstream_st& stream, uint64_t num_done) {
  const std::thread::id self = std::this_thread::get_id();
  const auto is_free = [&] { return stream.runner == std::thread::id() || stream.runner == self; };
  const int device_before = CurrentThread().device;
  for (;;) {
    if (!is_free() && stream.num_taken <= num_done) {
      if (!WaitUntil(is_free, kPatience)) Fail("emulated machine: a stream never ends");
      continue;
    }
    if (stream.num_taken >= num_done || stream.pending.empty()) return;
    const Work work = std::move(stream.pending.front());
    stream.pending.pop_front();
    ++stream.num_taken;
    if (device(stream.device).is_lost) continue;
    const std::thread::id runner_before = std::exchange(stream.runner, self);
    CurrentThread().device = stream.device;
    work.run();
    CurrentThread().device = device_before;
    access_now = Access::kHost;
    stream.runner = runner_before;
    changed.notify_all();
  }
}

bool Machine::WaitUntil(const std::function<bool()>& is_done, std::chrono::seconds patience) {
  if (num_locks != 1) Fail("emulated machine: a wait with the machine locked twice");
  num_locks = 0;
  const bool result = changed.wait_for(mutex, patience, is_done);
  num_locks = 1;
  return result;
}

// Other threads may add and remove streams while one is awaited.
void Machine::RunAllOf(int device) {
  std::vector<std::shared_ptr<CUstream_st>> streams;
  for (const auto& [key, stream] : streams_) {
    if (stream->device == device) streams.push_back(stream);
  }
  for (const auto& stream : streams) RunAll(*stream);
}

// ---- Memory ----

std::byte* Machine::Allocate(size_t bytes, bool is_pinned) {
  CheckDevice();
  CheckNotCapturing("an allocation");
  ++counts[MLC_NATIVE_EMULATED_ALLOCATIONS];
  Device& owner = device(CurrentThread().device);
  if (!is_pinned && owner.used_bytes + static_cast<int64_t>(bytes) > total_bytes) {
    throw OutOfDeviceMemory("CUDA: " + std::to_string(bytes) + " bytes do not fit");
  }
  const size_t whole = (bytes + kGuard - 1) / kGuard * kGuard;
  void* pages = mmap(nullptr, whole + 2 * kGuard, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  auto* first = static_cast<std::byte*>(pages) + kGuard;
  mprotect(first, whole, PROT_READ | PROT_WRITE);
  std::memset(first, 0xff, whole);
  // As near to the guard behind it as an alignment of 16 allows; CUDA's own is 256.
  std::byte* data = first + whole - (bytes + 15) / 16 * 16;
  allocations_[data] = {static_cast<std::byte*>(pages), whole + 2 * kGuard,
                        is_pinned ? 0 : bytes,          CurrentThread().device,
                        /*is_written=*/false,           PROT_READ | PROT_WRITE};
  if (!is_pinned) owner.used_bytes += static_cast<int64_t>(bytes);
  return data;
}

void Machine::Free(std::byte* data) {
  const auto found = allocations_.find(data);
  const Allocation& allocation = found->second;
  RunAllOf(allocation.device);
  device(allocation.device).used_bytes -= static_cast<int64_t>(allocation.asked_bytes);
  munmap(allocation.pages, allocation.num_bytes);
  allocations_.erase(found);
}

const Machine::Allocation* Machine::Holding(const void* address) const {
  auto after = allocations_.upper_bound(static_cast<std::byte*>(const_cast<void*>(address)));
  // Data begins behind its first guard, so an address before it belongs to no allocation.
  if (after == allocations_.begin()) return nullptr;
  const Allocation& allocation = std::prev(after)->second;
  return address < allocation.pages + allocation.num_bytes ? &allocation : nullptr;
}

Machine::Allocation* Machine::Holding(const void* address) {
  return const_cast<Allocation*>(std::as_const(*this).Holding(address));
}

void Machine::Protect(Allocation& allocation, int access) {
  if (allocation.access == access) return;
  mprotect(allocation.pages + kGuard, allocation.num_bytes - 2 * kGuard, access);
  allocation.access = access;
}

// What the kernels of a launch write is found by refusing the first access.
void Machine::Shield(bool shielded) {
  access_now = shielded ? Access::kEarly : Access::kKernel;
  for (auto& [data, allocation] : allocations_) {
    if (allocation.asked_bytes == 0 || allocation.device != CurrentThread().device) continue;
    if (!allocation.is_written) {
      Protect(allocation, PROT_READ);
    } else {
      Protect(allocation, shielded ? PROT_NONE : PROT_READ | PROT_WRITE);
    }
  }
}

bool Machine::Admit(const void* address) {
  Allocation* allocation = Holding(address);
  if (allocation == nullptr || address < allocation->pages + kGuard ||
      address >= allocation->pages + allocation->num_bytes - kGuard ||
      allocation->access == (PROT_READ | PROT_WRITE)) {
    return false;
  }
  if (access_now == Access::kEarly) {
    std::fputs(allocation->is_written
                   ? "emulated kernel: uses what kernels write before it waits for the previous "
                     "launch\n"
                   : "emulated kernel: writes before it waits for the previous launch\n",
               stderr);
    std::abort();
  }
  allocation->is_written = access_now == Access::kKernel;
  Protect(*allocation, PROT_READ | PROT_WRITE);
  return true;
}

bool Machine::IsPinned(const void* host) const {
  const Allocation* allocation = Holding(host);
  return allocation != nullptr && allocation->asked_bytes == 0;
}

void Machine::CheckDeviceMemory(const void* address, const char* what) const {
  const Allocation* allocation = Holding(address);
  if (allocation == nullptr || allocation->asked_bytes == 0 ||
      allocation->device != CurrentThread().device) {
    throw DeviceError(std::string("CUDA: not memory of the current device: ") + what);
  }
}

void Machine::CheckArguments(const void* args, size_t bytes) const {
  for (size_t at = 0; at + sizeof(uintptr_t) <= bytes; at += sizeof(uintptr_t)) {
    uintptr_t word;
    std::memcpy(&word, static_cast<const std::byte*>(args) + at, sizeof word);
    if (word >> 40 == 0 || word >> 47 != 0) continue;
    const auto* address = reinterpret_cast<const void*>(word);
    const Allocation* allocation = Holding(address);
    unsigned char resident;
    const bool is_mapped =
        mincore(reinterpret_cast<void*>(word / kGuard * kGuard), 1, &resident) == 0;
    const std::string which =
        "CUDA: byte " + std::to_string(at) + " of a kernel's arguments points ";
    if (allocation == nullptr ? is_mapped : allocation->asked_bytes == 0) {
      throw DeviceError(which + "to host memory");
    }
    if (allocation != nullptr && allocation->device != CurrentThread().device) {
      throw DeviceError(which + "to memory of another device");
    }
  }
}

void PutLaunch(CUstream_st* stream, std::function<void()> run,
               std::function<void(const WorkPlace&)> put) {
  const Lock machine;
  machine->CheckDevice();
  const std::shared_ptr<CUstream_st> on = machine->Find(stream);
  Work work{.run = std::move(run), .put = {}, .is_kernel = true};
  if (put) work.put = [put = std::move(put), on = on.get()] { put({on, on->num_put + 1}); };
  machine->Put(*on, work);
}

void RunUpTo(const WorkPlace& place) {
  Machine& machine = Machine::Get();
  const std::thread::id self = std::this_thread::get_id();
  if (place.stream->runner != std::thread::id() && place.stream->runner != self) return;
  machine.RunUntil(*place.stream, place.number);
}

bool WaitUntil(const std::function<bool()>& is_done, std::chrono::seconds patience) {
  return Machine::Get().WaitUntil(is_done, patience);
}

void ShieldMemory(bool shielded) { Lock()->Shield(shielded); }

void CheckArguments(const void* args, size_t bytes) { Lock()->CheckArguments(args, bytes); }

}  // namespace mlc_native::emulator

// ---- Hooks ----

using mlc_native::emulator::Lock;

void mlc_native_emulated_set_memory(int64_t bytes) { Lock()->total_bytes = bytes; }

void mlc_native_emulated_lose_device(int device, int64_t launches) {
  const Lock machine;
  auto& it = machine->device(device);
  it.launches_left = launches > 0 ? launches : -1;
  it.is_lost = launches == 0;
}

void mlc_native_emulated_allow_graphs(int allowed) {
  for (int i = 0; i < mlc_native::emulator::kNumDevices; ++i) {
    mlc_native_emulated_allow_graphs_on(i, allowed);
  }
}

void mlc_native_emulated_allow_graphs_on(int device, int allowed) {
  Lock()->device(device).allows_graphs = allowed != 0;
}

int mlc_native_emulated_has_context(int device) { return Lock()->device(device).has_context; }

void mlc_native_emulated_forget_context(int device) { Lock()->device(device).has_context = false; }

int64_t mlc_native_emulated_counter(int which) {
  return Lock()->counts.at(static_cast<size_t>(which));
}

int64_t mlc_native_emulated_used_memory(int device) { return Lock()->device(device).used_bytes; }
