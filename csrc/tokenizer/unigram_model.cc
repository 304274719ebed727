#include "tokenizer/unigram_model.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "support/error.h"
#include "tokenizer/unicode.h"

namespace mlc_native {
namespace {

constexpr double kUnknownPenalty = 10.0;  // below the worst token

}  // namespace

struct UnigramModel::Node {
  static constexpr size_t kUnreached = SIZE_MAX;
  double score = 0.0;
  size_t begin = kUnreached;  // of the last token
  int32_t id = kNoToken;      // of the last token
};

UnigramModel::UnigramModel(std::shared_ptr<const TokenIds> vocab, std::vector<double> scores,
                           std::optional<int32_t> unk_id, bool byte_fallback)
    : vocab_(std::move(vocab)), scores_(std::move(scores)), unk_id_(unk_id.value_or(kNoToken)) {
  if (unk_id && static_cast<size_t>(*unk_id) >= scores_.size()) {
    throw LoadError("tokenizer.json", "tokenizer.json: \"unk_id\" is no token");
  }
  double worst = std::numeric_limits<double>::infinity();
  for (double score : scores_) worst = std::min(worst, score);
  unk_score_ = worst - kUnknownPenalty;
  trie_ = ByteTrie(std::vector<std::pair<std::string, int32_t>>(vocab_->begin(), vocab_->end()));
  fallback_ids_.fill(kNoToken);
  for (int byte = 0; byte < 256 && byte_fallback; ++byte) {
    const auto found = vocab_->find(ByteToken(static_cast<uint8_t>(byte)));
    if (found != vocab_->end()) fallback_ids_[byte] = found->second;
  }
}

bool UnigramModel::FindBest(std::string_view word, std::vector<Node>* nodes) const {
  nodes->assign(word.size() + 1, {});
  for (size_t at = 0; at < word.size();) {
    const double score_here = (*nodes)[at].score;
    const size_t length_here = FirstChar(word.substr(at)).length;
    bool has_character = false;
    const auto consider = [&](size_t length, double score, int32_t id) {
      Node& node = (*nodes)[at + length];
      if (node.begin != Node::kUnreached && score <= node.score) return;
      node = {score, at, id};
    };
    trie_.ForEachPrefix(word.substr(at), [&](size_t length, int32_t id) {
      consider(length, scores_[static_cast<size_t>(id)] + score_here, id);
      has_character |= length == length_here;
    });
    if (!has_character) {
      consider(length_here, unk_score_ + score_here, unk_id_);
      if (unk_id_ == kNoToken && (*nodes)[at + length_here].id == kNoToken) return false;
    }
    at += length_here;
  }
  return true;
}

bool UnigramModel::AddToken(std::string_view text, bool allows_unknown,
                            std::vector<int32_t>* token_ids) const {
  if (const auto found = vocab_->find(text); found != vocab_->end()) {
    token_ids->push_back(found->second);
    return true;
  }
  const auto id_of = [this](char byte) { return fallback_ids_[static_cast<uint8_t>(byte)]; };
  if (std::ranges::none_of(text, [&](char c) { return id_of(c) == kNoToken; })) {
    for (char byte : text) token_ids->push_back(id_of(byte));
    return true;
  }
  if (!allows_unknown || unk_id_ == kNoToken) return false;
  token_ids->push_back(unk_id_);
  return true;
}

bool UnigramModel::Encode(std::string_view word, bool allows_unknown,
                          std::vector<int32_t>* token_ids) const {
  std::vector<Node> nodes;
  if (!FindBest(word, &nodes)) return false;
  std::vector<std::string_view> tokens;  // the last one first; unknown neighbours are one
  bool after_unknown = false;
  for (size_t end = word.size(); end > 0;) {
    const Node& node = nodes[end];
    const bool is_unknown = node.id == unk_id_;
    std::string_view text = word.substr(node.begin, end - node.begin);
    if (is_unknown && after_unknown) {
      text = word.substr(node.begin, text.size() + tokens.back().size());
      tokens.pop_back();
    }
    tokens.push_back(text);
    after_unknown = is_unknown;
    end = node.begin;
  }
  std::ranges::reverse(tokens);
  return std::ranges::all_of(
      tokens, [&](std::string_view token) { return AddToken(token, allows_unknown, token_ids); });
}

}  // namespace mlc_native
