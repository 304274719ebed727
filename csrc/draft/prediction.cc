// The drafter of requests with a prediction: a text that the answer is expected to repeat in large
// parts.
#include <algorithm>
#include <optional>

#include "draft/drafter.h"
#include "draft/token_index.h"

namespace mlc_native {
namespace {

class PredictionDrafter final : public Drafter {
 public:
  PredictionDrafter(const std::vector<int32_t>& text, int64_t min_match, int64_t max_match)
      : text_(text), index_(min_match, max_match) {
    index_.Extend(text_);
  }

  void Propose(std::span<const int32_t> tokens, int64_t prompt_len, int64_t max_tokens,
               std::vector<int32_t>* drafts) override {
    Follow(tokens.subspan(static_cast<size_t>(prompt_len)));
    if (!follows_) return;
    const int64_t end = std::min(std::ssize(text_), cursor_ + max_tokens);
    drafts->insert(drafts->end(), text_.begin() + cursor_, text_.begin() + end);
  }

 private:
  // Moves the cursor over what was generated. Where the answer leaves the text, the place where it
  // comes back is searched for from the next tokens on.
  void Follow(std::span<const int32_t> generated) {
    if (generated.size() < num_seen_) {
      num_seen_ = generated.size();
      follows_ = generated.empty();
      if (follows_) cursor_ = 0;
    }
    for (; num_seen_ < generated.size() && follows_; ++num_seen_) {
      follows_ = cursor_ < std::ssize(text_) && text_[cursor_] == generated[num_seen_];
      if (follows_) ++cursor_;
    }
    num_seen_ = generated.size();
    if (follows_) return;
    const std::optional<TokenIndex::Match> found = index_.Find(text_, generated, cursor_);
    if (!found) return;
    cursor_ = found->position;
    follows_ = true;
  }

  const std::vector<int32_t>& text_;
  TokenIndex index_;
  int64_t cursor_ = 0;   // the token of the text that is expected next
  bool follows_ = true;  // otherwise cursor_ is where the answer left the text
  size_t num_seen_ = 0;  // generated tokens that the cursor has moved over
};

}  // namespace

std::unique_ptr<Drafter> MakePredictionDrafter(const DraftSource& source) {
  if (source.request.prediction.empty()) return nullptr;
  return std::make_unique<PredictionDrafter>(
      source.request.prediction, source.engine.prompt_lookup_min, source.engine.prompt_lookup_max);
}

}  // namespace mlc_native
