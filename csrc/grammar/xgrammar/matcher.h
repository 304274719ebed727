// Implements GrammarMatcher and CompiledGrammar (mlc_native/grammar.h) with xgrammar. A matcher
// refuses tokens without bytes and ids beyond the table itself, because xgrammar would log each of
// them.
#pragma once

#include <tvm/ffi/any.h>

#include <memory>

#include "grammar/xgrammar/tokens.h"
#include "mlc_native/grammar.h"

namespace mlc_native {

// Unless forced_text_is_bounded (worker/forced_text.h), FindJumpForwardString finds nothing.
std::shared_ptr<const CompiledGrammar> MakeCompiledGrammar(
    std::shared_ptr<const GrammarTokens> tokens, tvm::ffi::Any compiled,
    bool forced_text_is_bounded);

}  // namespace mlc_native
