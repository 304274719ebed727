// The tensors of a GGUF file under the names that transformers gives them. A file may be the first
// of several parts. Any thread.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/tensor_file.h"

namespace mlc_native {

// Throws LoadError: damaged, a family that is not supported, a part that is missing or of another
// model.
std::vector<TensorFile> ReadGguf(const std::string& path);

}  // namespace mlc_native
