// Loads draft heads on the CPU, in the layouts of draft_layout.cc. Any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "mlc_native/detail/export.h"
#include "mlc_native/model.h"

namespace mlc_native {

// Loads the head of a folder for `target`; source.path is the folder of the head, or that of the
// target where the head is in it. A head without embeddings or an lm_head reads those of the
// target, whose memory then stays. Throws LoadError (files, a folder without a head, a head for
// another model), InvalidConfig (settings, a target that is not a decoder on the CPU).
MLC_NATIVE_PRIVATE_API std::unique_ptr<Model> LoadDraftHead(const ModelSource& source,
                                                            const Model& target);

// Returns the mode of the draft head in a folder; nullopt if there is none, or no such folder.
// Throws LoadError for damaged files.
MLC_NATIVE_PRIVATE_API std::optional<SpeculativeMode> DraftHeadIn(const std::string& folder);

}  // namespace mlc_native
