// CreateGrammarCompiler: text checks, cache, trial in a helper process, then the compilation here.
#include <optional>
#include <stop_token>
#include <string>

#include "grammar/backend.h"
#include "grammar/big_stack.h"
#include "grammar/compile_cache.h"
#include "grammar/spec_check.h"
#include "grammar/trials.h"
#include "support/error.h"

namespace mlc_native {
namespace {

class IsolatingCompiler final : public GrammarCompiler {
 public:
  IsolatingCompiler(const GrammarVocab& vocab, const GrammarLimits& limits)
      : limits_(limits),
        backend_(LoadGrammarBackend(vocab)),
        trials_(GrammarWorkerPath(), vocab, limits),
        cache_(limits.cache_bytes, limits.max_waiting) {}

  std::shared_ptr<const CompiledGrammar> Compile(const GrammarSpec& spec,
                                                 const std::stop_token& stop) override {
    try {
      return cache_.Get(
          spec, [&](const std::stop_token& all_stop) { return CompileNew(spec, all_stop); }, stop);
    } catch (const GrammarError& error) {
      throw InvalidRequest("response_format", std::string("\"response_format\": ") + error.what());
    }
  }
  int64_t num_cached() const override { return cache_.num_cached(); }
  int64_t cached_bytes() const override { return cache_.cached_bytes(); }

 private:
  // Stops only while the helper process works; the compilation here has no way to.
  std::shared_ptr<const CompiledGrammar> CompileNew(const GrammarSpec& spec,
                                                    const std::stop_token& stop) {
    bool forced_text_is_bounded = true;
    if (spec.kind != GrammarKind::kJsonObject) {  // its text is built in and harmless
      CheckGrammarText(spec, limits_);
      const std::optional<TrialReply> reply = trials_.Run(spec, stop);
      if (!reply) return nullptr;
      forced_text_is_bounded = reply->forced_text_is_bounded;
    }
    std::shared_ptr<const CompiledGrammar> grammar;
    RunOnBigStack(kCompileStackBytes, [&] {
      grammar = backend_->Compile(RewriteGrammar(spec), forced_text_is_bounded);
    });
    return grammar;
  }

  const GrammarLimits limits_;
  const std::unique_ptr<GrammarBackend> backend_;
  GrammarTrials trials_;
  CompileCache cache_;
};

}  // namespace

// By value as GrammarCompilerFactory: other compilers keep the vocabulary.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
std::unique_ptr<GrammarCompiler> CreateGrammarCompiler(GrammarVocab vocab,
                                                       const GrammarLimits& limits) {
  return std::make_unique<IsolatingCompiler>(vocab, limits);
}

}  // namespace mlc_native
