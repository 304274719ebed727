#include "support/companion.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

namespace mlc_native {

std::optional<std::string> EnvironmentValue(const char* variable) {
  const char* value = std::getenv(variable);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::string CompanionPath(const char* file) {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&CompanionPath), &info) == 0) return file;
  return (std::filesystem::path(info.dli_fname).parent_path() / file).string();
}

}  // namespace mlc_native
