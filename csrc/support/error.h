// The errors of the public API, and the text of those about values.
#pragma once

#include <string>

#include "mlc_native/errors.h"
#include "support/message.h"

namespace mlc_native {

// "temperature" must be in [0, inf), got -1
template <typename Value>
std::string OutOfRangeMessage(const std::string& field, const Value& value,
                              const std::string& allowed) {
  std::string text = '"' + field + "\" must be " + allowed + ", got ";
  AppendTo(&text, value);
  return text;
}

}  // namespace mlc_native
