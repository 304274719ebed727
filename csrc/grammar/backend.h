// GrammarBackend: the grammar library bound to one vocabulary; what the plug-in
// libmlc_native_grammar implements (over xgrammar, csrc/grammar/xgrammar).
//
// Created on any thread; all methods may run on several threads at once. What it makes stays valid
// after it is gone. Texts reach it only after CheckGrammarText (spec_check.h).
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "grammar/grammar.h"

namespace mlc_native {

// The text is no grammar, or one that the library refuses. what() is meant for the caller.
class GrammarError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class GrammarBackend {
 public:
  virtual ~GrammarBackend() = default;
  // On this thread and without limits, so only what has passed a trial (trials.h) or is known to be
  // harmless. Throws GrammarError.
  virtual std::shared_ptr<const CompiledGrammar> Compile(const GrammarSpec& spec,
                                                         bool forced_text_is_bounded) = 0;
};

// The plug-in exports `extern "C" mlc_native::GrammarBackend* mlc_native_create_grammar_backend(
// const mlc_native::GrammarVocab*)`, which throws InvalidConfig when the library behind it is
// missing or of another version, and `extern "C" int mlc_native_grammar_abi()` returning
// kGrammarBackendAbi. The caller owns the backend.
inline constexpr int kGrammarBackendAbi = 1;

// Opens the plug-in: MLC_NATIVE_GRAMMAR_LIB of the environment, else libmlc_native_grammar.so
// beside libmlc_native. It stays loaded until the process ends. Throws InvalidConfig("grammar").
std::unique_ptr<GrammarBackend> LoadGrammarBackend(const GrammarVocab& vocab);

// The worker program: beside the plug-in.
std::string GrammarWorkerPath();

}  // namespace mlc_native
