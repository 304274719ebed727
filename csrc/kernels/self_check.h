// Whether the linears of one ISA multiply as another's. For instructions that were emulated in the
// tests but may not have run on the processor at hand: an ISA that takes them is chosen only if it
// passes. Any thread.
#pragma once

#include "kernels/cpu/table.h"

namespace mlc_native::kernels {

// Multiplies small matrices in each format, with numbers of rows and sizes that leave every kind of
// rest. Sums of integers must have the bits of the known ISA. Those of floats must be close to its,
// and each row must have the bits that it has alone. Both must have the same panel width. Takes a
// few milliseconds.
bool MultipliesLike(const LinearKernels& tested, const LinearKernels& known);

}  // namespace mlc_native::kernels
