// Checks of a grammar's text that cost one pass and no recursion, before anything else reads it.
// They keep obvious nonsense from starting a process; what passes can still be hostile. Pure; any
// thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "grammar/grammar.h"

namespace mlc_native {

// Throws GrammarError naming the limit: size, valid UTF-8 without NUL, valid JSON where the kind is
// JSON, depth of brackets.
void CheckGrammarText(const GrammarSpec& spec, const GrammarLimits& limits);

// The deepest nesting of (), [] and {} outside of string literals and character classes.
int64_t BracketDepth(GrammarKind kind, std::string_view text);

}  // namespace mlc_native
