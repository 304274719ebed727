// Files that lie beside libmlc_native, its plug-ins and programs, and the environment variables
// that name others instead. Any thread.
#pragma once

#include <optional>
#include <string>

namespace mlc_native {

// nullopt also for an empty value.
std::optional<std::string> EnvironmentValue(const char* variable);

// `file` in the folder that libmlc_native was loaded from. Nobody looks whether it is there.
std::string CompanionPath(const char* file);

}  // namespace mlc_native
