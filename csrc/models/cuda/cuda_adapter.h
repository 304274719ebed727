// CudaAdapter is an adapter on a CUDA device, in the layout of AddAdapters, and CudaAdapterLoader
// makes them. AdaptersInFlight holds those that steps read which have not been collected.
//
// A CudaAdapter is immutable; any thread. Its memory is free when its last owner lets go of it, on
// that owner's thread: a request, the list of loaded adapters, or AdaptersInFlight, so that no step
// reads memory that is free. Loading copies on a stream of its own and waits for it; it may happen
// while another thread computes on the device or records a graph, which captures that thread alone.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/adapters.h"
#include "kernels/cuda/runtime.h"
#include "mlc_native/model.h"
#include "weights/adapter_weights.h"

namespace mlc_native {

class CudaAdapter : public ModelAdapter, public std::enable_shared_from_this<CudaAdapter> {
 public:
  // On the current device. `targets`: of the model that it is for. Throws OutOfDeviceMemory.
  CudaAdapter(const AdapterWeights& weights, std::shared_ptr<const AdapterTargets> targets,
              int64_t num_layers, DType dtype);

  int64_t rank() const override { return rank_; }
  int64_t num_bytes() const override { return static_cast<int64_t>(memory_.size()); }
  const AdapterTargets* targets() const { return targets_.get(); }
  // [layers * kNumLinearRoles] on the device, by CudaBatch::LinearIndex.
  const kernels::cuda::AdapterMatrices* matrices() const {
    return reinterpret_cast<const kernels::cuda::AdapterMatrices*>(memory_.data());
  }

 private:
  const std::shared_ptr<const AdapterTargets> targets_;
  const int64_t rank_;
  kernels::cuda::DeviceMemory memory_;
};

class CudaAdapterLoader : public AdapterLoader {
 public:
  CudaAdapterLoader(std::shared_ptr<const AdapterTargets> targets, int64_t num_layers, DType dtype,
                    int device)
      : targets_(std::move(targets)), num_layers_(num_layers), dtype_(dtype), device_(device) {}

  // Makes the device current on the calling thread.
  std::shared_ptr<const ModelAdapter> Load(const std::string& folder) const override;

 private:
  const std::shared_ptr<const AdapterTargets> targets_;
  const int64_t num_layers_;
  const DType dtype_;
  const int device_;
};

// The adapter of a slice, null without one. Requires: it is one of the model with these targets.
const CudaAdapter* AdapterOf(const SequenceSlice& slice, const AdapterTargets* targets);

// Belongs to a CudaSteps; engine's thread only.
class AdaptersInFlight {
 public:
  // Holds those of a forward, whose step is `step`: the number of steps that were submitted before.
  void Hold(std::span<const SequenceSlice> sequences, int64_t step);
  // The steps before `step`, and what was queued before their ends, have run.
  void Release(int64_t step);
  size_t size() const { return held_.size(); }

 private:
  struct Held {
    std::shared_ptr<const CudaAdapter> adapter;
    int64_t last_step = 0;
  };
  std::vector<Held> held_;  // each once
};

}  // namespace mlc_native
