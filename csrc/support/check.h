// MLC_CHECK(condition) << "context": internal consistency checks.
//
// A failed check is a bug in this library, never an error of a caller. It throws InternalError with
// the source location and the streamed context, and never aborts the process. Any thread.
#pragma once

#include <stdexcept>
#include <string>

#include "mlc_native/detail/export.h"
#include "support/check_macro.h"

namespace mlc_native {

class MLC_NATIVE_PRIVATE_API InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace mlc_native
