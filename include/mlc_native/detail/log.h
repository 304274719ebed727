// Log: where an engine reports what no call returns: a step that failed, a weight cache that cannot
// be used.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "mlc_native/detail/export.h"

namespace mlc_native {

enum class LogLevel : int32_t { kOff = 0, kError = 1, kWarning = 2, kInfo = 3 };

struct MLC_NATIVE_API Log {
  // Called with each message, which has no newline at its end, on the thread that has something to
  // report, so on several at a time. No lock is held. It must not call the engine; an exception
  // that it throws is lost. Empty: a message is a line on stderr.
  std::function<void(LogLevel level, std::string_view message)> function{};
  // Messages that are less severe are dropped.
  LogLevel level = LogLevel::kWarning;

  void Write(LogLevel severity, std::string_view message) const noexcept;
};

}  // namespace mlc_native
