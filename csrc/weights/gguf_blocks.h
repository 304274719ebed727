// Matrices of a GGUF file that are stored in blocks: small integers with the scales of their block.
// Pure; any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "weights/weight_source.h"

namespace mlc_native {

bool IsGgufBlockType(std::string_view dtype_name);
std::string GgufBlockTypeList();  // "Q8_0, ..."

// Requires: IsGgufBlockType of the tensor's type.
std::unique_ptr<WeightSource> OpenGgufBlocks(const Checkpoint::Entry& entry);

}  // namespace mlc_native
