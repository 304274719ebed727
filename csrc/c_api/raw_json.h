// Members of a JSON object as the text that they are, for what keeps the order of a text: messages,
// tools and schemas. Views into the text. Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mlc_native::c_api {

using RawMembers = std::vector<std::pair<std::string, std::string_view>>;

// The members in the order of the text. Requires: the text is a JSON object.
RawMembers ReadRawMembers(std::string_view object);
// The text of the last member of that name; "null" when there is none.
std::string_view FindRaw(const RawMembers& members, std::string_view name);
// Requires: the text is a JSON array.
std::vector<std::string_view> ReadRawItems(std::string_view array);

}  // namespace mlc_native::c_api
