// Finds the integers, scales, zero points and groups of a matrix in each format of quantized
// checkpoints. Checks every shape and type before it reads anything. Pure; any thread.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "checkpoint/quantization.h"
#include "weights/weight_source.h"

namespace mlc_native {

// Returns the name of the tensor with the integers of the matrix "<base>.weight".
std::string QuantizedTensorName(QuantizedFormat format, const std::string& base);

// Returns the matrix "<base>.weight" of `shape`. Throws LoadError if a part is missing, or has a
// wrong shape, type or content.
std::unique_ptr<WeightSource> OpenQuantized(const Quantization& quantization,
                                            const Checkpoint& checkpoint, const std::string& base,
                                            std::span<const int64_t> shape);

}  // namespace mlc_native
