#include "models/cuda/peers.h"

#include <algorithm>
#include <string>

#include "support/check.h"
#include "support/error.h"

namespace mlc_native {
namespace {

using kernels::cuda::DeviceError;
using kernels::cuda::Stream;

int NcclType(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      break;
    case DType::kBFloat16:
      return nccl::kBFloat16;
    case DType::kFloat16:
      return nccl::kFloat16;
  }
  return nccl::kFloat32;
}

InvalidConfig Unusable(size_t num_devices, const std::string& reason) {
  return {"tensor_parallel_shards",
          "\"tensor_parallel_shards\" = " + std::to_string(num_devices) +
              " needs NVIDIA's NCCL 2: " + reason +
              ". Install it with \"pip install nvidia-nccl-cu13\" (or -cu12), or name the file in "
              "MLC_NATIVE_NCCL_LIB"};
}

}  // namespace

Peers::Peers(const std::vector<int>& devices) {
  const bool is_gpu = !kernels::cuda::GetDeviceInfo(devices.front()).is_emulated;
  std::string reason;
  if (!nccl::Open(is_gpu, &api_, &reason)) throw Unusable(devices.size(), reason);
  std::vector<nccl::Comm> comms(devices.size());
  const int status = api_.init_all(comms.data(), static_cast<int>(devices.size()), devices.data());
  if (status != nccl::kSuccess) {
    throw Unusable(devices.size(),
                   std::string("it cannot connect the GPUs: ") + api_.error_string(status));
  }
  for (const nccl::Comm comm : comms) {
    ranks_.push_back(std::make_unique<Rank>());
    ranks_.back()->comm = comm;
  }
}

Peers::~Peers() {
  for (const auto& rank : ranks_) {
    if (!rank->is_aborted) api_.destroy(rank->comm);
  }
}

template <typename Call>
void Peers::Run(int64_t rank, const char* what, const Call& call) {
  Rank& own = *ranks_[static_cast<size_t>(rank)];
  const std::lock_guard lock(own.mutex);
  if (own.is_aborted) throw DeviceError(std::string("NCCL: another GPU has failed: ") + what);
  const int status = call(own.comm);
  if (status != nccl::kSuccess) {
    throw DeviceError(std::string("NCCL: ") + what + ": " + api_.error_string(status));
  }
}

void Peers::Sum(int64_t rank, void* data, int64_t count, DType dtype, Stream stream) {
  Run(rank, "a sum over GPUs", [&](nccl::Comm comm) {
    return api_.all_reduce(data, data, static_cast<size_t>(count), NcclType(dtype), nccl::kSum,
                           comm, stream.handle());
  });
}

void Peers::SendTokens(int64_t rank, int32_t* tokens, int64_t count, Stream stream) {
  Run(rank, "tokens for all GPUs", [&](nccl::Comm comm) {
    return api_.broadcast(tokens, tokens, static_cast<size_t>(count), nccl::kInt32, 0, comm,
                          stream.handle());
  });
}

// A thread that NCCL does not let go holds its mutex, and is freed by the abort.
void Peers::Abort() {
  for (const auto& rank : ranks_) {
    const std::unique_lock lock(rank->mutex, kPatience);
    if (std::exchange(rank->is_aborted, true)) continue;
    api_.abort(rank->comm);
  }
}

}  // namespace mlc_native
