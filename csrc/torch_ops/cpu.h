// What the CPU's ops share: kernels/kernels.h on a thread pool of torch's number of threads.
// Activations are float32.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <optional>

#include "kernels/kernels.h"
#include "torch_ops/arguments.h"

namespace mlc_native::ops {

// An engine owns its pool; ops belong to nobody, so they share one and run one at a time. It starts
// with the first op and follows torch.set_num_threads.
class CpuRunner {
 public:
  static CpuRunner& Shared();

  template <typename F>
  void Run(const F& kernel) {
    const std::scoped_lock lock(mutex_);
    if (pool_ == nullptr || pool_->num_threads() != at::get_num_threads()) {
      pool_ = std::make_unique<ThreadPool>(at::get_num_threads());
    }
    kernel(kernels::Cpu{.isa = &kernels::SelectCpuKernels(), .pool = pool_.get()});
  }

 private:
  std::mutex mutex_;
  std::unique_ptr<ThreadPool> pool_;
};

template <typename F>
void Run(const F& kernel) {
  CpuRunner::Shared().Run(kernel);
}

// Rows of x, which is float32.
Rows Floats(const char* name, const at::Tensor& x);
inline const float* FloatsOf(const std::optional<Rows>& rows) {
  return rows ? rows->data<float>() : nullptr;
}

at::Tensor Bytes(size_t bytes);  // uninitialized, aligned for kernels

}  // namespace mlc_native::ops
