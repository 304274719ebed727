// Whether a JSON value is valid, as JSON Schema 2020-12 says: for the values of "const" and "enum",
// which a grammar would otherwise write whatever stands next to them.
#pragma once

#include "grammar/schema_source.h"
#include "support/json.h"

namespace mlc_native {

// "format" is an annotation. Throws GrammarError, which names the keyword, where the answer cannot
// be known: a regex that is not supported, a reference that leads nowhere, "unevaluated...".
// Requires: `schema` is a part of the source. Pure; any thread.
bool IsValidFor(const SchemaSource& source, const JsonValue& schema, const JsonValue& value);

}  // namespace mlc_native
