// What libmlc_native_grammar.so exports.
#include "grammar/backend.h"
#include "grammar/xgrammar/compile.h"
#include "grammar/xgrammar/matcher.h"

namespace mlc_native {
namespace {

class XGrammarBackend final : public GrammarBackend {
 public:
  explicit XGrammarBackend(const GrammarVocab& vocab)
      : tokens_(std::make_shared<const GrammarTokens>(XGrammar::Load(), vocab)) {}

  std::shared_ptr<const CompiledGrammar> Compile(const GrammarSpec& spec,
                                                 bool forced_text_is_bounded) override {
    return MakeCompiledGrammar(
        tokens_, CompileWithXGrammar(*tokens_, spec),
        {.is_json = IsJson(spec.kind), .forced_text_is_bounded = forced_text_is_bounded});
  }

 private:
  const std::shared_ptr<const GrammarTokens> tokens_;
};

}  // namespace
}  // namespace mlc_native

#define MLC_NATIVE_EXPORT extern "C" __attribute__((visibility("default")))

MLC_NATIVE_EXPORT int mlc_native_grammar_abi() { return mlc_native::kGrammarBackendAbi; }

MLC_NATIVE_EXPORT mlc_native::GrammarBackend* mlc_native_create_grammar_backend(
    const mlc_native::GrammarVocab* vocab) {
  return new mlc_native::XGrammarBackend(*vocab);
}
