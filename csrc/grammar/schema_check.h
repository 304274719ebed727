// Refuses the JSON schemas of which the grammar library (xgrammar 0.2) would drop a part: it looks
// at one keyword of each schema ("$ref" before "const", "enum", "anyOf", "oneOf", "allOf" and
// "type") and at few others. Without this check, an answer could break its schema. Annotations,
// unknown keywords and keywords that cannot matter for the type are accepted.
//
// Pure; any thread. Linear in the schema, except for the pairs of branches of a "oneOf".
#pragma once

#include "support/json.h"

namespace mlc_native {

// Throws GrammarError, which names the keyword by JSON pointer. `strict`: see GrammarSpec.
void CheckSchemaIsEnforced(const JsonValue& schema, bool strict);

// The same for every schema in a structural tag.
void CheckTagIsEnforced(const JsonValue& tag);

}  // namespace mlc_native
