#include "mlc_native/data.h"

namespace mlc_native {

const char* ToString(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAbort:
      return "abort";
    case FinishReason::kError:
      return "error";
    case FinishReason::kTimeout:
      return "timeout";
  }
  return "invalid";
}

}  // namespace mlc_native
