// Joins the outputs of a request that have queued up while Python was busy, before the GIL is
// taken: what costs time under the GIL is the number of outputs, not of tokens.
#pragma once

#include <vector>

#include "config/data.h"

namespace mlc_native::bindings {

// Deltas of one request become one output, in its place of the first of them. Final outputs and
// outputs with an error stay as they are. The order within each request is kept.
std::vector<RequestStreamOutput> MergeOutputs(std::vector<RequestStreamOutput> outputs);

}  // namespace mlc_native::bindings
