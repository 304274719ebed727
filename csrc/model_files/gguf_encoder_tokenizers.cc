#include "model_files/gguf_encoder_tokenizers.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "model_files/gguf_vocabulary.h"
#include "support/json.h"

namespace mlc_native {
namespace {

void PutSimple(JsonWriter& json, const char* name, const char* type) {
  json.Name(name);
  PutGgufType(json, type);
  json.EndObject();
}

// ---- WordPiece ----

constexpr std::string_view kContinues = "##";

// A file marks the tokens that begin a word, and tokenizer.json those that do not. The first
// converters left tokens such as "[unused1]" as they are.
std::string WordPieceOf(const GgufVocabulary& vocabulary, size_t id) {
  const std::string_view token = vocabulary.tokens[id];
  if (token.starts_with(kGgufSpace)) return std::string(token.substr(kGgufSpace.size()));
  const GgufTokenType type = vocabulary.type(id);
  const bool has_brackets = token.size() > 2 && token.front() == '[' && token.back() == ']';
  if (type != GgufTokenType::kNormal || has_brackets) return std::string(token);
  return std::string(kContinues).append(token);
}

// What the file names by one of the keys, or the token with this text.
size_t SpecialId(const GgufFile& file, const GgufVocabulary& vocabulary, const char* key,
                 std::string_view text, const char* other_key = "") {
  if (const std::optional<size_t> id = vocabulary.IdOf(file, key)) return *id;
  const auto found = std::ranges::find(vocabulary.tokens, text);
  if (found != vocabulary.tokens.end()) {
    return static_cast<size_t>(found - vocabulary.tokens.begin());
  }
  if (const std::optional<size_t> id = vocabulary.IdOf(file, other_key)) return *id;
  file.Fail(key, "is missing, and no token is " + std::string(text));
}

// Where the file does not say it, a vocabulary without upper case is one of lower case.
bool LowersCase(const GgufFile& file, const GgufVocabulary& vocabulary) {
  if (const auto lowers = file.Bool("tokenizer.ggml.normalizer.lowercase")) return *lowers;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string_view token = vocabulary.tokens[id];
    if (vocabulary.type(id) != GgufTokenType::kNormal || token.starts_with('[')) continue;
    if (std::ranges::any_of(token, [](char c) { return c >= 'A' && c <= 'Z'; })) return false;
  }
  return true;
}

void PutBertNormalizer(JsonWriter& json, const GgufFile& file, const GgufVocabulary& vocabulary) {
  json.Name("normalizer");
  PutGgufType(json, "BertNormalizer");
  json.Add("clean_text", true).Add("handle_chinese_chars", true).Name("strip_accents");
  const auto strips = file.Bool("tokenizer.ggml.normalizer.strip_accents");
  strips ? json.Put(*strips) : json.Null();  // as the case
  json.Add("lowercase", LowersCase(file, vocabulary)).EndObject();
}

// ---- Unigram ----

std::string InBase64(const std::vector<int64_t>& bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t bits = 0;
    for (size_t i = 0; i < 3; ++i) {
      const int64_t byte = at + i < bytes.size() ? bytes[at + i] : 0;
      bits = bits << 8 | static_cast<uint8_t>(byte);  // also of signed ones
    }
    const size_t num_digits = std::min<size_t>(bytes.size() - at, 3) + 1;
    for (size_t i = 0; i < 4; ++i) {
      text += i < num_digits ? kDigits[bits >> (18 - 6 * i) & 63] : '=';
    }
  }
  return text;
}

void PutCharacters(JsonWriter& json, const GgufFile& file) {
  const std::vector<int64_t> map = file.Integers("tokenizer.ggml.precompiled_charsmap");
  json.Name("normalizer");
  if (map.empty()) {
    json.Null();
    return;
  }
  PutGgufType(json, "Precompiled");
  json.Add("precompiled_charsmap", InBase64(map)).EndObject();
}

void PutMetaspace(JsonWriter& json, bool adds_space) {
  PutGgufType(json, "Metaspace");
  json.Add("replacement", kGgufSpace).Add("prepend_scheme", adds_space ? "always" : "never");
  json.Add("split", true).EndObject();
}

// Where further spaces count for nothing, each word has one in front of it.
void PutWords(JsonWriter& json, const GgufFile& file) {
  const bool adds_space = file.Bool("tokenizer.ggml.add_space_prefix").value_or(true);
  json.Name("pre_tokenizer");
  if (file.Bool("tokenizer.ggml.remove_extra_whitespaces").value_or(false)) {
    PutGgufType(json, "Sequence");
    json.Name("pretokenizers").BeginArray();
    PutGgufType(json, "WhitespaceSplit");
    json.EndObject();
    PutMetaspace(json, true);
    json.EndArray().EndObject();
  } else {
    PutMetaspace(json, adds_space);
  }
  json.Name("decoder");
  PutMetaspace(json, adds_space);
}

// As XLM-RoBERTa has it, two tokens are between two texts, unless the file says otherwise.
void PutTemplateOfUnigram(JsonWriter& json, const GgufFile& file,
                          const GgufVocabulary& vocabulary) {
  const auto adds = [&](const char* token, bool absent) {
    return file.Bool("tokenizer.ggml.add_" + std::string(token) + "_token").value_or(absent);
  };
  GgufTemplate around;
  if (adds("bos", false)) around.front = vocabulary.IdOf(file, kGgufBos);
  if (adds("eos", true)) around.back = vocabulary.IdOf(file, kGgufEos);
  if (around.back) around.between.push_back(*around.back);
  const std::optional<size_t> separator = vocabulary.IdOf(file, kGgufSep);
  const std::optional<size_t> between = separator ? separator : around.back;
  if (between && adds("sep", true)) around.between.push_back(*between);
  PutGgufTemplate(json, vocabulary, around);
}

// Each token with its score, in the order of the ids. Tokens that are not used become texts with a
// space, which no word has, and do not make unknown characters cheaper or dearer.
void PutPieces(JsonWriter& json, const GgufFile& file, const GgufVocabulary& vocabulary) {
  const std::vector<double> scores = vocabulary.Scores(file);
  const auto is_unused = [&](size_t id) { return vocabulary.type(id) == GgufTokenType::kUnused; };
  double worst = std::numeric_limits<double>::infinity();
  for (size_t id = 0; id < scores.size(); ++id) {
    if (!is_unused(id)) worst = std::min(worst, scores[id]);
  }
  json.Name("vocab").BeginArray();
  for (size_t id = 0; id < scores.size(); ++id) {
    // The reader of the file has made the nearest short number of a float32.
    const auto score = static_cast<double>(static_cast<float>(scores[id]));
    json.BeginArray();
    if (is_unused(id)) {
      json.Put(" " + std::string(vocabulary.tokens[id]))
          .Put(static_cast<double>(static_cast<float>(worst)));
    } else {
      json.Put(vocabulary.tokens[id]).Put(score);
    }
    json.EndArray();
  }
  json.EndArray();
}

}  // namespace

std::string GgufWordPieceJson(const GgufFile& file) {
  GgufVocabulary vocabulary(file);
  const size_t unknown = SpecialId(file, vocabulary, "tokenizer.ggml.unknown_token_id", "[UNK]");
  GgufTemplate around{.second_type = 1};
  around.front = SpecialId(file, vocabulary, "tokenizer.ggml.cls_token_id", "[CLS]", kGgufBos);
  around.back = SpecialId(file, vocabulary, kGgufSep, "[SEP]");
  around.between = {*around.back};
  std::vector<std::string> texts;
  texts.reserve(vocabulary.tokens.size());
  bool has_continued_words = false;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    texts.push_back(WordPieceOf(vocabulary, id));
    has_continued_words |= texts.back().starts_with(kContinues);
  }
  if (!has_continued_words) {
    file.Fail(kGgufTokens,
              "has no token that continues a word, so this is no WordPiece vocabulary");
  }
  JsonWriter json;
  std::ranges::copy(texts, vocabulary.tokens.begin());
  BeginGgufTokenizer(json, file, vocabulary);
  PutBertNormalizer(json, file, vocabulary);
  PutSimple(json, "pre_tokenizer", "BertPreTokenizer");
  PutGgufTemplate(json, vocabulary, around);
  json.Name("decoder");
  PutGgufType(json, "WordPiece");
  json.Add("prefix", kContinues).Add("cleanup", true).EndObject();
  json.Name("model");
  PutGgufType(json, "WordPiece");
  json.Add("unk_token", vocabulary.tokens[unknown]).Add("continuing_subword_prefix", kContinues);
  json.Add("max_input_chars_per_word", 100);
  PutGgufIds(json, vocabulary);
  json.EndObject().EndObject();
  return json.Take();
}

std::string GgufUnigramJson(const GgufFile& file) {
  const GgufVocabulary vocabulary(file);
  JsonWriter json;
  BeginGgufTokenizer(json, file, vocabulary);
  PutCharacters(json, file);
  PutWords(json, file);
  PutTemplateOfUnigram(json, file, vocabulary);
  json.Name("model");
  PutGgufType(json, "Unigram");
  json.Name("unk_id");
  const std::optional<size_t> unknown = vocabulary.IdOfUnknown(file);
  unknown ? json.Put(*unknown) : json.Null();
  PutPieces(json, file, vocabulary);
  const auto byte = static_cast<int64_t>(GgufTokenType::kByte);
  json.Add("byte_fallback", std::ranges::count(vocabulary.types, byte) > 0);
  json.EndObject().EndObject();
  return json.Take();
}

}  // namespace mlc_native
