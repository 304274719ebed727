// Wraps a Python callable(done_bytes, total_bytes) as LoadProgress. If the callable raises, the
// load ends with its exception.
#pragma once

#include <nanobind/nanobind.h>

#include "mlc_native/model.h"

namespace mlc_native::bindings {

// Returns an empty function for None. The result is valid during the call that loads, and may be
// called without the GIL.
LoadProgress WrapLoadProgress(nanobind::object callable);

}  // namespace mlc_native::bindings
