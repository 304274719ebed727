// Files in the folder of libmlc_native (its plug-ins and programs), and the environment variables
// that replace them. Any thread.
#pragma once

#include <optional>
#include <string>

#include "mlc_native/detail/export.h"

namespace mlc_native {

// Returns the value of an environment variable; nullopt if it is not set or empty.
MLC_NATIVE_PRIVATE_API std::optional<std::string> EnvironmentValue(const char* variable);

// Returns the path of `file` in the folder of libmlc_native. The file may not exist.
MLC_NATIVE_PRIVATE_API std::string CompanionPath(const char* file);

}  // namespace mlc_native
