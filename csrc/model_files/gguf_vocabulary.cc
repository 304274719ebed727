#include "model_files/gguf_vocabulary.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>

namespace mlc_native {
namespace {

constexpr char kTypes[] = "tokenizer.ggml.token_type";
constexpr char kScores[] = "tokenizer.ggml.scores";
constexpr size_t kMaxTokens = size_t{1} << 20;

// Whether spaces behind a token belong to it. Phi-3's tokenizer.json says so of all added tokens
// but three; GGUF files have no place for it.
bool TakesSpacesBehind(const GgufFile& file, std::string_view token) {
  constexpr std::string_view kOthers[] = {"<unk>", "<s>", "<|endoftext|>"};
  const std::string family = file.String("general.architecture").value_or("");
  const bool is_phi3 =
      (family == "phi3" || family == "phimoe") && file.String(kGgufTokenizerModel) == "llama";
  return is_phi3 && std::ranges::find(kOthers, token) == std::end(kOthers);
}

void PutAddedTokens(JsonWriter& json, const GgufFile& file, const GgufVocabulary& vocabulary) {
  json.Name("added_tokens").BeginArray();
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (!vocabulary.is_added(id) || vocabulary.tokens[id].empty()) continue;
    json.BeginObject().Add("id", id).Add("content", vocabulary.tokens[id]);
    for (const char* option : {"single_word", "lstrip", "normalized"}) json.Add(option, false);
    json.Add("rstrip", TakesSpacesBehind(file, vocabulary.tokens[id]));
    json.Add("special", vocabulary.type(id) != GgufTokenType::kUserDefined).EndObject();
  }
  json.EndArray();
}

}  // namespace

GgufVocabulary::GgufVocabulary(const GgufFile& file)
    : tokens(file.Strings(kGgufTokens)), types(file.Integers(kTypes)) {
  if (tokens.size() > kMaxTokens) {
    file.Fail(kGgufTokens, "has " + std::to_string(tokens.size()) + " tokens, allowed are " +
                               std::to_string(kMaxTokens));
  }
  if (!types.empty() && types.size() != tokens.size()) {
    file.Fail(kTypes, "has " + std::to_string(types.size()) + " entries for " +
                          std::to_string(tokens.size()) + " tokens");
  }
}

bool GgufVocabulary::is_added(size_t id) const {
  const GgufTokenType of_token = type(id);
  return of_token == GgufTokenType::kControl || of_token == GgufTokenType::kUserDefined ||
         of_token == GgufTokenType::kUnknown;
}

std::optional<size_t> GgufVocabulary::IdOf(const GgufFile& file, const char* key) const {
  const std::optional<int64_t> id = file.Integer(key);
  if (!id || *id < 0) return std::nullopt;
  if (static_cast<size_t>(*id) >= tokens.size()) {
    file.Fail(key, "= " + std::to_string(*id) + " is no token");
  }
  return static_cast<size_t>(*id);
}

std::optional<size_t> GgufVocabulary::IdOfUnknown(const GgufFile& file) const {
  const auto unknown = std::ranges::find(types, static_cast<int64_t>(GgufTokenType::kUnknown));
  if (unknown != types.end()) return static_cast<size_t>(unknown - types.begin());
  const std::optional<int64_t> id = file.Integer("tokenizer.ggml.unknown_token_id");
  if (!id || *id < 0 || static_cast<size_t>(*id) >= tokens.size()) return std::nullopt;
  return static_cast<size_t>(*id);
}

std::vector<double> GgufVocabulary::Scores(const GgufFile& file) const {
  std::vector<double> scores = file.Numbers(kScores);
  if (scores.size() != tokens.size()) {
    file.Fail(kScores, "has " + std::to_string(scores.size()) + " entries for " +
                           std::to_string(tokens.size()) + " tokens");
  }
  return scores;
}

void PutGgufType(JsonWriter& json, const char* type) { json.BeginObject().Add("type", type); }

void BeginGgufTokenizer(JsonWriter& json, const GgufFile& file, const GgufVocabulary& vocabulary) {
  json.BeginObject().Add("version", "1.0");
  json.Name("truncation").Null().Name("padding").Null();
  PutAddedTokens(json, file, vocabulary);
}

void PutGgufTemplate(JsonWriter& json, const GgufVocabulary& vocabulary,
                     const GgufTemplate& around) {
  json.Name("post_processor");
  if (!around.front && !around.back) {
    json.Null();
    return;
  }
  std::set<size_t> named;
  const auto put_special = [&](size_t id, int type) {
    named.insert(id);
    json.BeginObject().Name("SpecialToken").BeginObject();
    json.Add("id", vocabulary.tokens[id]).Add("type_id", type).EndObject().EndObject();
  };
  const auto put_text = [&](const char* text, int type) {
    json.BeginObject().Name("Sequence").BeginObject();
    json.Add("id", text).Add("type_id", type).EndObject().EndObject();
  };
  PutGgufType(json, "TemplateProcessing");
  for (const bool is_pair : {false, true}) {
    json.Name(is_pair ? "pair" : "single").BeginArray();
    if (around.front) put_special(*around.front, 0);
    put_text("A", 0);
    if (is_pair) {
      for (const size_t id : around.between) put_special(id, 0);
      put_text("B", around.second_type);
    }
    if (around.back) put_special(*around.back, is_pair ? around.second_type : 0);
    json.EndArray();
  }
  json.Name("special_tokens").BeginObject();
  for (const size_t id : named) {
    json.Name(vocabulary.tokens[id]).BeginObject().Add("id", vocabulary.tokens[id]);
    json.Name("ids").BeginArray().Put(id).EndArray();
    json.Name("tokens").BeginArray().Put(vocabulary.tokens[id]).EndArray().EndObject();
  }
  json.EndObject().EndObject();
}

void PutGgufIds(JsonWriter& json, const GgufVocabulary& vocabulary) {
  json.Name("vocab").BeginObject();
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.type(id) == GgufTokenType::kUnused) continue;
    json.Add(vocabulary.tokens[id], id);
  }
  json.EndObject();
}

}  // namespace mlc_native
