// Checks of a grammar's text, before the grammar library reads it. They keep obvious nonsense from
// starting a process, and the library from dropping a part of a JSON schema or regex. A text that
// passes can still be hostile. Pure; any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "mlc_native/grammar.h"

namespace mlc_native {

// Checks the size, valid UTF-8 without NUL, the depth of brackets, and if the kind is JSON, that it
// is valid and names no member twice. Throws GrammarError, which names the limit.
void CheckGrammarText(const GrammarSpec& spec, const GrammarLimits& limits);

// Returns the grammar with its schemas (schema_rewrite.h) and regexes in the form that the library
// enforces as a whole. Throws GrammarError, which names the keyword. Hostile schemas take long and
// need a large stack, so the helper process (trials.h) does it first. Requires: CheckGrammarText
// has passed.
GrammarSpec RewriteGrammar(const GrammarSpec& spec);

// Returns the deepest nesting of (), [] and {} outside of string literals and character classes.
int64_t BracketDepth(GrammarKind kind, std::string_view text);

}  // namespace mlc_native
