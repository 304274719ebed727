// JSON schemas in the form that the grammar library enforces as a whole. The values that satisfy
// the new schema satisfy the old one; what cannot be written is refused.
//
// Pure; any thread. Deep schemas need a large stack. The limits are in schema_normal.h and
// schema_write.h.
#pragma once

#include <string>

namespace mlc_native {

// Throws GrammarError, which names a keyword of the schema by JSON pointer. `strict`: see
// GrammarSpec. Requires: JSON without a name twice in one object.
std::string RewriteSchema(const std::string& schema, bool strict);

// The same for every schema in a structural tag.
std::string RewriteTag(const std::string& tag);

}  // namespace mlc_native
