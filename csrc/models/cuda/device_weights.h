// DeviceWeights holds the weights of a CudaDecoder in one block of device memory. The host packs a
// few megabytes at a time while the previous part is copied, so it never holds the whole model.
// Made on the loading thread; immutable.
#pragma once

#include "mlc_native/model.h"
#include "models/cuda/decoder.h"
#include "support/thread_pool.h"
#include "weights/weight_plan.h"

namespace mlc_native {

class DeviceWeights {
 public:
  // Copies to the current device. Requires: `plan` was made with table_of_floats. Throws
  // OutOfDeviceMemory.
  DeviceWeights(const WeightPlan& plan, ThreadPool& pool, const LoadProgress& progress);

  // Returns views into the memory, without ropes, whose length does not depend on the weights.
  const CudaDecoderWeights& view() const { return view_; }
  const ModelDescription& description() const { return description_; }
  int64_t bytes() const { return static_cast<int64_t>(memory_.size()); }

 private:
  kernels::cuda::DeviceMemory memory_;
  CudaDecoderWeights view_;
  ModelDescription description_;  // without what the device adds
};

}  // namespace mlc_native
