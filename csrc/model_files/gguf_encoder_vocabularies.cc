#include "model_files/gguf_encoder_vocabularies.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model_files/gguf_vocabulary.h"

namespace mlc_native {
namespace {

// ---- WordPiece ----

// A file marks the tokens that begin a word, and tokenizer.json those that do not. The first
// converters left tokens such as "[unused1]" as they are.
std::string WordPieceOf(const Vocabulary& vocabulary, size_t id) {
  const std::string_view token = vocabulary.tokens[id];
  if (token.starts_with(kSpaceMark)) return std::string(token.substr(kSpaceMark.size()));
  const bool has_brackets = token.size() > 2 && token.front() == '[' && token.back() == ']';
  if (vocabulary.type(id) != TokenType::kNormal || has_brackets) return std::string(token);
  return std::string("##").append(token);
}

// What the file names by one of the keys, or the token with this text.
size_t SpecialId(const GgufFile& file, const Vocabulary& vocabulary, const char* key,
                 std::string_view text, const char* other_key = "") {
  if (const std::optional<size_t> id = GgufTokenId(file, vocabulary, key)) return *id;
  const auto found = std::ranges::find(vocabulary.tokens, text);
  if (found != vocabulary.tokens.end()) {
    return static_cast<size_t>(found - vocabulary.tokens.begin());
  }
  if (const std::optional<size_t> id = GgufTokenId(file, vocabulary, other_key)) return *id;
  file.Fail(key, "is missing, and no token is " + std::string(text));
}

// Where the file does not say it, a vocabulary without upper case is one of lower case.
bool LowersCase(const GgufFile& file, const Vocabulary& vocabulary) {
  if (const auto lowers = file.Bool("tokenizer.ggml.normalizer.lowercase")) return *lowers;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string_view token = vocabulary.tokens[id];
    if (vocabulary.type(id) != TokenType::kNormal || token.starts_with('[')) continue;
    if (std::ranges::any_of(token, [](char c) { return c >= 'A' && c <= 'Z'; })) return false;
  }
  return true;
}

// ---- Unigram ----

// As XLM-RoBERTa has it, two tokens are between two texts, unless the file says otherwise.
SpecialTemplate TemplateOfUnigram(const GgufFile& file, const Vocabulary& vocabulary) {
  const auto adds = [&](const char* token, bool absent) {
    return file.Bool("tokenizer.ggml.add_" + std::string(token) + "_token").value_or(absent);
  };
  SpecialTemplate around;
  if (adds("bos", false)) around.front = GgufTokenId(file, vocabulary, kGgufBos);
  if (adds("eos", true)) around.back = GgufTokenId(file, vocabulary, kGgufEos);
  if (around.back) around.between.push_back(*around.back);
  const std::optional<size_t> separator = GgufTokenId(file, vocabulary, kGgufSep);
  const std::optional<size_t> between = separator ? separator : around.back;
  if (between && adds("sep", true)) around.between.push_back(*between);
  return around;
}

}  // namespace

Vocabulary ReadGgufWordPiece(const GgufFile& file) {
  Vocabulary vocabulary = ReadGgufVocabulary(file);
  vocabulary.model = Vocabulary::Model::kWordPiece;
  vocabulary.unknown = SpecialId(file, vocabulary, "tokenizer.ggml.unknown_token_id", "[UNK]");
  SpecialTemplate& around = vocabulary.around;
  around.second_type = 1;
  around.front = SpecialId(file, vocabulary, "tokenizer.ggml.cls_token_id", "[CLS]", kGgufBos);
  around.back = SpecialId(file, vocabulary, kGgufSep, "[SEP]");
  around.between = {*around.back};
  vocabulary.lowers_case = LowersCase(file, vocabulary);
  vocabulary.strips_accents = file.Bool("tokenizer.ggml.normalizer.strip_accents");
  bool has_continued_words = false;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    vocabulary.tokens[id] = vocabulary.Own(WordPieceOf(vocabulary, id));
    has_continued_words |= vocabulary.tokens[id].starts_with("##");
  }
  if (!has_continued_words) {
    file.Fail(kGgufTokens,
              "has no token that continues a word, so this is no WordPiece vocabulary");
  }
  return vocabulary;
}

Vocabulary ReadGgufUnigram(const GgufFile& file) {
  Vocabulary vocabulary = ReadGgufVocabulary(file);
  vocabulary.model = Vocabulary::Model::kUnigram;
  vocabulary.spaces = Vocabulary::Spaces::kInWords;
  vocabulary.scores = GgufScores(file, vocabulary);
  for (const int64_t byte : file.Integers("tokenizer.ggml.precompiled_charsmap")) {
    vocabulary.characters.push_back(static_cast<char>(byte));  // also of signed ones
  }
  vocabulary.adds_space = file.Bool("tokenizer.ggml.add_space_prefix").value_or(true);
  vocabulary.joins_spaces = file.Bool("tokenizer.ggml.remove_extra_whitespaces").value_or(false);
  vocabulary.around = TemplateOfUnigram(file, vocabulary);
  vocabulary.unknown = GgufUnknownId(file, vocabulary);
  const auto byte = static_cast<int64_t>(TokenType::kByte);
  vocabulary.falls_back_to_bytes = std::ranges::count(vocabulary.types, byte) > 0;
  return vocabulary;
}

}  // namespace mlc_native
