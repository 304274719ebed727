// Where each format of quantized checkpoints keeps integers, scales, zero points and groups of a
// matrix. Every shape and type is checked before anything is read. Pure; any thread.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "checkpoint/quantization.h"
#include "weights/weight_source.h"

namespace mlc_native {

// The tensor of the integers of the matrix "<base>.weight".
std::string QuantizedTensorName(QuantizedFormat format, const std::string& base);

// The matrix "<base>.weight" of `shape`. Throws LoadError: a part is missing, or of a wrong shape,
// type or content.
std::unique_ptr<WeightSource> OpenQuantized(const Quantization& quantization,
                                            const Checkpoint& checkpoint, const std::string& base,
                                            std::span<const int64_t> shape);

}  // namespace mlc_native
