// A fake NCCL for the emulated machine: the functions that models/cuda/nccl_api.h declares. Ranks
// meet in each operation: the stream of a rank does not go on before all ranks have come to the
// same one. Other operations or sizes on the ranks, and a rank that never comes, end the process
// with a message; an abort lets all of them go.
#include "cuda/fake_nccl/fake_nccl.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "cuda/emulator/emulator.h"
#include "cuda/emulator/machine.h"
#include "models/cuda/nccl_api.h"
#include "support/half.h"

namespace mlc_native::nccl {
namespace {

using emulator::Lock;
using emulator::WorkPlace;

constexpr int kInvalidArgument = 4;
constexpr int kInvalidUsage = 5;
constexpr std::chrono::seconds kPatience{20};

std::atomic<int64_t> num_operations = 0;
std::atomic<int> num_comms = 0;
std::atomic<bool> refuses = false;

struct Operation {
  bool is_sum = false;
  size_t count = 0;
  int type = 0;

  bool operator==(const Operation&) const = default;
};

[[noreturn]] void Fail(const char* what, size_t rank, size_t number) {
  std::fprintf(stderr, "fake NCCL: rank %zu, operation %zu: %s\n", rank, number, what);
  std::abort();
}

DType TypeOf(int type) {
  return type == kFloat32 ? DType::kFloat32 : type == kFloat16 ? DType::kFloat16 : DType::kBFloat16;
}

// What an operation leaves on every rank.
std::vector<std::byte> Result(const Operation& operation,
                              const std::vector<std::vector<std::byte>>& inputs) {
  std::vector<std::byte> result = inputs.front();
  if (!operation.is_sum) return result;
  const DType dtype = TypeOf(operation.type);
  for (size_t rank = 1; rank < inputs.size(); ++rank) {
    for (int64_t i = 0; i < static_cast<int64_t>(operation.count); ++i) {
      StoreElement(
          dtype, result.data(), i,
          LoadElement(dtype, result.data(), i) + LoadElement(dtype, inputs[rank].data(), i));
    }
  }
  return result;
}

// The ranks that were made together. All members are used with the machine locked.
class Clique {
 public:
  explicit Clique(size_t size) : ranks_(size) {}

  bool aborted = false;

  void Put(size_t rank, const Operation& operation, const WorkPlace& place) {
    ranks_[rank].given.push_back({operation, place});
  }

  // The next operation of a rank, whose device is current. Memory is used as by a kernel that has
  // waited for what is in front of it.
  void Run(size_t rank, void* data) {
    const size_t number = ranks_[rank].num_run++;
    const Operation operation = ranks_[rank].given[number].operation;
    const size_t bytes = operation.count * (operation.type < kFloat16    ? sizeof(int32_t)
                                            : operation.type == kFloat32 ? sizeof(float)
                                                                         : sizeof(uint16_t));
    Meeting& meeting = meetings_[number];  // stays where it is
    meeting.inputs.resize(ranks_.size());
    UseAsKernel();
    const auto* first = static_cast<const std::byte*>(data);
    meeting.inputs[rank].assign(first, first + bytes);
    if (++meeting.num_here == 1) meeting.operation = operation;
    if (meeting.operation != operation) Fail("it is another one on another rank", rank, number);
    if (meeting.num_here == ranks_.size()) meeting.result = Result(operation, meeting.inputs);
    WaitForOthers(rank, number, meeting);
    if (aborted) return;
    UseAsKernel();
    std::memcpy(data, meeting.result.data(), bytes);
    if (++meeting.num_left == ranks_.size()) meetings_.erase(number);
  }

 private:
  struct Given {
    Operation operation;
    WorkPlace place;
  };
  struct Rank {
    std::vector<Given> given;
    size_t num_run = 0;  // operations that it has come to
  };
  struct Meeting {
    Operation operation;  // of the first rank that came
    std::vector<std::vector<std::byte>> inputs;
    std::vector<std::byte> result;
    size_t num_here = 0;
    size_t num_left = 0;
  };

  static void UseAsKernel() {
    emulator::ShieldMemory(true);
    emulator::ShieldMemory(false);
  }

  // Until all ranks have come to the operation, or the clique is aborted.
  void WaitForOthers(size_t rank, size_t number, const Meeting& meeting) {
    for (size_t other = 0; other < ranks_.size(); ++other) {
      const Rank& it = ranks_[other];
      if (it.num_run <= number && it.given.size() > number) {
        emulator::RunUpTo(it.given[number].place);
      }
    }
    const auto is_over = [&] { return aborted || meeting.num_here == ranks_.size(); };
    if (!emulator::WaitUntil(is_over, kPatience)) Fail("another rank never comes", rank, number);
  }

  std::vector<Rank> ranks_;
  std::map<size_t, Meeting> meetings_;  // by the number of the operation
};

}  // namespace

struct CommTag {
  std::shared_ptr<Clique> clique;
  size_t rank = 0;
  int device = 0;
};

namespace {

int Put(Comm comm, const Operation& operation, const void* from, void* to, CUstream_st* stream) {
  if (from != to) return kInvalidArgument;  // the library always works in place
  ++num_operations;
  {
    const Lock machine;
    if (emulator::CurrentThread().device != comm->device) return kInvalidUsage;
    machine->CheckDeviceMemory(to, "a sum over devices");
  }
  const std::shared_ptr<Clique> clique = comm->clique;
  const size_t rank = comm->rank;
  emulator::PutLaunch(
      stream,
      [=] {
        if (!clique->aborted) clique->Run(rank, to);
      },
      [=](const WorkPlace& place) { clique->Put(rank, operation, place); });
  return kSuccess;
}

}  // namespace
}  // namespace mlc_native::nccl

using namespace mlc_native::nccl;  // NOLINT: C functions
using mlc_native::emulator::Lock;

extern "C" {

int64_t fake_nccl_num_operations() { return num_operations; }
int fake_nccl_num_comms() { return num_comms; }
void fake_nccl_refuse(int refused) { refuses = refused != 0; }

int ncclCommInitAll(Comm* comms, int num_devices, const int* devices) {
  if (refuses) return kInvalidUsage;
  const auto clique = std::make_shared<Clique>(static_cast<size_t>(num_devices));
  for (int rank = 0; rank < num_devices; ++rank) {
    comms[rank] = new CommTag{clique, static_cast<size_t>(rank), devices[rank]};
  }
  num_comms += num_devices;
  return kSuccess;
}

int ncclCommDestroy(Comm comm) {
  delete comm;
  --num_comms;
  return kSuccess;
}

int ncclCommAbort(Comm comm) {
  {
    const Lock machine;
    comm->clique->aborted = true;
    machine->changed.notify_all();
  }
  return ncclCommDestroy(comm);
}

int ncclAllReduce(const void* from, void* to, size_t count, int type, int op, Comm comm,
                  CUstream_st* stream) {
  if (op != kSum) return kInvalidArgument;
  return Put(comm, {.is_sum = true, .count = count, .type = type}, from, to, stream);
}

int ncclBroadcast(const void* from, void* to, size_t count, int type, int root, Comm comm,
                  CUstream_st* stream) {
  if (root != 0 || type != kInt32) return kInvalidArgument;
  return Put(comm, {.is_sum = false, .count = count, .type = type}, from, to, stream);
}

const char* ncclGetErrorString(int status) {
  return status == kInvalidUsage ? "invalid usage" : "an error of the fake NCCL";
}
}
