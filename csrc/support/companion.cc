#include "support/companion.h"

#include <dlfcn.h>
#include <limits.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string_view>

namespace mlc_native {
namespace {

char library_folder[2 * PATH_MAX] = "";  // with a slash at its end; "" if its path names none

// When the library is loaded, since its path may begin in the current folder, which the host may
// leave.
[[gnu::constructor]] void FindLibraryFolder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&FindLibraryFolder), &info) == 0) return;
  const std::string_view path = info.dli_fname;
  const size_t length = path.rfind('/') + 1;
  if (length == 0 || length >= PATH_MAX) return;
  size_t begin = 0;
  if (path.front() != '/' && getcwd(library_folder, PATH_MAX - 1) != nullptr) {
    begin = std::strlen(library_folder);
    library_folder[begin++] = '/';
  }
  library_folder[begin + path.copy(library_folder + begin, length)] = '\0';
}

}  // namespace

std::optional<std::string> EnvironmentValue(const char* variable) {
  const char* value = std::getenv(variable);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::string CompanionPath(const char* file) { return std::string(library_folder) + file; }

}  // namespace mlc_native
