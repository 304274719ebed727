// Writes checkpoints of tiny random decoders, tensor by tensor as the weight map wants them.
#pragma once

#include <string>

#include "testing/temp_folder.h"

namespace mlc_native::testing {

// Two layers of hidden size 32; `fields` are added to config.json, as in R"("head_dim": 8)".
std::string TinyConfig(const std::string& architecture, const std::string& fields = "");

// config.json and float32 weights: matrices in [-0.2, 0.2], vectors around 1, always the same.
void WriteTinyCheckpoint(const TempFolder& folder, const std::string& config);

}  // namespace mlc_native::testing
