// MLC_CHECK(condition) << "context": internal consistency checks.
//
// A failed check is a bug in this library, never an error of a caller. It throws InternalError with
// the source location and the streamed context, and never aborts the process. Any thread.
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>

#include "mlc_native/detail/export.h"
#include "support/message.h"

namespace mlc_native {

class MLC_NATIVE_PRIVATE_API InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

namespace detail {

class CheckMessage {
 public:
  CheckMessage(const char* condition, std::source_location where)
      : text_(std::string(where.file_name()) + ':' + std::to_string(where.line()) +
              ": check failed: " + condition + ' ') {}
  template <typename T>
  CheckMessage& operator<<(const T& value) {
    AppendTo(&text_, value);
    return *this;
  }
  const std::string& str() const { return text_; }

 private:
  std::string text_;
};

// `&` binds weaker than `<<`, so the whole message is built before it is thrown.
struct CheckThrower {
  [[noreturn]] void operator&(const CheckMessage& message) const {
    throw InternalError(message.str());
  }
};

}  // namespace detail
}  // namespace mlc_native

#define MLC_CHECK(condition)               \
  if (condition) [[likely]] {              \
  } else /* NOLINT(readability/braces) */  \
    ::mlc_native::detail::CheckThrower() & \
        ::mlc_native::detail::CheckMessage(#condition, std::source_location::current())
