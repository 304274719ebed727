// Processor: what is known of a processor beyond the instructions that it has. Pure functions; any
// thread.
#pragma once

#include <string>

#include "mlc_native/detail/export.h"

namespace mlc_native::kernels {

// As an x86-64 processor describes itself; empty and 0 of others.
struct Processor {
  std::string vendor;
  unsigned int family = 0;
  unsigned int model = 0;
};

MLC_NATIVE_PRIVATE_API Processor ThisProcessor();

// Whether the instructions of AVX-512 for pairs of bfloat16 multiply at half the rate of those for
// floats. So they do in Intel's processors that have AMX for such products; a virtual machine may
// hide that.
MLC_NATIVE_PRIVATE_API bool MultipliesPairsSlowly(const Processor& processor);

}  // namespace mlc_native::kernels
