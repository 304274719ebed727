#include "grammar/xgrammar/matcher.h"

#include <tvm/ffi/container/tensor.h>

#include <string>
#include <utility>

#include "grammar/xgrammar/compile.h"
#include "support/check.h"
#include "support/utf8.h"

namespace mlc_native {
namespace {

namespace ffi = tvm::ffi;

// The valid UTF-8 that `text` begins with.
std::string Utf8Prefix(std::string text) {
  size_t length = 0;
  while (length < text.size()) {
    const Utf8Step step = ReadUtf8(std::string_view(text).substr(length));
    if (step.status != Utf8Status::kValid) break;
    length += step.length;
  }
  text.resize(length);
  return text;
}

class XGrammarMatcher final : public GrammarMatcher {
 public:
  XGrammarMatcher(std::shared_ptr<const GrammarTokens> tokens, ffi::Any handle,
                  const GrammarTraits& traits)
      : tokens_(std::move(tokens)), handle_(std::move(handle)), traits_(traits) {}

  bool FillMask(std::span<int32_t> mask) override {
    MLC_CHECK(static_cast<int64_t>(mask.size()) == tokens_->mask_size());
    int64_t shape[1] = {tokens_->mask_size()};
    DLTensor row{mask.data(), {kDLCPU, 0}, 1, {kDLInt, 32, 1}, shape, nullptr, 0};
    return Call(library().fill_next_token_bitmask, handle_, &row, int64_t{0}, false).cast<bool>();
  }

  bool AcceptToken(int32_t token_id) override {
    if (!tokens_->usable(token_id, traits_.is_json) || IsTerminated()) return false;
    return Call(library().accept_token, handle_, int64_t{token_id}, false).cast<bool>();
  }

  void Rollback(int64_t num_tokens) override { Call(library().rollback, handle_, num_tokens); }

  std::string FindJumpForwardString() override {
    if (!traits_.forced_text_is_bounded || IsTerminated()) return {};
    return Utf8Prefix(Call(library().find_jump_forward_string, handle_).cast<ffi::String>());
  }

  bool IsTerminated() const override { return Call(library().is_terminated, handle_).cast<bool>(); }
  bool IsCompleted() const override { return Call(library().is_completed, handle_).cast<bool>(); }

  std::unique_ptr<GrammarMatcher> Fork() const override {
    return std::make_unique<XGrammarMatcher>(tokens_, Call(library().fork, handle_), traits_);
  }

 private:
  const XGrammar& library() const { return tokens_->library(); }

  const std::shared_ptr<const GrammarTokens> tokens_;
  const ffi::Any handle_;
  const GrammarTraits traits_;
};

class XGrammarCompiled final : public CompiledGrammar {
 public:
  XGrammarCompiled(std::shared_ptr<const GrammarTokens> tokens, ffi::Any handle,
                   const GrammarTraits& traits)
      : tokens_(std::move(tokens)),
        handle_(std::move(handle)),
        traits_(traits),
        memory_bytes_(CompiledBytes(tokens_->library(), handle_)) {}

  std::unique_ptr<GrammarMatcher> NewMatcher(int64_t max_rollback_tokens) const override {
    ffi::Any matcher = Call(tokens_->library().new_matcher, handle_, /*override_stop=*/nullptr,
                            /*terminate_without_stop_token=*/false, max_rollback_tokens,
                            /*default_temperature=*/nullptr);
    return std::make_unique<XGrammarMatcher>(tokens_, std::move(matcher), traits_);
  }
  int64_t memory_bytes() const override { return memory_bytes_; }

 private:
  const std::shared_ptr<const GrammarTokens> tokens_;
  const ffi::Any handle_;
  const GrammarTraits traits_;
  const int64_t memory_bytes_;
};

}  // namespace

std::shared_ptr<const CompiledGrammar> MakeCompiledGrammar(
    std::shared_ptr<const GrammarTokens> tokens, ffi::Any compiled, const GrammarTraits& traits) {
  return std::make_shared<XGrammarCompiled>(std::move(tokens), std::move(compiled), traits);
}

}  // namespace mlc_native
