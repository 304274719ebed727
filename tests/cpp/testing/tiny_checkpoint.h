// Writes checkpoints of tiny random decoders, with the tensors that the weight map expects.
#pragma once

#include <string>

#include "testing/temp_folder.h"

namespace mlc_native::testing {

// A config.json with two layers of hidden size 32 and the given additional fields, as in
// R"("head_dim": 8)".
std::string TinyConfig(const std::string& architecture, const std::string& fields = "");

// Writes config.json and float32 weights: matrices in [-0.2, 0.2] and vectors around 1, always the
// same ones.
void WriteTinyCheckpoint(const TempFolder& folder, const std::string& config);

}  // namespace mlc_native::testing
