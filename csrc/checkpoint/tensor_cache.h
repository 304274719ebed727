// Reads the weights of an MLC folder: tensor-cache.json (ndarray-cache.json in older ones) lists
// the tensors in params_shard_*.bin. Every field is checked against the files before it is used.
// Any thread.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/tensor_file.h"

namespace mlc_native {

// Throws LoadError.
std::vector<TensorFile> ReadTensorCache(const std::string& folder);

}  // namespace mlc_native
