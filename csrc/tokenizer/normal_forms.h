// The normalization forms of Unicode (UAX 15). Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mlc_native {

enum class NormalForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };

// Requires: the text is valid UTF-8. O(n log n) for n marks in a row, else O(n).
std::string Normalized(std::string_view text, NormalForm form);

}  // namespace mlc_native
