#include "model_files/merges.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "support/error.h"

namespace mlc_native {
namespace {

constexpr size_t kMaxTokenBytes = 512;  // of a token that is made of two others

// Gemma 3, with 262,144 tokens, has 514,847 merges, and its tokens 27 million bytes of parts.
constexpr size_t kMaxMerges = 4'000'000;
constexpr size_t kMaxPartBytes = size_t{1} << 30;

// Counts what a vocabulary costs.
class MergeLimits {
 public:
  explicit MergeLimits(const std::string& path) : path_(path) {}

  // All parts of a token are looked up.
  void CountParts(std::string_view token) {
    part_bytes_ += token.size() * token.size();
    if (part_bytes_ > kMaxPartBytes) Fail("so many long tokens that their merges take too long");
  }
  void CountMerge() {
    if (++num_merges_ > kMaxMerges) {
      Fail("tokens of more than " + std::to_string(kMaxMerges) + " merges, which is the limit");
    }
  }

 private:
  [[noreturn]] void Fail(const std::string& what) const {
    throw LoadError("merges", path_ + ": has " + what);
  }

  const std::string& path_;
  size_t part_bytes_ = 0;
  size_t num_merges_ = 0;
};

bool IsWithinCharacter(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

struct ScoredMerge {
  MergePair pair;
  size_t whole;

  // As transformers orders them: longer first parts precede shorter ones of equal score.
  std::tuple<double, size_t, size_t, size_t, size_t, size_t> Key(const Vocabulary& of) const {
    const auto falling = [&](size_t id) { return kMaxTokenBytes - of.tokens[id].size(); };
    return {-of.scores[whole], falling(pair.left), falling(pair.right), whole,
            pair.left,         pair.right};
  }
};

}  // namespace

std::vector<MergePair> MergesByScore(const Vocabulary& vocabulary, const std::string& path) {
  std::unordered_map<std::string_view, size_t> ids;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const TokenType type = vocabulary.type(id);
    const bool is_text = type == TokenType::kNormal || type == TokenType::kUserDefined;
    if (is_text) ids.emplace(vocabulary.tokens[id], id);
  }
  MergeLimits limits(path);
  std::vector<ScoredMerge> merges;
  for (const auto& [token, id] : ids) {
    if (token.size() > kMaxTokenBytes) continue;
    limits.CountParts(token);
    for (size_t at = 1; at < token.size(); ++at) {
      if (IsWithinCharacter(token[at])) continue;
      const auto left = ids.find(token.substr(0, at));
      if (left == ids.end()) continue;
      const auto right = ids.find(token.substr(at));
      if (right == ids.end()) continue;
      limits.CountMerge();
      merges.push_back({{left->second, right->second}, id});
    }
  }
  std::ranges::sort(merges, [&](const ScoredMerge& a, const ScoredMerge& b) {
    return a.Key(vocabulary) < b.Key(vocabulary);
  });
  std::vector<MergePair> pairs;
  pairs.reserve(merges.size());
  for (const ScoredMerge& merge : merges) pairs.push_back(merge.pair);
  return pairs;
}

std::vector<MergePair> MergesByRank(const std::vector<std::string>& bytes,
                                    const std::string& path) {
  std::unordered_map<std::string_view, size_t> ids;
  ids.reserve(bytes.size());
  for (size_t id = 0; id < bytes.size(); ++id) {
    if (!bytes[id].empty()) ids.emplace(bytes[id], id);
  }
  MergeLimits limits(path);
  std::vector<MergePair> pairs, of_token;
  pairs.reserve(bytes.size() * 3);
  for (const std::string_view token : bytes) {
    if (token.size() > kMaxTokenBytes) continue;
    limits.CountParts(token);
    of_token.clear();
    for (size_t at = 1; at < token.size(); ++at) {
      const auto left = ids.find(token.substr(0, at));
      if (left == ids.end()) continue;
      const auto right = ids.find(token.substr(at));
      if (right == ids.end()) continue;
      limits.CountMerge();
      of_token.push_back({left->second, right->second});
    }
    std::ranges::sort(of_token, {}, [](const MergePair& m) { return std::pair(m.left, m.right); });
    pairs.insert(pairs.end(), of_token.begin(), of_token.end());
  }
  return pairs;
}

}  // namespace mlc_native
