// Compiles grammars with xgrammar, on the calling thread.
//
// JSON is compiled without free whitespace: members are separated by ", " and ": ", as Python's
// json.dumps writes them and as most training text has them. With free whitespace a model can print
// blanks until its budget is spent, and no text between a key and its value is forced.
#pragma once

#include <tvm/ffi/any.h>

#include <cstdint>
#include <string>

#include "grammar/xgrammar/tokens.h"

namespace mlc_native {

// Whether its grammar is compiled for json_tokenizer_info.
bool IsJson(GrammarKind kind);

// Returns xgrammar's CompiledGrammar. Throws GrammarError.
tvm::ffi::Any CompileWithXGrammar(const GrammarTokens& tokens, const GrammarSpec& spec);
int64_t CompiledBytes(const XGrammar& library, const tvm::ffi::Any& compiled);

// Returns xgrammar's JSON of the grammar as rules and expressions, parsed but not compiled.
std::string SerializeGrammar(const XGrammar& library, const GrammarSpec& spec);

}  // namespace mlc_native
