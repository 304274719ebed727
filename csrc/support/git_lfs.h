// Recognizes the small text that stands for a large file in a repository which was cloned without
// git-lfs. Pure; any thread.
#pragma once

#include <string_view>

namespace mlc_native {

inline bool IsLfsPointer(std::string_view content) {
  return content.starts_with("version https://git-lfs.github.com/spec/");
}

inline constexpr char kIsLfsPointer[] =
    "is a git-lfs pointer instead of the file itself; run \"git lfs pull\" in the folder";

}  // namespace mlc_native
