// Checks the properties of a ForwardBatch that models rely on. A violation is a bug of the engine.
// Pure; any thread.
#pragma once

#include "mlc_native/detail/export.h"
#include "mlc_native/model.h"

namespace mlc_native {

struct BatchLimits {
  int64_t max_num_rows = 0;
  int64_t max_num_logits = 0;
  int64_t num_positions = 0;  // of a sequence
  int64_t num_streams = 0;    // of hidden states; 0: the model gives none
  int64_t hidden_size = 0;
  int64_t draft_input_size = 0;  // of a draft head's row: what it reads of its target; 0: no head
};

// Throws InternalError for sizes beyond the limits, for slices with gaps or without pages, for rows
// in place of tokens that are not there, and for hidden states that the model lacks. Does not check
// ids and page numbers.
MLC_NATIVE_PRIVATE_API void CheckBatch(const ForwardBatch& batch, const BatchLimits& limits);

}  // namespace mlc_native
