// Reads a .safetensors file: 8 bytes of header length, a JSON header, tensor data without holes.
//
// Every field is checked against the file before it is used. A damaged or hostile file throws
// LoadError, which names the file and the tensor. Reading a header takes time and memory in
// proportion to its size, which is limited. Any thread.
#pragma once

#include <string>

#include "checkpoint/tensor_file.h"

namespace mlc_native {

// Throws LoadError.
TensorFile ReadSafetensors(const std::string& path);

}  // namespace mlc_native
