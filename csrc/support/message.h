// Values as text, as in the C locale whichever the host has. <sstream> would cost a third of a
// second in every file that checks something, since check.h and error.h are everywhere.
#pragma once

#include <charconv>
#include <string>
#include <string_view>
#include <type_traits>

namespace mlc_native {

// Appends what std::ostream would print by default: numbers of up to six digits, bools as 0 and 1.
template <typename T>
void AppendTo(std::string* text, const T& value) {
  if constexpr (std::is_same_v<T, char>) {
    text->push_back(value);
  } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    text->append(std::string_view(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    char digits[32];
    text->append(digits, std::to_chars(digits, digits + sizeof(digits), static_cast<double>(value),
                                       std::chars_format::general, 6)
                             .ptr);
  } else {
    static_assert(std::is_integral_v<T> && (sizeof(T) > 1 || std::is_same_v<T, bool>));
    text->append(std::to_string(value));
  }
}

}  // namespace mlc_native
