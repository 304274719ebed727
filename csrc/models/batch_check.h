// What a model may take for granted of a ForwardBatch; breaking it is our own bug. Pure.
#pragma once

#include "models/model.h"

namespace mlc_native {

struct BatchLimits {
  int64_t max_num_rows = 0;
  int64_t max_num_logits = 0;
  int64_t num_positions = 0;  // of a sequence
};

// Throws InternalError: sizes beyond the limits, slices with gaps or without pages. Says nothing of
// ids and pages.
void CheckBatch(const ForwardBatch& batch, const BatchLimits& limits);

}  // namespace mlc_native
