// The weights of a CudaDecoder in one block of device memory, from a plan. Packed by the host a few
// megabytes at a time while the part before is copied, so that the host never holds the model. Made
// on the loading thread; immutable.
#pragma once

#include "models/cuda/decoder.h"
#include "models/model.h"
#include "support/thread_pool.h"
#include "weights/weight_plan.h"

namespace mlc_native {

class DeviceWeights {
 public:
  // Onto the current device. `plan` was made with table_of_floats. Throws OutOfDeviceMemory.
  DeviceWeights(const WeightPlan& plan, ThreadPool& pool, const LoadProgress& progress);

  // Views into the memory; without ropes, whose length is not the weights' business.
  const CudaDecoderWeights& view() const { return view_; }
  int64_t bytes() const { return static_cast<int64_t>(memory_.size()); }

 private:
  kernels::cuda::DeviceMemory memory_;
  CudaDecoderWeights view_;
};

}  // namespace mlc_native
