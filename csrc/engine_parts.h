// EngineParts: what an engine is made of. Loading reads files, checks the settings and resolves
// those that depend on the model and on free memory. Any thread.
#pragma once

#include <memory>
#include <string>

#include "mlc_native/config.h"
#include "mlc_native/data.h"
#include "mlc_native/engine.h"
#include "mlc_native/model.h"
#include "mlc_native/tokenizer.h"

namespace mlc_native {

struct EngineParts {
  std::unique_ptr<Model> model;
  std::unique_ptr<Model> draft_model{};  // or draft head; null if the mode has none
  EngineConfig config;                   // resolved
  std::string length_reason{};           // ExplainLongestSequence
  ModelDefaults defaults;
  std::shared_ptr<const TokenTable> token_table;  // may be null
};

// Loads the models that the config names on the options' device and completes the config. Throws
// InvalidConfig, LoadError.
EngineParts LoadParts(const EngineConfig& config, const EngineOptions& options);

// Slots of states; 0 for a model without recurrent layers.
int64_t NumSlots(const Model& model, const EngineConfig& config);

// The parts, whose model has its memory now. Throws InvalidConfig if there is not enough.
EngineParts Allocated(EngineParts loaded);

// Throws InvalidConfig unless an engine can run with this config, which must be resolved.
void CheckResolved(const EngineConfig& config);

// Returns the number of pages that hold max_total_sequence_length tokens. Requires: resolved.
int64_t NumPages(const EngineConfig& config);

// Returns the path of the folder's tokenizer.json; empty if there is none.
std::string TokenizerJson(const std::string& model_path);

}  // namespace mlc_native
