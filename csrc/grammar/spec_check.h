// Checks of a grammar's text that need one pass and no recursion, before anything else reads it.
// They keep obvious nonsense from starting a process. A text that passes can still be hostile.
// Pure; any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "grammar/grammar.h"

namespace mlc_native {

// Checks the size, valid UTF-8 without NUL, valid JSON if the kind is JSON, and the depth of
// brackets. Throws GrammarError, which names the limit.
void CheckGrammarText(const GrammarSpec& spec, const GrammarLimits& limits);

// Returns the deepest nesting of (), [] and {} outside of string literals and character classes.
int64_t BracketDepth(GrammarKind kind, std::string_view text);

}  // namespace mlc_native
