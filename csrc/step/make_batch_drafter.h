// Makes the drafter of a draft model or head. On the thread that makes the engine.
#pragma once

#include <memory>

#include "mlc_native/detail/log.h"
#include "mlc_native/model.h"
#include "step/batch_drafter.h"

namespace mlc_native {

// `target`, whose tokens it guesses, outlives it.
std::unique_ptr<BatchDrafter> MakeBatchDrafter(std::unique_ptr<Model> model, Model& target,
                                               const BatchDrafter::Sizes& sizes, const Log& log);

}  // namespace mlc_native
