#include "mlc_native/detail/log.h"

#include <cstdio>

namespace mlc_native {

void Log::Write(LogLevel severity, std::string_view message) const noexcept {
  if (severity > level) return;
  if (!function) {
    std::fprintf(stderr, "[mlc_native] %.*s\n", static_cast<int>(message.size()), message.data());
    return;
  }
  try {
    function(severity, message);
  } catch (...) {  // there is nowhere else to report it
    return;
  }
}

}  // namespace mlc_native
