// The drafter of requests with a prediction: a text that the answer is expected to repeat in large
// parts.
//
// The answer is compared with the prediction byte by byte, because a model may split a text into
// other tokens than the encoder does, above all behind a change. Guesses are the tokens of the
// prediction behind the byte where the answer stands, if one of them begins there.
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "draft/drafter.h"
#include "draft/hash_chains.h"

namespace mlc_native {
namespace {

// The texts of tokens; of ids without a table the bytes of the id.
class TokenTexts {
 public:
  explicit TokenTexts(TokenText text_of) : text_of_(std::move(text_of)) {}

  void Append(int32_t token_id, std::string* text) const {
    if (text_of_) {
      text->append(text_of_(token_id));
    } else {
      text->append(reinterpret_cast<const char*>(&token_id), sizeof(token_id));
    }
  }

 private:
  const TokenText text_of_;
};

int64_t CommonEnd(std::string_view a, std::string_view b, int64_t max_length) {
  const int64_t limit = std::min({std::ssize(a), std::ssize(b), max_length});
  int64_t length = 0;
  while (length < limit && a[a.size() - 1 - length] == b[b.size() - 1 - length]) ++length;
  return length;
}

}  // namespace

// The tokens of the prediction and their bytes. Of a place in it, only those where a token begins
// are found. Constant, and shared by the sequences of a request: it takes long to make.
class PredictedText {
 public:
  PredictedText(const std::vector<int32_t>& tokens, const TokenTexts& texts, int64_t min_match,
                int64_t max_match)
      : tokens_(tokens), min_match_(min_match), max_match_(max_match) {
    begins_.reserve(tokens.size() + 1);
    chains_.Reserve(tokens.size() + 1);
    for (size_t i = 0; i <= tokens.size(); ++i) {
      begins_.push_back(std::ssize(text_));
      if (begins_.back() >= min_match_) chains_.File(HashOfEnd(text_), static_cast<int64_t>(i));
      if (i < tokens.size()) texts.Append(tokens[i], &text_);
    }
  }

  bool GoesOnWith(int64_t place, std::string_view text) const {
    return place < std::ssize(text_) &&
           std::string_view(text_).substr(static_cast<size_t>(place)).starts_with(text);
  }

  // The tokens behind a place. Empty within a token.
  std::span<const int32_t> TokensFrom(int64_t place) const {
    const size_t first = TokenAt(place);
    if (first == tokens_.size() || begins_[first] != place) return {};
    return std::span(tokens_).subspan(first);
  }

  // A place among the next num_tokens tokens behind `from` whose text before it ends with the same
  // bytes as `end`, at least min_length.
  std::optional<TextMatch> FindNext(std::string_view end, int64_t from, size_t num_tokens,
                                    int64_t min_length) const {
    BestMatch best(min_length, from);
    const size_t first = TokenAt(from);
    const size_t last = std::min(first + num_tokens, tokens_.size());
    for (size_t i = first; i <= last; ++i) best.Consider(begins_[i], MatchBefore(i, end));
    return best.best();
  }

  // The same anywhere, at least min_match_ bytes. Of equally long matches the nearest to `near`.
  std::optional<TextMatch> Find(std::string_view end, int64_t near) const {
    if (std::ssize(end) < min_match_) return std::nullopt;
    BestMatch best(min_match_, near);
    chains_.ForEach(HashOfEnd(end), [&](int64_t token) {
      const auto i = static_cast<size_t>(token);
      best.Consider(begins_[i], MatchBefore(i, end));
    });
    return best.best();
  }

  int64_t max_match() const { return max_match_; }

 private:
  // The first token that does not begin before `place`.
  size_t TokenAt(int64_t place) const {
    return static_cast<size_t>(std::ranges::lower_bound(begins_, place) - begins_.begin());
  }
  int64_t MatchBefore(size_t token, std::string_view end) const {
    const auto size = static_cast<size_t>(begins_[token]);
    return CommonEnd(std::string_view(text_).substr(0, size), end, max_match_);
  }
  uint64_t HashOfEnd(std::string_view text) const {
    return std::hash<std::string_view>()(
        text.substr(text.size() - static_cast<size_t>(min_match_)));
  }

  const std::vector<int32_t>& tokens_;
  const int64_t min_match_;  // bytes
  const int64_t max_match_;
  std::string text_;
  std::vector<int64_t> begins_;  // [token] its first byte; behind the last one, the end
  HashChains chains_;            // of tokens
};

namespace {

class PredictionDrafter final : public Drafter {
 public:
  PredictionDrafter(TokenTexts texts, std::shared_ptr<const PredictedText> shared)
      : texts_(std::move(texts)), shared_(std::move(shared)), text_(*shared_) {}

  void Propose(std::span<const int32_t> tokens, int64_t prompt_len, int64_t max_tokens,
               std::vector<int32_t>* drafts) override {
    Follow(tokens.subspan(static_cast<size_t>(prompt_len)));
    if (!follows_) return;
    const std::span<const int32_t> next = text_.TokensFrom(place_);
    const auto count = std::min(static_cast<size_t>(max_tokens), next.size());
    drafts->insert(drafts->end(), next.begin(), next.begin() + static_cast<int64_t>(count));
  }

 private:
  // Moves the place over what was generated. Where the answer leaves the text, it is taken to come
  // back soon behind that place, at the next text that ends as the answer does; later anywhere, at
  // the longest such text.
  void Follow(std::span<const int32_t> generated) {
    if (generated.size() < num_seen_) {
      num_seen_ = left_at_ = generated.size();
      follows_ = generated.empty();
      if (follows_) place_ = resumed_at_ = 0;
    }
    for (; num_seen_ < generated.size() && follows_; ++num_seen_) Step(generated[num_seen_]);
    num_seen_ = generated.size();
    if (follows_) return;
    const std::string end = EndOf(generated);
    std::optional<TextMatch> found;
    if (num_seen_ - left_at_ <= kSoon) {
      latest_.clear();
      texts_.Append(generated.back(), &latest_);
      const int64_t enough = std::clamp<int64_t>(std::ssize(latest_), 1, kEnough);
      found = text_.FindNext(end, left_place_, kNear, enough);
    }
    if (!found) found = text_.Find(end, left_place_);
    if (!found) return;
    place_ = resumed_at_ = found->position;
    follows_ = true;
  }

  void Step(int32_t token_id) {
    latest_.clear();
    texts_.Append(token_id, &latest_);
    follows_ = text_.GoesOnWith(place_, latest_);
    if (follows_) {
      place_ += std::ssize(latest_);
    } else if (place_ != resumed_at_) {
      left_place_ = place_;
      left_at_ = num_seen_;
    }  // otherwise the answer has not come back there
  }

  // As much as is compared.
  std::string EndOf(std::span<const int32_t> generated) const {
    size_t first = generated.size();
    int64_t num_bytes = 0;
    std::string token;
    while (first > 0 && num_bytes < text_.max_match() && generated.size() - first < kMostTokens) {
      token.clear();
      texts_.Append(generated[--first], &token);
      num_bytes += std::ssize(token);
    }
    std::string end;
    for (int32_t token_id : generated.subspan(first)) texts_.Append(token_id, &end);
    return end;
  }

  static constexpr size_t kNear = 16;    // tokens of the text
  static constexpr size_t kSoon = 4;     // tokens of the answer
  static constexpr int64_t kEnough = 4;  // bytes of a longer token
  static constexpr size_t kMostTokens = 64;

  const TokenTexts texts_;
  const std::shared_ptr<const PredictedText> shared_;
  const PredictedText& text_;
  std::string latest_;      // the text of a token
  int64_t place_ = 0;       // the byte of the text that is expected next
  bool follows_ = true;     // the answer stands at place_
  int64_t resumed_at_ = 0;  // where it was last taken to come back
  int64_t left_place_ = 0;  // where it has left the text
  size_t left_at_ = 0;      // the generated token with which it did
  size_t num_seen_ = 0;     // generated tokens that were compared
};

}  // namespace

std::unique_ptr<Drafter> MakePredictionDrafter(const DraftSource& source) {
  if (source.request.prediction.empty()) return nullptr;
  // Settings are tokens, which have about so many bytes.
  constexpr int64_t kBytesPerToken = 4;
  TokenTexts texts(source.text_of);
  std::shared_ptr<const PredictedText> own;
  std::shared_ptr<const PredictedText>& text =
      source.predicted_text != nullptr ? *source.predicted_text : own;
  if (text == nullptr) {
    text = std::make_shared<const PredictedText>(source.request.prediction, texts,
                                                 kBytesPerToken * source.engine.prompt_lookup_min,
                                                 kBytesPerToken * source.engine.prompt_lookup_max);
  }
  return std::make_unique<PredictionDrafter>(std::move(texts), text);
}

}  // namespace mlc_native
