// CheckValue: the errors of the ops. torch turns std::invalid_argument into Python's ValueError.
// Any thread.
#pragma once

#include <concepts>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>

#include "torch_ops/tensor.h"

namespace mlc_native::ops {

// Formats a part of a message: 3, 0.5, Float, cuda:0, [2, 8].
template <std::convertible_to<std::string_view> T>
std::string Text(const T& text) {
  return std::string(std::string_view(text));
}
template <std::integral T>
std::string Text(T value) {
  return std::to_string(value);
}
std::string Text(double value);
std::string Text(ScalarType dtype);
std::string Text(const Device& device);
std::string Text(Sizes sizes);
std::string Text(std::initializer_list<ScalarType> dtypes);

// Throws std::invalid_argument with the parts as its message unless `holds`.
template <typename... Parts>
void CheckValue(bool holds, const Parts&... parts) {
  if (holds) return;
  std::string message;
  (message.append(Text(parts)), ...);
  throw std::invalid_argument(message);
}

}  // namespace mlc_native::ops
