// Compiling with xgrammar, on the calling thread.
//
// JSON is compiled without free whitespace: members are separated by ", " and ": ", as Python's
// json.dumps writes them and as models have seen most. Free whitespace lets a model print blanks
// until its budget is spent, and leaves nothing for jump-forward between a key and its value.
#pragma once

#include <tvm/ffi/any.h>

#include <cstdint>
#include <string>

#include "grammar/xgrammar/tokens.h"

namespace mlc_native {

// xgrammar's CompiledGrammar. Throws GrammarError.
tvm::ffi::Any CompileWithXGrammar(const GrammarTokens& tokens, const GrammarSpec& spec);
int64_t CompiledBytes(const XGrammar& library, const tvm::ffi::Any& compiled);

// The grammar as rules and expressions, parsed but not compiled; xgrammar's JSON for it.
std::string SerializeGrammar(const XGrammar& library, const GrammarSpec& spec);

}  // namespace mlc_native
