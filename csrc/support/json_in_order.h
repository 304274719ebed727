// The order in which a JSON text names the members of its objects, which a JsonValue does not keep:
// for schemas, where a grammar writes properties in the order in which they are declared. Pure; any
// thread.
#pragma once

#include <string_view>

#include "support/json.h"

namespace mlc_native {

// Returns a value of the shape of the text: its objects, with their members in the order of the
// text, and its arrays. Everything else in it is null. Find and At, which search in the order of
// names, are not for such a value. Requires: `text` is JSON, not too deep for the stack.
JsonValue ReadOrder(std::string_view text);

}  // namespace mlc_native
