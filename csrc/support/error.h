// The errors that callers can cause. Each names the field, the value and what is allowed.
//
// InvalidRequest: one request is wrong (others are untouched). InvalidConfig: engine settings are
// wrong. LoadError: files of a model are missing, damaged or of an unsupported kind. Python sees
// the same three types.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace mlc_native {

class CallerError : public std::runtime_error {
 public:
  CallerError(std::string field, const std::string& message)
      : std::runtime_error(message), field_(std::move(field)) {}
  // The name of the offending field, file or tensor.
  const std::string& field() const { return field_; }

 private:
  std::string field_;
};

class InvalidRequest : public CallerError {
 public:
  using CallerError::CallerError;
};

class InvalidConfig : public CallerError {
 public:
  using CallerError::CallerError;
};

class LoadError : public CallerError {
 public:
  using CallerError::CallerError;
};

// "temperature" must be in [0, inf), got -1
template <typename Value>
std::string OutOfRangeMessage(const std::string& field, const Value& value,
                              const std::string& allowed) {
  std::ostringstream out;
  out << '"' << field << "\" must be " << allowed << ", got " << value;
  return out.str();
}

}  // namespace mlc_native
