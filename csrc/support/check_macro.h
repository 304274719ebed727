// MLC_CHECK(condition) << "context" (check.h), without a header of the standard library that takes
// time: nvcc parses what a .cu includes four times for each architecture. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "mlc_native/detail/export.h"

namespace mlc_native::detail {

// The text of a failed check: numbers of up to six digits, bools as 0 and 1.
class MLC_NATIVE_PRIVATE_API CheckMessage {
 public:
  CheckMessage(const char* condition, const char* file, int line);
  CheckMessage(const CheckMessage&) = delete;
  CheckMessage& operator=(const CheckMessage&) = delete;
  ~CheckMessage();

  template <typename T>
  CheckMessage& operator<<(const T& value) {
    if constexpr (std::is_same_v<T, char>) {
      AddText(&value, 1);
    } else if constexpr (std::is_floating_point_v<T>) {
      AddReal(static_cast<double>(value));
    } else if constexpr (requires { value.size(); }) {
      AddText(value.data(), value.size());
    } else if constexpr (std::is_convertible_v<const T&, const char*>) {
      AddText(value);
    } else {
      static_assert(std::is_integral_v<T> && (sizeof(T) > 1 || std::is_same_v<T, bool>));
      if constexpr (std::is_signed_v<T>) {
        AddInteger(value);
      } else {
        AddCount(value);
      }
    }
    return *this;
  }

  [[noreturn]] void Throw() const;  // InternalError

 private:
  struct Text;

  void AddText(const char* text);
  void AddText(const char* text, size_t size);
  void AddInteger(int64_t value);
  void AddCount(uint64_t value);
  void AddReal(double value);

  Text* text_;  // owned
};

// `&` binds weaker than `<<`, so the whole message is built before it is thrown.
struct CheckThrower {
  [[noreturn]] void operator&(const CheckMessage& message) const { message.Throw(); }
};

}  // namespace mlc_native::detail

#define MLC_CHECK(condition)               \
  if (condition) [[likely]] {              \
  } else /* NOLINT(readability/braces) */  \
    ::mlc_native::detail::CheckThrower() & \
        ::mlc_native::detail::CheckMessage(#condition, __FILE__, __LINE__)
