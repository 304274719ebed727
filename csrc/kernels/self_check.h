// Whether the linears of one ISA give the bits of another. For instructions that were emulated in
// the tests but may not have run on the processor at hand: an ISA that takes them is chosen only if
// it passes. Any thread.
#pragma once

#include "kernels/cpu/table.h"

namespace mlc_native::kernels {

// Multiplies small matrices in each quantized format, with numbers of rows and sizes that leave
// every kind of rest. Both must have the same panel width. Takes about a millisecond.
bool MultipliesLike(const LinearKernels& tested, const LinearKernels& known);

}  // namespace mlc_native::kernels
