// Implements GrammarMatcher and CompiledGrammar (mlc_native/grammar.h) with xgrammar. A matcher
// refuses tokens without bytes (for JSON also those with a control character) and ids beyond the
// table itself, because xgrammar would log each of them.
#pragma once

#include <tvm/ffi/any.h>

#include <memory>

#include "grammar/xgrammar/tokens.h"
#include "mlc_native/grammar.h"

namespace mlc_native {

struct GrammarTraits {
  bool is_json = false;  // it was compiled for json_tokenizer_info (tokens.h)
  // Otherwise (worker/forced_text.h), FindJumpForwardString finds nothing.
  bool forced_text_is_bounded = false;
};

std::shared_ptr<const CompiledGrammar> MakeCompiledGrammar(
    std::shared_ptr<const GrammarTokens> tokens, tvm::ffi::Any compiled,
    const GrammarTraits& traits);

}  // namespace mlc_native
