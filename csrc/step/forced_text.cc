#include "step/forced_text.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <string>

#include "request/request_state.h"
#include "tokenizer/retokenizer.h"

namespace mlc_native {
namespace {

class ForcedTextDrafter final : public Drafter {
 public:
  explicit ForcedTextDrafter(RequestStateEntry& entry) : entry_(entry) {}

  void Propose(std::span<const int32_t> /*tokens*/, int64_t /*prompt_len*/, int64_t max_tokens,
               std::vector<int32_t>* drafts) override {
    const std::string text = Forced();
    if (text.empty()) return;
    const std::optional<Retokenizer::Extension> forced =
        entry_.rstate->request->retokenizer->Extend({}, text);
    if (!forced) return;
    const int64_t num_tokens = std::min(max_tokens, std::ssize(forced->added));
    drafts->insert(drafts->end(), forced->added.begin(), forced->added.begin() + num_tokens);
  }

 private:
  std::string Forced() {
    try {
      return entry_.grammar_matcher->FindJumpForwardString();
    } catch (...) {
      entry_.matcher_error = std::current_exception();
      throw;
    }
  }

  RequestStateEntry& entry_;
};

}  // namespace

std::unique_ptr<Drafter> MakeForcedTextDrafter(RequestStateEntry& entry) {
  const Request& request = *entry.rstate->request;
  if (entry.grammar_matcher == nullptr || request.retokenizer == nullptr || request.jumps()) {
    return nullptr;
  }
  return std::make_unique<ForcedTextDrafter>(entry);
}

}  // namespace mlc_native
