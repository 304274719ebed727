// LinearObserver sees what the linears of a Transformer read, before each is computed. Called by
// the engine's thread, between the loops of the pool.
#pragma once

#include "kernels/error_feedback.h"
#include "kernels/kernels.h"

namespace mlc_native {

class LinearObserver {
 public:
  virtual ~LinearObserver() = default;

  // The rows are about to be multiplied with `weight`, of which the memory may still be written. Of
  // a mixture of experts, it is called for the experts that have rows.
  virtual void BeforeLinear(const kernels::PackedLinear& weight,
                            const kernels::InputRows& inputs) = 0;
};

}  // namespace mlc_native
