// Bytes as text in base64 (RFC 4648). Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace mlc_native {

std::string ToBase64(std::string_view bytes);
// nullopt for what is no base64. The "=" at the end may be left out.
std::optional<std::string> FromBase64(std::string_view text);

}  // namespace mlc_native
