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
  // Moves the cursor over what was generated. Where the answer leaves the text, it is taken to come
  // back at the next occurrence of its latest token, if that is near; otherwise where its latest
  // tokens are.
  void Follow(std::span<const int32_t> generated) {
    if (generated.size() < num_seen_) {
      num_seen_ = generated.size();
      follows_ = generated.empty();
      if (follows_) cursor_ = 0;
    }
    for (; num_seen_ < generated.size() && follows_; ++num_seen_) {
      follows_ = cursor_ < std::ssize(text_) && text_[cursor_] == generated[num_seen_];
      if (follows_) ++cursor_;
      left_at_ = num_seen_;
    }
    num_seen_ = generated.size();
    if (follows_) return;
    const std::optional<TokenIndex::Match> found = index_.Find(text_, generated, cursor_);
    if (found) return FollowFrom(found->position);
    if (num_seen_ - left_at_ > kSoon) return;
    const auto begin = text_.begin() + cursor_;
    const auto end = begin + std::min(kNear, std::ssize(text_) - cursor_);
    const auto next = std::find(begin, end, generated.back());
    if (next != end) FollowFrom(next - text_.begin() + 1);
  }

  void FollowFrom(int64_t position) {
    cursor_ = position;
    follows_ = true;
  }

  static constexpr int64_t kNear = 16;  // tokens of the text
  static constexpr size_t kSoon = 4;    // tokens of the answer

  const std::vector<int32_t>& text_;
  TokenIndex index_;
  int64_t cursor_ = 0;   // the token of the text that is expected next
  bool follows_ = true;  // otherwise cursor_ is where the answer left the text
  size_t num_seen_ = 0;  // generated tokens that the cursor has moved over
  size_t left_at_ = 0;   // the generated token with which the answer left the text
};

}  // namespace

std::unique_ptr<Drafter> MakePredictionDrafter(const DraftSource& source) {
  if (source.request.prediction.empty()) return nullptr;
  return std::make_unique<PredictionDrafter>(
      source.request.prediction, source.engine.prompt_lookup_min, source.engine.prompt_lookup_max);
}

}  // namespace mlc_native
