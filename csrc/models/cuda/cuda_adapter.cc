#include "models/cuda/cuda_adapter.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "models/cuda/decoder.h"
#include "support/check.h"
#include "support/error.h"
#include "support/half.h"

namespace mlc_native {
namespace {

using namespace kernels::cuda;  // NOLINT: the vocabulary of this file

constexpr int64_t kRankStep = 8;
constexpr size_t kMatrixAlign = 256;  // as cudaMalloc aligns what it returns
static_assert(kMaxLinearRank <= kMaxDeviceRank && kMaxDeviceRank % kRankStep == 0);

size_t AlignMatrix(size_t bytes) {
  return (bytes + kMatrixAlign - 1) / kMatrixAlign * kMatrixAlign;
}

// With rows and columns of zeros, so that rows of both matrices are whole vectors.
int64_t DeviceRank(const AdapterLinear& linear) {
  return (linear.rank + kRankStep - 1) / kRankStep * kRankStep;
}
size_t DownBytes(const AdapterLinear& linear, DType dtype) {
  return AlignMatrix(static_cast<size_t>(DeviceRank(linear) * linear.columns) * DTypeSize(dtype));
}
size_t UpBytes(const AdapterLinear& linear, DType dtype) {
  return AlignMatrix(static_cast<size_t>(linear.rows * DeviceRank(linear)) * DTypeSize(dtype));
}

void PackDown(const AdapterLinear& linear, DType dtype, std::byte* data) {
  for (int64_t i = 0; i < linear.rank * linear.columns; ++i) {
    StoreElement(dtype, data, i, linear.down[static_cast<size_t>(i)]);
  }
}

void PackUp(const AdapterLinear& linear, DType dtype, std::byte* data) {
  const int64_t width = DeviceRank(linear);
  for (const AdapterLinear::Up& up : linear.ups) {
    for (int64_t row = 0; row < up.rows; ++row) {
      for (int64_t i = 0; i < up.rank; ++i) {
        StoreElement(dtype, data, (up.row + row) * width + up.column + i,
                     up.values[static_cast<size_t>(row * up.rank + i)]);
      }
    }
  }
}

}  // namespace

CudaAdapter::CudaAdapter(const AdapterWeights& weights,
                         std::shared_ptr<const AdapterTargets> targets, int64_t num_layers,
                         DType dtype)
    : targets_(std::move(targets)), rank_(weights.max_rank) {
  std::vector<AdapterMatrices> matrices(static_cast<size_t>(num_layers) * kNumLinearRoles);
  const size_t table_bytes = matrices.size() * sizeof(AdapterMatrices);
  size_t bytes = AlignMatrix(table_bytes);
  for (const AdapterLinear& linear : weights.linears) {
    bytes += DownBytes(linear, dtype) + UpBytes(linear, dtype);
  }
  memory_ = DeviceMemory(bytes);
  std::vector<std::byte> host(bytes);  // zeros
  size_t at = AlignMatrix(table_bytes);
  for (const AdapterLinear& linear : weights.linears) {
    AdapterMatrices& of_linear = matrices[CudaBatch::LinearIndex(linear.layer, linear.role)];
    of_linear.rank = DeviceRank(linear);
    PackDown(linear, dtype, host.data() + at);
    of_linear.down = memory_.data() + at;
    at += DownBytes(linear, dtype);
    PackUp(linear, dtype, host.data() + at);
    of_linear.up = memory_.data() + at;
    at += UpBytes(linear, dtype);
  }
  std::memcpy(host.data(), matrices.data(), table_bytes);
  const OwnedStream stream;
  CopyToDevice(memory_.data(), host.data(), bytes, stream.get());
  stream.Synchronize();
}

std::shared_ptr<const ModelAdapter> CudaAdapterLoader::Load(const std::string& folder) const {
  const AdapterWeights weights = ReadAdapter(folder, *targets_);
  UseDevice(device_);
  try {
    return std::make_shared<const CudaAdapter>(weights, targets_, num_layers_, dtype_);
  } catch (const OutOfDeviceMemory& error) {
    throw LoadError(folder,
                    folder + ": the adapter does not fit into the memory of the GPU, of which " +
                        std::to_string(GetDeviceInfo(device_).free_bytes) + " bytes are free (" +
                        error.what() + "); a smaller \"gpu_memory_utilization\" leaves more");
  }
}

const CudaAdapter* AdapterOf(const SequenceSlice& slice, const AdapterTargets* targets) {
  if (slice.adapter == nullptr) return nullptr;
  const auto* const adapter = dynamic_cast<const CudaAdapter*>(slice.adapter);
  MLC_CHECK(adapter != nullptr && targets != nullptr && adapter->targets() == targets)
      << "an adapter of another model";
  return adapter;
}

void AdaptersInFlight::Hold(std::span<const SequenceSlice> sequences, int64_t step) {
  for (const SequenceSlice& slice : sequences) {
    if (slice.adapter == nullptr) continue;
    const auto& adapter = dynamic_cast<const CudaAdapter&>(*slice.adapter);
    const auto found = std::ranges::find_if(
        held_, [&](const Held& held) { return held.adapter.get() == &adapter; });
    if (found == held_.end()) {
      held_.push_back({.adapter = adapter.shared_from_this(), .last_step = step});
    } else {
      found->last_step = step;
    }
  }
}

void AdaptersInFlight::Release(int64_t step) {
  std::erase_if(held_, [&](const Held& held) { return held.last_step < step; });
}

}  // namespace mlc_native
