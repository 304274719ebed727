// Joins the outputs of a request that were queued while Python was busy, before the GIL is taken.
// The time under the GIL depends on the number of outputs, not of tokens.
#pragma once

#include <vector>

#include "mlc_native/data.h"

namespace mlc_native::bindings {

// Joins the deltas of each request into one output, at the place of the first one. Final outputs
// and outputs with an error stay separate. The order within each request is kept. What there is no
// memory to join stays separate.
std::vector<RequestStreamOutput> MergeOutputs(std::vector<RequestStreamOutput> outputs) noexcept;

}  // namespace mlc_native::bindings
