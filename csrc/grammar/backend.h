// GrammarBackend is the grammar library bound to one vocabulary. The plug-in libmlc_native_grammar
// implements it on top of xgrammar (csrc/grammar/xgrammar).
//
// Thread-safe. Compiled grammars stay valid after the backend is destroyed. Texts are those
// of RewriteGrammar (spec_check.h).
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "mlc_native/grammar.h"

namespace mlc_native {

// The text is not a grammar, or the library refuses it. what() is written for the caller.
class GrammarError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class GrammarBackend {
 public:
  virtual ~GrammarBackend() = default;
  // Compiles on this thread and without limits. Requires: the grammar has passed a trial (trials.h)
  // or is known to be harmless. Throws GrammarError.
  virtual std::shared_ptr<const CompiledGrammar> Compile(const GrammarSpec& spec,
                                                         bool forced_text_is_bounded) = 0;
};

// The plug-in exports `extern "C" mlc_native::GrammarBackend* mlc_native_create_grammar_backend(
// const mlc_native::GrammarVocab*)`, which throws InvalidConfig if the library behind it is missing
// or of another version, and `extern "C" int mlc_native_grammar_abi()`, which returns
// kGrammarBackendAbi. The caller owns the backend.
inline constexpr int kGrammarBackendAbi = 1;

// Opens the plug-in that the environment variable MLC_NATIVE_GRAMMAR_LIB names, else
// libmlc_native_grammar.so in the folder of libmlc_native. It stays loaded until the process ends.
// Throws InvalidConfig("grammar").
std::unique_ptr<GrammarBackend> LoadGrammarBackend(const GrammarVocab& vocab);

// Returns the path of the worker program, which is in the folder of the plug-in.
std::string GrammarWorkerPath();

}  // namespace mlc_native
