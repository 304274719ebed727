// ModelDevice is the device of one model. It makes the device current for calls, and marks it as
// lost after a call has failed, so that every later call fails at once with the same reason. One
// thread at a time.
#pragma once

#include <string>

#include "kernels/cuda/runtime.h"

namespace mlc_native {

class ModelDevice {
 public:
  explicit ModelDevice(int index) : index_(index) {}

  int index() const { return index_; }
  bool is_lost() const { return !lost_.empty(); }

  // Returns work(). Throws its exceptions, and DeviceError.
  template <typename Work>
  decltype(auto) Run(const Work& work) {
    if (is_lost()) throw kernels::cuda::DeviceError(lost_);
    try {
      kernels::cuda::UseDevice(index_);
      return work();
    } catch (const kernels::cuda::OutOfDeviceMemory&) {
      throw;
    } catch (const kernels::cuda::DeviceError& error) {
      lost_ = error.what();
      throw;
    }
  }

 private:
  const int index_;
  std::string lost_;  // the reason; empty: not lost
};

}  // namespace mlc_native
