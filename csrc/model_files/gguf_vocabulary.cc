#include "model_files/gguf_vocabulary.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

namespace mlc_native {
namespace {

constexpr char kTypes[] = "tokenizer.ggml.token_type";
constexpr char kScores[] = "tokenizer.ggml.scores";

// Whether spaces behind a token belong to it. Phi-3's tokenizer.json says so of all added tokens
// but three; GGUF files have no place for it.
bool TakesSpacesBehind(const GgufFile& file, std::string_view token) {
  constexpr std::string_view kOthers[] = {"<unk>", "<s>", "<|endoftext|>"};
  const std::string family = file.String("general.architecture").value_or("");
  const bool is_phi3 =
      (family == "phi3" || family == "phimoe") && file.String(kGgufTokenizerModel) == "llama";
  return is_phi3 && std::ranges::find(kOthers, token) == std::end(kOthers);
}

void FindAddedTokens(const GgufFile& file, Vocabulary* vocabulary) {
  for (size_t id = 0; id < vocabulary->tokens.size(); ++id) {
    const std::string_view token = vocabulary->tokens[id];
    if (!IsAddedType(vocabulary->type(id)) || token.empty()) continue;
    vocabulary->added.push_back({.id = id,
                                 .special = vocabulary->type(id) != TokenType::kUserDefined,
                                 .rstrip = TakesSpacesBehind(file, token)});
  }
}

}  // namespace

Vocabulary ReadGgufVocabulary(const GgufFile& file) {
  Vocabulary vocabulary;
  vocabulary.tokens = file.Strings(kGgufTokens);
  vocabulary.types = file.Integers(kTypes);
  const size_t size = vocabulary.tokens.size();
  if (size > kMaxVocabulary) {
    file.Fail(kGgufTokens, "has " + std::to_string(size) + " tokens, allowed are " +
                               std::to_string(kMaxVocabulary));
  }
  if (!vocabulary.types.empty() && vocabulary.types.size() != size) {
    file.Fail(kTypes, "has " + std::to_string(vocabulary.types.size()) + " entries for " +
                          std::to_string(size) + " tokens");
  }
  FindAddedTokens(file, &vocabulary);
  return vocabulary;
}

std::optional<size_t> GgufTokenId(const GgufFile& file, const Vocabulary& vocabulary,
                                  const char* key) {
  const std::optional<int64_t> id = file.Integer(key);
  if (!id || *id < 0) return std::nullopt;
  if (static_cast<size_t>(*id) >= vocabulary.tokens.size()) {
    file.Fail(key, "= " + std::to_string(*id) + " is no token");
  }
  return static_cast<size_t>(*id);
}

std::optional<size_t> GgufUnknownId(const GgufFile& file, const Vocabulary& vocabulary) {
  const std::vector<int64_t>& types = vocabulary.types;
  const auto unknown = std::ranges::find(types, static_cast<int64_t>(TokenType::kUnknown));
  if (unknown != types.end()) return static_cast<size_t>(unknown - types.begin());
  const std::optional<int64_t> id = file.Integer("tokenizer.ggml.unknown_token_id");
  if (!id || *id < 0 || static_cast<size_t>(*id) >= vocabulary.tokens.size()) return std::nullopt;
  return static_cast<size_t>(*id);
}

std::vector<double> GgufScores(const GgufFile& file, const Vocabulary& vocabulary) {
  std::vector<double> scores = file.Numbers(kScores);
  if (scores.size() != vocabulary.tokens.size()) {
    file.Fail(kScores, "has " + std::to_string(scores.size()) + " entries for " +
                           std::to_string(vocabulary.tokens.size()) + " tokens");
  }
  return scores;
}

}  // namespace mlc_native
