// Grammars constrain the tokens that a sequence may generate. They are compiled once and matched
// per sequence.
//
// GrammarCompiler is thread-safe and blocks its caller, which is never the engine's thread.
// CompiledGrammar is immutable and shared. GrammarMatcher is the state of one sequence; one thread
// at a time uses it, mostly the engine's: masks and what takes long are computed on others. The
// grammar library is loaded by CreateGrammarCompiler, so an engine without constrained requests
// never loads it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "mlc_native/detail/export.h"

namespace mlc_native {

enum class GrammarKind { kJsonObject, kJsonSchema, kRegex, kEbnf, kStructuralTag };

// What an answer must match. Two equal specs compile to the same grammar.
struct GrammarSpec {
  GrammarKind kind = GrammarKind::kJsonObject;
  std::string text;    // JSON schema, regex, EBNF or structural tag (JSON); empty for kJsonObject
  bool strict = true;  // kJsonSchema: objects and arrays have no members that are not listed

  bool operator==(const GrammarSpec&) const = default;
};

// The vocabulary that grammars are compiled for.
struct GrammarVocab {
  std::vector<std::string> token_bytes;  // by token id; a token without bytes is never allowed
  std::vector<int32_t> stop_token_ids;   // allowed exactly where the grammar may end
  int64_t vocab_size = 0;                // length of a row of logits, at least token_bytes.size()
};

// Limits of one compilation. Exceeding one throws InvalidRequest("response_format", ...).
struct GrammarLimits {
  double compile_seconds = 10;                      // wall clock
  int64_t compile_memory_bytes = int64_t{2} << 30;  // address space of a helper process
  int64_t max_text_bytes = int64_t{1} << 20;
  int64_t max_depth = 128;                          // nesting of brackets in the text
  int64_t cache_bytes = int64_t{256} << 20;         // compiled grammars that are kept, LRU
  int64_t max_compiled_bytes = int64_t{128} << 20;  // of one grammar
  int64_t max_waiting = std::numeric_limits<int64_t>::max();  // callers of Compile, see there
};

class MLC_NATIVE_API GrammarMatcher {
 public:
  virtual ~GrammarMatcher() = default;

  // Sets bit t % 32 of mask[t / 32] if token t may come next; mask is [(vocab_size + 31) / 32].
  // Returns false if every token is allowed; the mask is then unspecified. Requires: no stop token
  // has been accepted.
  virtual bool FillMask(std::span<int32_t> mask) = 0;
  // Returns false, and changes nothing, if the token is not allowed here. A stop token terminates.
  virtual bool AcceptToken(int32_t token_id) = 0;
  // Undoes the last accepted tokens. Requires: at most max_rollback_tokens of NewMatcher.
  virtual void Rollback(int64_t num_tokens) = 0;
  // Returns the longest text that must come next in every answer; often empty. The text is valid
  // UTF-8, so it is empty in the middle of a character.
  virtual std::string FindJumpForwardString() = 0;
  // True if a stop token was accepted. No token may follow.
  virtual bool IsTerminated() const = 0;
  // True if the accepted tokens are a complete answer. More may follow.
  virtual bool IsCompleted() const = 0;
  virtual std::unique_ptr<GrammarMatcher> Fork() const = 0;
};

class MLC_NATIVE_API CompiledGrammar {
 public:
  virtual ~CompiledGrammar() = default;
  // Returns a matcher at the start of an answer. Any thread.
  virtual std::unique_ptr<GrammarMatcher> NewMatcher(int64_t max_rollback_tokens) const = 0;
  virtual int64_t memory_bytes() const = 0;
};

class MLC_NATIVE_API GrammarCompiler {
 public:
  virtual ~GrammarCompiler() = default;
  // Returns the grammar from the cache or compiles it within the limits; blocks meanwhile. Equal
  // specs that are requested at the same time are compiled once. Returns null if `stop` is
  // requested before the grammar is there; a compilation ends when all of its callers have given
  // it up. Throws InvalidRequest("response_format", ...) for a text that is not a valid grammar or
  // exceeds a limit, and QueueFull if max_waiting other callers wait for grammars that are not in
  // the cache. Any thread except the engine's.
  virtual std::shared_ptr<const CompiledGrammar> Compile(const GrammarSpec& spec,
                                                         const std::stop_token& stop = {}) = 0;
  virtual int64_t num_cached() const = 0;
  virtual int64_t cached_bytes() const = 0;
};

// Loads the grammar library: MLC_NATIVE_GRAMMAR_LIB, else the one in the folder of libmlc_native.
// Throws InvalidConfig("grammar", ...), which says what to install, if it is missing.
MLC_NATIVE_API std::unique_ptr<GrammarCompiler> CreateGrammarCompiler(GrammarVocab vocab,
                                                                      const GrammarLimits& limits);
using GrammarCompilerFactory =
    std::function<std::unique_ptr<GrammarCompiler>(GrammarVocab, const GrammarLimits&)>;

}  // namespace mlc_native
