// What an engine allocates for its models: pages, slots of states, and the drafter of a draft model
// or head. On the thread that makes the engine.
#pragma once

#include <cstdint>
#include <memory>

#include "engine_parts.h"
#include "step/batch_drafter.h"

namespace mlc_native {

// Slots of states; 0 for a model without recurrent layers.
int64_t NumSlots(const Model& model, const EngineConfig& config);

// The parts, whose model has its memory now. Throws InvalidConfig if there is not enough.
EngineParts Allocated(EngineParts loaded);

// Takes the draft model or head of the parts; null if there is none. It has as many pages and slots
// as the model, so what the model has room for never lacks guesses for long.
std::unique_ptr<BatchDrafter> MakeBatchDrafter(EngineParts* loaded, const Log& log);

}  // namespace mlc_native
