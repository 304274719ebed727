// Checks of a grammar's text, before the grammar library reads it. They keep obvious nonsense from
// starting a process, and the library from dropping a part of a JSON schema. A text that passes can
// still be hostile. Pure; any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "mlc_native/grammar.h"

namespace mlc_native {

// Checks the size, valid UTF-8 without NUL, the depth of brackets, and if the kind is JSON, that it
// is valid, names no member twice and can be enforced (schema_check.h). Throws GrammarError, which
// names the limit or the keyword.
void CheckGrammarText(const GrammarSpec& spec, const GrammarLimits& limits);

// Returns the deepest nesting of (), [] and {} outside of string literals and character classes.
int64_t BracketDepth(GrammarKind kind, std::string_view text);

}  // namespace mlc_native
