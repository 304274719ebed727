// A fake NCCL for the emulated machine: the functions that models/cuda/nccl_api.h declares. Ranks
// meet in each operation: the stream of a rank does not go on before all ranks have come to the
// same one. Other operations or sizes on the ranks, and a rank that never comes, end the process
// with a message; an abort lets a rank go. As in NCCL, the last of the ranks to be destroyed or
// aborted frees all of them, for which it waits until no graph has an operation of theirs. An
// operation is the same on all ranks, whether it is recorded, too, and runs from the same
// recording.
#include "cuda/fake_nccl/fake_nccl.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
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
constexpr std::chrono::seconds kPatienceWithGraphs{60};

std::atomic<int64_t> num_operations = 0;
std::atomic<int> num_comms = 0;
std::atomic<bool> refuses = false;

using Bytes = std::vector<std::byte>;

struct Operation {
  enum class Kind { kSum, kBroadcast, kExchange };

  Kind kind = Kind::kSum;
  size_t count = 0;  // kExchange: 0
  int type = 0;
  int64_t recorded = 0;  // the number of a recorded one; 0: it is not recorded

  bool operator==(const Operation&) const = default;
};

size_t BytesOf(size_t count, int type) {
  return count * (type < kFloat16    ? sizeof(int32_t)
                  : type == kFloat32 ? sizeof(float)
                                     : sizeof(uint16_t));
}

struct Piece {
  size_t peer = 0;
  void* data = nullptr;
  size_t bytes = 0;
};

// An operation of a rank: where its data is, of kExchange what it sends and receives.
struct Call {
  Operation operation;
  void* data = nullptr;
  std::vector<Piece> sent{};
  std::vector<Piece> received{};
};

// What the thread's calls have sent and received since ncclGroupStart.
struct Group {
  int depth = 0;
  Comm comm = nullptr;
  CUstream_st* stream = nullptr;
  Call call;
};
thread_local Group group;

[[noreturn]] void Fail(const char* what, size_t rank, size_t number) {
  std::fprintf(stderr, "fake NCCL: rank %zu, operation %zu: %s\n", rank, number, what);
  std::abort();
}

DType TypeOf(int type) {
  return type == kFloat32 ? DType::kFloat32 : type == kFloat16 ? DType::kFloat16 : DType::kBFloat16;
}

// What an operation leaves on every rank. As NCCL may, a sum begins with another rank for another
// count.
Bytes Result(const Operation& operation, const std::vector<Bytes>& inputs) {
  if (operation.kind != Operation::Kind::kSum) return inputs.front();
  const size_t first = (operation.count * 2654435761 >> 16) % inputs.size();
  Bytes result = inputs[first];
  const DType dtype = TypeOf(operation.type);
  for (size_t i = 1; i < inputs.size(); ++i) {
    const Bytes& input = inputs[(first + i) % inputs.size()];
    for (int64_t at = 0; at < static_cast<int64_t>(operation.count); ++at) {
      StoreElement(dtype, result.data(), at,
                   LoadElement(dtype, result.data(), at) + LoadElement(dtype, input.data(), at));
    }
  }
  return result;
}

// The ranks that were made together. All members are used with the machine locked.
class Clique {
 public:
  explicit Clique(size_t size) : ranks_(size) {}

  void Abort(size_t rank) { ranks_[rank].is_aborted = true; }
  bool IsAborted(size_t rank) const { return ranks_[rank].is_aborted; }
  // What a recorded operation holds.
  std::shared_ptr<const void> recorded() const { return recorded_; }
  int64_t NextRecorded(size_t rank) { return ++ranks_[rank].num_recorded; }

  // Of a rank that is destroyed or aborted.
  void End(size_t rank) {
    if (std::exchange(ranks_[rank].is_ended, true)) Fail("it is destroyed twice", rank, 0);
    if (++num_ended_ < ranks_.size()) return;
    const auto no_graph_is_left = [&] { return recorded_.use_count() == 1; };
    if (!emulator::WaitUntil(no_graph_is_left, kPatienceWithGraphs)) {
      Fail("its end waits for graphs with its operations", rank, 0);
    }
  }
  void CheckNotEnded(size_t rank) const {
    if (ranks_[rank].is_ended) Fail("an operation behind its end", rank, 0);
  }

  void Put(size_t rank, const Operation& operation, const WorkPlace& place) {
    ranks_[rank].given.push_back({operation, place});
  }

  // The next operation of a rank, whose device is current. Memory is used as by a kernel that has
  // waited for what is in front of it.
  void Run(size_t rank, const Call& call) {
    const size_t number = ranks_[rank].num_run++;
    const Operation& operation = call.operation;
    Meeting& meeting = meetings_[number];  // stays where it is
    meeting.inputs.resize(ranks_.size());
    UseAsKernel();
    if (operation.kind == Operation::Kind::kExchange) {
      for (const Piece& piece : call.sent) {
        Bytes& sent = meeting.sent[{rank, piece.peer}];
        if (!sent.empty()) Fail("it sends twice to the same rank", rank, number);
        sent = Copy(piece.data, piece.bytes);
      }
    } else {
      meeting.inputs[rank] = Copy(call.data, BytesOf(operation.count, operation.type));
    }
    if (++meeting.num_here == 1) meeting.operation = operation;
    if (meeting.operation != operation) Fail("it is another one on another rank", rank, number);
    if (meeting.num_here == ranks_.size()) meeting.result = Result(operation, meeting.inputs);
    WaitForOthers(rank, number, meeting);
    if (IsAborted(rank)) return;
    UseAsKernel();
    for (const Piece& piece : call.received) {
      const auto sent = meeting.sent.find({piece.peer, rank});
      if (sent == meeting.sent.end() || sent->second.size() != piece.bytes) {
        Fail("it receives other sizes than are sent", rank, number);
      }
      std::memcpy(piece.data, sent->second.data(), piece.bytes);
      meeting.sent.erase(sent);
    }
    if (!meeting.result.empty()) {
      std::memcpy(call.data, meeting.result.data(), meeting.result.size());
    }
    if (++meeting.num_left < ranks_.size()) return;
    if (!meeting.sent.empty()) Fail("it was sent what it does not receive", rank, number);
    meetings_.erase(number);
  }

 private:
  struct Given {
    Operation operation;
    WorkPlace place;
  };
  struct Rank {
    std::vector<Given> given;
    size_t num_run = 0;  // operations that it has come to
    int64_t num_recorded = 0;
    bool is_aborted = false;
    bool is_ended = false;
  };
  struct Meeting {
    Operation operation;  // of the first rank that came
    std::vector<Bytes> inputs;
    Bytes result;
    std::map<std::pair<size_t, size_t>, Bytes> sent;  // from one rank to another
    size_t num_here = 0;
    size_t num_left = 0;
  };

  static Bytes Copy(const void* data, size_t bytes) {
    const auto* first = static_cast<const std::byte*>(data);
    return {first, first + bytes};
  }
  static void UseAsKernel() {
    emulator::ShieldMemory(true);
    emulator::ShieldMemory(false);
  }

  // Until all ranks have come to the operation, or this one is aborted.
  void WaitForOthers(size_t rank, size_t number, const Meeting& meeting) {
    for (size_t other = 0; other < ranks_.size(); ++other) {
      const Rank& it = ranks_[other];
      if (it.num_run <= number && it.given.size() > number) {
        emulator::RunUpTo(it.given[number].place);
      }
    }
    const auto is_over = [&] { return IsAborted(rank) || meeting.num_here == ranks_.size(); };
    if (!emulator::WaitUntil(is_over, kPatience)) Fail("another rank never comes", rank, number);
  }

  std::vector<Rank> ranks_;
  std::map<size_t, Meeting> meetings_;  // by the number of the operation
  size_t num_ended_ = 0;
  const std::shared_ptr<const void> recorded_ = std::make_shared<char>();
};

}  // namespace

struct CommTag {
  std::shared_ptr<Clique> clique;
  size_t num_ranks = 0;
  size_t rank = 0;
  int device = 0;
};

namespace {

// At an unlocked machine.
int Put(Comm comm, Call call, CUstream_st* stream) {
  ++num_operations;
  bool is_recorded = false;
  {
    const Lock machine;
    comm->clique->CheckNotEnded(comm->rank);
    is_recorded = emulator::CurrentThread().captured != nullptr;
    if (is_recorded) call.operation.recorded = comm->clique->NextRecorded(comm->rank);
    if (emulator::CurrentThread().device != comm->device) return kInvalidUsage;
    if (call.data != nullptr) machine->CheckDeviceMemory(call.data, "a sum over devices");
    for (const auto& pieces : {call.sent, call.received}) {
      for (const Piece& piece : pieces) machine->CheckDeviceMemory(piece.data, "an exchange");
    }
  }
  const std::shared_ptr<Clique> clique = comm->clique;
  const size_t rank = comm->rank;
  emulator::PutLaunch(
      stream,
      [=, recorded = is_recorded ? clique->recorded() : nullptr] {
        if (!clique->IsAborted(rank)) clique->Run(rank, call);
      },
      [=](const WorkPlace& place) { clique->Put(rank, call.operation, place); });
  return kSuccess;
}

// All of a group is on one communicator and stream, and of one type.
int AddToGroup(Comm comm, int type, const Piece& piece, CUstream_st* stream, bool is_sent) {
  const auto peer = static_cast<size_t>(piece.peer);
  if (group.depth == 0 || peer >= comm->num_ranks || peer == comm->rank) return kInvalidUsage;
  Operation& operation = group.call.operation;
  if (group.comm == nullptr) {
    operation = {.kind = Operation::Kind::kExchange, .count = 0, .type = type};
    group.comm = comm;
    group.stream = stream;
  }
  if (group.comm != comm || group.stream != stream || operation.type != type) {
    return kInvalidUsage;
  }
  (is_sent ? group.call.sent : group.call.received).push_back(piece);
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
  {
    const Lock machine;  // as GetDeviceInfo
    machine->device(mlc_native::emulator::CurrentThread().device).has_context = true;
  }
  const auto clique = std::make_shared<Clique>(static_cast<size_t>(num_devices));
  for (int rank = 0; rank < num_devices; ++rank) {
    comms[rank] = new CommTag{clique, static_cast<size_t>(num_devices), static_cast<size_t>(rank),
                              devices[rank]};
  }
  num_comms += num_devices;
  return kSuccess;
}

int ncclCommDestroy(Comm comm) {
  {
    const Lock machine;
    comm->clique->End(comm->rank);
  }
  delete comm;
  --num_comms;
  return kSuccess;
}

int ncclCommAbort(Comm comm) {
  {
    const Lock machine;
    comm->clique->Abort(comm->rank);
    machine->changed.notify_all();
  }
  return ncclCommDestroy(comm);
}

// The library always works in place.
int ncclAllReduce(const void* from, void* to, size_t count, int type, int op, Comm comm,
                  CUstream_st* stream) {
  if (op != kSum || from != to) return kInvalidArgument;
  return Put(comm, {.operation = {Operation::Kind::kSum, count, type}, .data = to}, stream);
}

int ncclBroadcast(const void* from, void* to, size_t count, int type, int root, Comm comm,
                  CUstream_st* stream) {
  if (root != 0 || type != kInt32 || from != to) return kInvalidArgument;
  return Put(comm, {.operation = {Operation::Kind::kBroadcast, count, type}, .data = to}, stream);
}

int ncclGroupStart() {
  ++group.depth;
  return kSuccess;
}

int ncclGroupEnd() {
  if (group.depth != 1) return kInvalidUsage;  // the library does not nest them
  const Group ended = std::exchange(group, {});
  return ended.comm == nullptr ? kSuccess : Put(ended.comm, ended.call, ended.stream);
}

int ncclSend(const void* from, size_t count, int type, int peer, Comm comm, CUstream_st* stream) {
  return AddToGroup(
      comm, type,
      {static_cast<size_t>(peer), const_cast<void*>(from), BytesOf(count, type)},  // NOLINT
      stream, true);
}

int ncclRecv(void* to, size_t count, int type, int peer, Comm comm, CUstream_st* stream) {
  return AddToGroup(comm, type, {static_cast<size_t>(peer), to, BytesOf(count, type)}, stream,
                    false);
}

const char* ncclGetErrorString(int status) {
  return status == kInvalidUsage ? "invalid usage" : "an error of the fake NCCL";
}
}
