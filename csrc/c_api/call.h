// What every function of the C API does: it runs its body, and turns what the body throws into a
// code and an mlcn_error. Any thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "mlc_native/mlc_native.h"
#include "support/float_environment.h"

namespace mlc_native::c_api {

// The call itself is wrong: its code is MLCN_INVALID_ARGUMENT or MLCN_INVALID_STATE.
class CallError : public std::runtime_error {
 public:
  CallError(int32_t code, std::string field, const std::string& message)
      : std::runtime_error(message), code_(code), field_(std::move(field)) {}
  int32_t code() const { return code_; }
  const std::string& field() const { return field_; }

 private:
  int32_t code_;
  std::string field_;
};

[[noreturn]] void ThrowInvalidArgument(const char* argument, const std::string& message);

// The argument, which is not null.
template <typename T>
T& Required(T* argument, const char* name) {
  if (argument == nullptr) ThrowInvalidArgument(name, "must not be NULL");
  return *argument;
}

// A text with its length, or with MLCN_NUL_TERMINATED. Throws CallError unless it is UTF-8.
std::string_view TextArgument(const char* text, size_t length, const char* name);
inline std::string_view TextArgument(const char* text, const char* name) {
  return TextArgument(text, MLCN_NUL_TERMINATED, name);
}
std::span<const int32_t> TokensArgument(const int32_t* tokens, size_t num_tokens, const char* name);

// The caller's struct, with defaults for the members that its version does not have. `smallest` is
// the size of the first version. Null: `defaults`.
template <typename Struct>
Struct StructArgument(const Struct* given, Struct defaults, uint32_t smallest, const char* name) {
  static_assert(std::is_trivially_copyable_v<Struct>);
  if (given == nullptr) return defaults;
  if (given->size < smallest || given->size > sizeof(Struct)) {
    ThrowInvalidArgument(name, "has the size " + std::to_string(given->size) + "; allowed are " +
                                   std::to_string(smallest) + " to " +
                                   std::to_string(sizeof(Struct)) +
                                   ": set it with the macro that "
                                   "ends with _INIT");
  }
  std::memcpy(&defaults, given, given->size);
  return defaults;
}

// Copies for the caller, who frees them with mlcn_free.
char* NewText(std::string_view text);
int32_t* NewTokens(std::span<const int32_t> tokens);

// The error object and the code of the exception that is being handled.
int32_t ReportCurrentException(mlcn_error** error) noexcept;

template <typename Body>
int32_t Call(mlcn_error** error, Body body) noexcept {
  if (error != nullptr) *error = nullptr;
  const DefaultFloatEnvironment floats;
  try {
    body();
    return MLCN_OK;
  } catch (...) {
    return ReportCurrentException(error);
  }
}

}  // namespace mlc_native::c_api
