// A Python callable(done_bytes, total_bytes) as LoadProgress. A raising callable ends the load with
// its exception.
#pragma once

#include <nanobind/nanobind.h>

#include "models/model.h"

namespace mlc_native::bindings {

// None gives an empty function. Lives as long as the call that loads; may be called without the
// GIL.
LoadProgress WrapLoadProgress(nanobind::object callable);

}  // namespace mlc_native::bindings
