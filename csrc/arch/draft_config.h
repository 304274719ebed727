// The numbers of a draft head, from its folder and its target. Pure; any thread.
#pragma once

#include <limits>
#include <string>

#include "arch/expert_config.h"
#include "arch/model_config.h"
#include "support/config_fields.h"

namespace mlc_native {

// Returns the layout of the draft head in a folder that has these tensors; null if there is none.
// num_layers: those of the model in the folder, 0 if it has none.
const DraftLayout* FindDraftLayout(int64_t num_layers, const HasTensor& has_tensor);
// The same; the number is in the folder's config.json. Throws LoadError.
const DraftLayout* FindDraftLayout(const std::string& folder, const HasTensor& has_tensor);

// Whether a head of this layout in the folder of its target has only parts that the heads here can
// have.
bool CanRunOwnHead(const DraftLayout& layout, const ModelConfig& target,
                   const HasTensor& has_tensor);

// Reads the config.json of a folder with a draft head for `target`. info.target_ids stays empty.
// Throws LoadError: missing or damaged, no head of a layout that is supported, numbers that do not
// fit the target.
ModelConfig ReadDraftHeadConfig(const std::string& folder, const ModelConfig& target,
                                const HasTensor& has_tensor,
                                int64_t longest = std::numeric_limits<int64_t>::max());

}  // namespace mlc_native
