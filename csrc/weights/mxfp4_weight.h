// Matrices that a checkpoint stores as MXFP4: "<base>_blocks" uint8 [.., rows, columns / 32, 16],
// two codes per byte with the lower k in the lower 4 bits, and "<base>_scales" uint8 [.., rows,
// columns / 32], exponents of two with the bias 127. Pure; any thread.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "weights/weight_source.h"

namespace mlc_native {

std::string Mxfp4BlocksName(const std::string& base);

// Returns the matrix of `shape` [rows, columns]. Throws LoadError if a part is missing, or has a
// wrong shape or type; a scale that is not a number is found when its row is read.
std::unique_ptr<WeightSource> OpenMxfp4(const Checkpoint& checkpoint, const std::string& base,
                                        std::span<const int64_t> shape, const JoinedPlace& joined);

}  // namespace mlc_native
