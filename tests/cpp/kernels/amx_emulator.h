// Runs the instructions of AMX that csrc/kernels/cpu/amx_tiles.h takes on processors that lack
// them: a handler of SIGILL decodes the instruction, does what Intel's manual says, and goes on
// behind it. So the tests run the code that ships. Each thread has tiles of its own. Where a
// processor would raise an exception, for example without ldtilecfg, the process ends.
#pragma once

#if defined(__x86_64__)

namespace mlc_native::kernels {

// Installs the handler, once. Any thread. Requires: the processor lacks AMX, or the process has no
// permission to use it.
void EmulateAmx();

}  // namespace mlc_native::kernels

#endif
