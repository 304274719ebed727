// A fake grammar library: an answer must be one of the strings that the text lists.
//
//   "cat|cow"   two answers
//   "ab*"       an 'a' and any number of 'b'
//   "*"         anything: no token is forbidden
//   "!"         an invalid text
//   "~cat|cow"  the same as without the "~", by a matcher that gets slower with every token
//
// Every kind of spec is read this way; EBNF as ToGrammarSpec writes choices: root ::= "cat" |
// "cow". The library follows the contract of mlc_native/grammar.h exactly: masks, stop tokens where
// an answer may end, rollback, jump-forward strings. Compilers are thread-safe.
#pragma once

#include <cstdint>
#include <functional>

#include "mlc_native/grammar.h"

namespace mlc_native::testing {

// Hooks through which tests watch or break the library. All may be empty.
struct FakeGrammarHooks {
  std::function<void(const GrammarSpec&)> on_compile;  // on the caller's thread, before compiling
  std::function<void()> on_fill;                       // at the start of every FillMask
  std::function<void(int32_t)> on_accept;              // at the start of every AcceptToken
  std::function<void(double)> on_work;  // what a call of a slow matcher takes, in seconds
};

// For EngineOptions::create_grammar_compiler.
GrammarCompilerFactory FakeGrammarFactory(const FakeGrammarHooks& hooks = {});

}  // namespace mlc_native::testing
