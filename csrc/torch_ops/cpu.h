// Parts that the CPU's ops share: kernels/kernels.h on a thread pool with torch's number of
// threads. Activations are float32.
#pragma once

#include <unistd.h>

#include <memory>
#include <mutex>
#include <optional>

#include "kernels/kernels.h"
#include "torch_ops/arguments.h"

namespace mlc_native::ops {

// Ops have no owner, unlike engines, so they share one pool and run one at a time. The pool starts
// with the first op and follows torch.set_num_threads. A process that was forked makes its own: the
// threads of the other one exist there only, and its mutex may be locked for ever.
class CpuRunner {
 public:
  // Never destroyed, because that waits for the threads, which may be another process's.
  static CpuRunner& Shared();

  template <typename F>
  void Run(const F& kernel) {
    const std::scoped_lock lock(mutex_);
    const auto num_threads = static_cast<int>(torch::stable::get_num_threads());
    if (pool_ == nullptr || pool_->num_threads() != num_threads) {
      pool_ = std::make_unique<ThreadPool>(num_threads);
    }
    kernel(kernels::Cpu{.isa = &kernels::SelectCpuKernels(), .pool = pool_.get()});
  }

 private:
  const pid_t process_ = getpid();
  std::mutex mutex_;
  std::unique_ptr<ThreadPool> pool_;
};

template <typename F>
void Run(const F& kernel) {
  CpuRunner::Shared().Run(kernel);
}

// Of weights [n, k] that are packed into uint8 [n, bytes of a row], or [experts, n, bytes of a
// row]: the bytes are rounded up, because panels do not consist of rows, and so that the matrix of
// every expert is aligned.
int64_t PackedRowBytes(const kernels::CpuKernels& isa, kernels::WeightFormat format, int64_t n,
                       int64_t k, bool of_experts);

// Returns the rows of x, which is float32.
Rows Floats(const char* name, const Tensor& x);
inline const float* FloatsOf(const std::optional<Rows>& rows) {
  return rows ? rows->data<float>() : nullptr;
}

}  // namespace mlc_native::ops
