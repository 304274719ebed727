// Writes checkpoints of tiny random decoders, with the tensors that the weight map expects.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "testing/temp_folder.h"
#include "weights/weight_map.h"

namespace mlc_native::testing {

// A config.json with two layers of hidden size 32 and the given additional fields, as in
// R"("head_dim": 8)". What the family requires besides is added.
std::string TinyConfig(const std::string& architecture, const std::string& fields = "");

// Writes config.json and float32 weights: matrices in [-0.2, 0.2] and vectors around 1, always the
// same ones.
// `edit`, if there is one, may change the values of each tensor before they are written.
using EditTensor = std::function<void(const std::string& name, std::vector<float>* values)>;
void WriteTinyCheckpoint(const TempFolder& folder, const std::string& config,
                         const EditTensor& edit = {});

// The parameters that such a checkpoint fills.
WeightMap TinyMap(const ModelConfig& config);

// Writes a draft head for such a decoder of two layers, with the decoder's embeddings and head.
// `layer` is the prefix of its layer, as draft_layout.cc has it; a config.json for EAGLE also gets
// the fields.
void WriteTinyDraftHead(const TempFolder& folder, const std::string& target_folder,
                        const std::string& layer, const std::string& fields = "");

}  // namespace mlc_native::testing
