// Which of the architectures that kernels are compiled for a GPU runs. Values; any thread.
#pragma once

#include <initializer_list>

namespace mlc_native::kernels::cuda {

// Whether a GPU of this compute capability (90 is 9.0) can run code for an architecture (900), as
// it is or compiled from PTX. Code for 9.0 is that of sm_90a, which no other GPU runs.
constexpr bool CanRun(int compute_capability, int architecture) {
  return architecture == 900 ? compute_capability == 90 : architecture <= 10 * compute_capability;
}

// Whether what such a GPU runs has waits for the kernel before, and clusters.
constexpr bool HasWaits(std::initializer_list<int> compiled_for, int compute_capability) {
  for (const int architecture : compiled_for) {
    if (architecture >= 900 && CanRun(compute_capability, architecture)) return true;
  }
  return false;
}

}  // namespace mlc_native::kernels::cuda
