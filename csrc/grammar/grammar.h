// Grammars that constrain what a sequence may generate: compiled once, matched per sequence.
//
// GrammarCompiler is thread-safe and blocks its caller, never the engine's thread. CompiledGrammar
// is immutable and shared. GrammarMatcher is the state of one sequence: it belongs to the engine's
// thread, but FillMask may run on another thread while the engine's thread leaves the matcher
// alone. This header knows no grammar library; the one behind it is loaded on the first use
// (CreateGrammarCompiler), so an engine without constrained requests never pays for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace mlc_native {

enum class GrammarKind { kJsonObject, kJsonSchema, kRegex, kEbnf, kStructuralTag };

// What an answer must match. Two equal specs compile to the same grammar.
struct GrammarSpec {
  GrammarKind kind = GrammarKind::kJsonObject;
  std::string text;    // JSON schema, regex, EBNF or structural tag (JSON); empty for kJsonObject
  bool strict = true;  // kJsonSchema: objects and arrays have no members that are not listed

  bool operator==(const GrammarSpec&) const = default;
};

// The tokens that grammars are compiled for.
struct GrammarVocab {
  std::vector<std::string> token_bytes;  // [<= vocab_size], index = token id; empty: never allowed
  std::vector<int32_t> stop_token_ids;   // allowed exactly where the grammar may end
  int64_t vocab_size = 0;                // columns of a row of logits, at least token_bytes.size()
};

// What one compilation may cost; more of it ends in InvalidRequest("response_format", ...).
struct GrammarLimits {
  double compile_seconds = 10;                      // wall clock
  int64_t compile_memory_bytes = int64_t{2} << 30;  // address space of a helper process
  int64_t max_text_bytes = int64_t{1} << 20;
  int64_t max_depth = 128;                          // nesting of brackets in the text
  int64_t cache_bytes = int64_t{256} << 20;         // compiled grammars that are kept, LRU
  int64_t max_compiled_bytes = int64_t{128} << 20;  // of one grammar
};

class GrammarMatcher {
 public:
  virtual ~GrammarMatcher() = default;

  // Bit t % 32 of mask[t / 32] says whether token t may come next; mask is
  // [(vocab_size + 31) / 32]. False: every token is allowed, and the mask says nothing. Not after
  // a stop token.
  virtual bool FillMask(std::span<int32_t> mask) = 0;
  // False when the token is not allowed here; the state is then unchanged. A stop token terminates.
  virtual bool AcceptToken(int32_t token_id) = 0;
  // Undoes the last accepted tokens, at most as many as NewMatcher was told.
  virtual void Rollback(int64_t num_tokens) = 0;
  // The longest text that must come next, whatever is generated; often empty. Valid UTF-8: empty in
  // the middle of a character.
  virtual std::string FindJumpForwardString() = 0;
  // A stop token was accepted: nothing may follow.
  virtual bool IsTerminated() const = 0;
  // What was accepted is a complete answer; more may follow.
  virtual bool IsCompleted() const = 0;
  virtual std::unique_ptr<GrammarMatcher> Fork() const = 0;
};

class CompiledGrammar {
 public:
  virtual ~CompiledGrammar() = default;
  // At the start of an answer. Any thread.
  virtual std::unique_ptr<GrammarMatcher> NewMatcher(int64_t max_rollback_tokens) const = 0;
  virtual int64_t memory_bytes() const = 0;
};

class GrammarCompiler {
 public:
  virtual ~GrammarCompiler() = default;
  // Blocks until the grammar is there: from the cache, or compiled within the limits. Equal specs
  // asked for at the same time are compiled once. Throws InvalidRequest("response_format", ...) for
  // a text that is no valid grammar or exceeds a limit. Any thread, never the engine's.
  virtual std::shared_ptr<const CompiledGrammar> Compile(const GrammarSpec& spec) = 0;
  virtual int64_t num_cached() const = 0;
  virtual int64_t cached_bytes() const = 0;
};

// Loads the grammar library (MLC_NATIVE_GRAMMAR_LIB, else the one beside libmlc_native). Throws
// InvalidConfig("grammar", ...) saying what to install when it is not there.
std::unique_ptr<GrammarCompiler> CreateGrammarCompiler(GrammarVocab vocab,
                                                       const GrammarLimits& limits);

}  // namespace mlc_native
