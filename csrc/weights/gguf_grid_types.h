// The types of GGUF's blocks whose values are of grids, lists of the patterns of neighbouring
// weights that there are (IQ1, IQ2, IQ3), those with three values (TQ), and NVFP4. Pure; any
// thread.
#pragma once

#include <span>

#include "weights/gguf_block_type.h"

namespace mlc_native::gguf {

std::span<const BlockType> GridTypes();

}  // namespace mlc_native::gguf
