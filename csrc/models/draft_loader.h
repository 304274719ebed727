// Reads draft heads in the layouts of draft_layout.cc, and loads them on the CPU. Any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "arch/model_config.h"
#include "checkpoint/checkpoint.h"
#include "mlc_native/detail/export.h"
#include "mlc_native/model.h"

namespace mlc_native {

// Returns what the folder of a head says of it, for a target of this kind, with its tokens in the
// ids of the target. Throws LoadError (files, a folder without a head, a head for another model).
MLC_NATIVE_PRIVATE_API ModelConfig ReadDraftHead(const Checkpoint& checkpoint,
                                                 const ModelSource& source,
                                                 const ModelConfig& target);

// Loads the head of a folder for source.target; source.path is the folder of the head, or that of
// the target where the head is in it. A head without embeddings or an lm_head reads those of the
// target, whose memory then stays. Throws as ReadDraftHead does, and InvalidConfig (settings, a
// target that is not a decoder on the CPU).
std::unique_ptr<Model> LoadDraftHead(const ModelSource& source);

// Returns the mode of the draft head in a folder; nullopt if there is none, or no such folder.
// Throws LoadError for damaged files.
MLC_NATIVE_PRIVATE_API std::optional<SpeculativeMode> DraftHeadIn(const std::string& folder);
// The same of the head that a model has in its own folder, and nullopt for one that cannot be run.
MLC_NATIVE_PRIVATE_API std::optional<SpeculativeMode> OwnDraftHeadIn(const std::string& folder);

}  // namespace mlc_native
