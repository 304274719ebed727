// EngineGrammars: turns the response_format of requests into grammars for the tokens of one loaded
// model.
//
// The first request that needs it makes the compiler, so a model that serves no constrained
// requests never loads the grammar library. Shared by the engine and the threads that create
// requests for it. Thread-safe; Compile blocks its caller and is not called on the engine's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "mlc_native/config.h"
#include "mlc_native/detail/log.h"
#include "mlc_native/grammar.h"
#include "mlc_native/tokenizer.h"
#include "request/request.h"
#include "support/mutex.h"
#include "tokenizer/retokenizer.h"

namespace mlc_native {

class EngineGrammars {
 public:
  struct Model {
    std::shared_ptr<const TokenTable> token_table;  // null: tokens have no text, so no grammars
    std::vector<int32_t> eos_token_ids;             // end an answer where its grammar may end
    int64_t vocab_size = 0;
    std::string tokenizer_json;  // the file of token_table; empty: no jump-forward decoding
  };
  EngineGrammars(Model model, const EngineConfig& config, GrammarCompilerFactory factory, Log log);

  // Of a request whose answer is constrained, fills in grammar, grammar_tokens and, in the mode
  // "jump_forward" or for drafts, retokenizer; or only is_aborted, if `stop` is requested before
  // the grammar is there. Throws InvalidRequest("response_format", ...), and InvalidConfig when the
  // grammar library is not there.
  void CompileFor(Request* request, const std::stop_token& stop);
  // Throws InvalidRequest when the request is constrained and its grammar is not for this model.
  void Check(const Request& request) const;

  // Of the compiler's cache; 0 while there is no compiler.
  int64_t num_cached() const;
  int64_t cached_bytes() const;

 private:
  GrammarCompiler& Compiler();
  // Null when texts cannot be encoded for this model; the log says so once.
  std::shared_ptr<const Retokenizer> ForcedTextTokens();
  std::shared_ptr<const Retokenizer> MakeRetokenizer() const;

  const Model model_;
  const GrammarLimits limits_;
  const bool has_drafts_;
  const GrammarCompilerFactory factory_;
  const Log log_;
  Mutex mutex_;  // held while one of these is made, once each
  std::unique_ptr<GrammarCompiler> compiler_ MLC_GUARDED_BY(mutex_);
  std::optional<std::shared_ptr<const Retokenizer>> retokenizer_ MLC_GUARDED_BY(mutex_);
  std::atomic<const GrammarCompiler*> made_ = nullptr;  // compiler_; for the engine's thread
};

// What the grammar library is asked for; choices become EBNF. The format is valid and constrained.
GrammarSpec ToGrammarSpec(const ResponseFormat& format);

}  // namespace mlc_native
