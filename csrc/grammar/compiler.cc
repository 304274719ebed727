#include "grammar/backend.h"
#include "support/error.h"

namespace mlc_native {
namespace {

class BackendCompiler final : public GrammarCompiler {
 public:
  explicit BackendCompiler(std::unique_ptr<GrammarBackend> backend)
      : backend_(std::move(backend)) {}

  std::shared_ptr<const CompiledGrammar> Compile(const GrammarSpec& spec) override {
    try {
      return backend_->Compile(spec);
    } catch (const GrammarError& error) {
      throw InvalidRequest("response_format", std::string("\"response_format\": ") + error.what());
    }
  }
  int64_t num_cached() const override { return 0; }
  int64_t cached_bytes() const override { return 0; }

 private:
  const std::unique_ptr<GrammarBackend> backend_;
};

}  // namespace

std::unique_ptr<GrammarCompiler> CreateGrammarCompiler(GrammarVocab vocab, const GrammarLimits&) {
  return std::make_unique<BackendCompiler>(LoadGrammarBackend(vocab));
}

}  // namespace mlc_native
