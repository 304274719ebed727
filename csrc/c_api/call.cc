#include "c_api/call.h"

#include <cstdlib>
#include <exception>
#include <system_error>

#include "mlc_native/errors.h"
#include "support/utf8.h"

struct mlcn_error {
  int32_t code;
  std::string field;
  std::string message;
};

namespace mlc_native::c_api {
namespace {

// Without memory there is no error object; the code says all there is to say.
int32_t Report(mlcn_error** error, int32_t code, const std::string& field,
               const char* message) noexcept {
  if (error == nullptr) return code;
  try {
    *error = new mlcn_error{code, field, message};
  } catch (const std::bad_alloc&) {
    return MLCN_OUT_OF_MEMORY;
  }
  return code;
}

}  // namespace

void ThrowInvalidArgument(const char* argument, const std::string& message) {
  throw CallError(MLCN_INVALID_ARGUMENT, argument, '"' + std::string(argument) + "\" " + message);
}

std::string_view TextArgument(const char* text, size_t length, const char* name) {
  const char* begin = &Required(text, name);
  const std::string_view view(begin, length == MLCN_NUL_TERMINATED ? std::strlen(begin) : length);
  if (!IsValidUtf8(view)) ThrowInvalidArgument(name, "must be UTF-8");
  return view;
}

std::span<const int32_t> TokensArgument(const int32_t* tokens, size_t num_tokens,
                                        const char* name) {
  if (num_tokens == 0) return {};
  return {&Required(tokens, name), num_tokens};
}

char* NewText(std::string_view text) {
  char* const copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  if (!text.empty()) std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  return copy;
}

int32_t* NewTokens(std::span<const int32_t> tokens) {
  int32_t* const copy = static_cast<int32_t*>(std::malloc(tokens.size_bytes() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  if (!tokens.empty()) std::memcpy(copy, tokens.data(), tokens.size_bytes());
  return copy;
}

int32_t ReportCurrentException(mlcn_error** error) noexcept {
  try {
    throw;
  } catch (const CallError& e) {
    return Report(error, e.code(), e.field(), e.what());
  } catch (const QueueFull& e) {
    return Report(error, MLCN_QUEUE_FULL, e.field(), e.what());
  } catch (const InvalidRequest& e) {
    // The engine itself is at fault: it has exited, or has no model.
    const int32_t code = e.field() == "engine" ? MLCN_INVALID_STATE : MLCN_INVALID_REQUEST;
    return Report(error, code, e.field(), e.what());
  } catch (const InvalidConfig& e) {
    return Report(error, MLCN_INVALID_CONFIG, e.field(), e.what());
  } catch (const LoadError& e) {
    return Report(error, MLCN_LOAD_ERROR, e.field(), e.what());
  } catch (const std::bad_alloc&) {
    return Report(error, MLCN_OUT_OF_MEMORY, "", "there is not enough memory");
  } catch (const std::system_error& e) {
    // No thread could be started, say.
    const bool is_resource = e.code() == std::errc::resource_unavailable_try_again ||
                             e.code() == std::errc::not_enough_memory;
    return Report(error, is_resource ? MLCN_OUT_OF_MEMORY : MLCN_INTERNAL_ERROR, "", e.what());
  } catch (const std::exception& e) {
    return Report(error, MLCN_INTERNAL_ERROR, "", e.what());
  } catch (...) {
    return Report(error, MLCN_INTERNAL_ERROR, "", "an unknown exception");
  }
}

}  // namespace mlc_native::c_api

extern "C" {

uint32_t mlcn_abi_version(void) { return (uint32_t{MLCN_ABI_MAJOR} << 16) | MLCN_ABI_MINOR; }

const char* mlcn_version(void) { return MLC_NATIVE_VERSION; }

int32_t mlcn_error_code(const mlcn_error* error) {
  return error == nullptr ? int32_t{MLCN_OK} : error->code;
}
const char* mlcn_error_field(const mlcn_error* error) {
  return error == nullptr ? "" : error->field.c_str();
}
const char* mlcn_error_message(const mlcn_error* error) {
  return error == nullptr ? "" : error->message.c_str();
}
void mlcn_error_release(mlcn_error* error) { delete error; }

void mlcn_free(void* memory) { std::free(memory); }

}  // extern "C"
