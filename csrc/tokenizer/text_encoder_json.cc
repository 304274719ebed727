// TextEncoder::FromTokenizerJson: reads what tokenizer.json says about encoding (format:
// huggingface/tokenizers).
#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <nlohmann/json.hpp>

#include "support/utf8.h"
#include "tokenizer/text_encoder.h"
#include "tokenizer/tokenizer_file.h"

namespace mlc_native {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMetaspace = "\xE2\x96\x81";  // U+2581

// A tokenizer of a kind that is not encoded here; what() says which.
class Unsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

WordRule RuleOfPattern(const std::string& pattern) {
  static constexpr std::pair<std::string_view, WordRule> kKnown[] = {
      {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
       word_rule::Gpt2},
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       word_rule::Llama3},
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       word_rule::Qwen2},
  };
  for (const auto& [known, rule] : kKnown) {
    if (pattern == known) return rule;
  }
  return word_rule::Llama3;
}

}  // namespace

class TextEncoder::Reader {
 public:
  Reader(const std::string& path, const TokenTable& table)
      : file_(Json::parse(ReadTokenizerFile(path))), table_(table) {}

  std::shared_ptr<const TextEncoder> Read() {
    const Json& model = file_.at("model");
    CheckModel(model);
    ReadNormalizer(file_.value("normalizer", Json()));
    ReadPreTokenizer(file_.value("pre_tokenizer", Json()));
    ReadSymbols(model.at("vocab"));
    ReadMerges(model.at("merges"));
    if (model.value("ignore_merges", false)) ReadWords();
    ReadAddedTokens(file_.value("added_tokens", Json::array()));
    return std::move(encoder_);
  }

 private:
  static void CheckModel(const Json& model) {
    const Json& vocab = model.at("vocab");
    const std::string type = model.value("type", vocab.is_array() ? "Unigram" : "BPE");
    if (type != "BPE") throw Unsupported("model type \"" + type + '"');
    for (const char* option : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
      const Json value = model.value(option, Json());
      if (!value.is_null() && value != "") throw Unsupported('"' + std::string(option) + '"');
    }
  }

  void ReadNormalizer(const Json& normalizer) {
    if (normalizer.is_null()) return;
    const auto type = normalizer.at("type").get<std::string>();
    if (type == "Sequence") {
      for (const Json& inner : normalizer.at("normalizers")) ReadNormalizer(inner);
    } else if (type == "Replace") {
      const Json& pattern = normalizer.at("pattern");
      if (pattern.value("String", "") != " " || normalizer.at("content") != kMetaspace) {
        throw Unsupported("normalizer \"Replace\" of what is no space");
      }
      space_is_metaspace_ = true;
    } else if (type != "Prepend" && type != "NFC") {
      throw Unsupported("normalizer \"" + type + '"');
    }
  }

  void ReadPreTokenizer(const Json& step) {
    if (step.is_null()) return;
    const auto type = step.at("type").get<std::string>();
    if (type == "Sequence") {
      for (const Json& inner : step.at("pretokenizers")) ReadPreTokenizer(inner);
    } else if (type == "ByteLevel") {
      byte_level_ = true;
      if (step.value("use_regex", true)) encoder_->pre_tokenizer_.Add(word_rule::Gpt2);
    } else if (type == "Digits") {
      encoder_->pre_tokenizer_.Add(step.value("individual_digits", false)
                                       ? word_rule::SingleDigits
                                       : word_rule::RunsOfDigits);
    } else if (type == "Metaspace") {
      space_is_metaspace_ = true;
      if (step.value("split", true)) encoder_->pre_tokenizer_.Add(word_rule::SpaceBegins);
    } else if (type == "Split") {
      const Json& pattern = step.at("pattern");
      if (pattern.contains("Regex")) {
        encoder_->pre_tokenizer_.Add(RuleOfPattern(pattern.at("Regex").get<std::string>()));
      }
    } else if (type != "Punctuation") {
      throw Unsupported("pre-tokenizer \"" + type + '"');
    }
  }

  // The tokens that words are spelled in before anything is merged.
  void ReadSymbols(const Json& vocab) {
    const bool byte_fallback = file_.at("model").value("byte_fallback", false);
    for (const auto& [token, id_json] : vocab.items()) {
      const auto id = id_json.get<int32_t>();
      const std::string_view bytes = table_.bytes(id);
      if (byte_level_ || (byte_fallback && IsByteToken(token))) {
        if (bytes.size() == 1) encoder_->byte_ids_[static_cast<uint8_t>(bytes[0])] = id;
      } else if (IsOneCharacter(token)) {
        ReadCharacter(token, id);
      }
      if (!table_.is_special(id)) token_ids_.emplace(token, id);
    }
  }

  void ReadCharacter(const std::string& token, int32_t id) {
    if (!space_is_metaspace_) {
      encoder_->char_ids_.emplace(token, id);
    } else if (token == kMetaspace) {
      encoder_->char_ids_.emplace(" ", id);
    } else if (token != " ") {
      encoder_->char_ids_.emplace(token, id);
    }
  }

  static bool IsByteToken(std::string_view token) {
    return token.size() == 6 && token.starts_with("<0x") && token.back() == '>';
  }

  static bool IsOneCharacter(std::string_view token) {
    if (token.empty()) return false;
    const Utf8Step step = ReadUtf8(token);
    return step.status == Utf8Status::kValid && step.length == token.size();
  }

  void ReadMerges(const Json& merges) {
    encoder_->merges_.Reserve(merges.size());
    int32_t rank = 0;
    for (const Json& merge : merges) {
      const auto [left, right] = MergeOf(merge);
      const auto left_id = token_ids_.find(left);
      const auto right_id = token_ids_.find(right);
      const auto merged_id = token_ids_.find(left + right);
      const auto end = token_ids_.end();
      if (left_id != end && right_id != end && merged_id != end) {
        encoder_->merges_.Add(left_id->second, right_id->second, rank, merged_id->second);
      }
      ++rank;
    }
  }

  // "a b" in old files, ["a", "b"] in new ones.
  static std::pair<std::string, std::string> MergeOf(const Json& merge) {
    if (merge.is_array()) return {merge.at(0), merge.at(1)};
    const auto both = merge.get<std::string>();
    const size_t space = std::min(both.find(' '), both.size());
    return {both.substr(0, space), both.substr(std::min(space + 1, both.size()))};
  }

  void ReadWords() {
    for (const auto& [token, id] : token_ids_) {
      encoder_->word_ids_.emplace(table_.bytes(id), id);
    }
  }

  void ReadAddedTokens(const Json& added_tokens) {
    for (const Json& added : added_tokens) {
      const auto text = added.at("content").get<std::string>();
      const bool strips = added.value("lstrip", false) || added.value("rstrip", false) ||
                          added.value("single_word", false);
      if (text.empty() || strips || added.value("special", false)) continue;
      encoder_->added_tokens_[static_cast<uint8_t>(text[0])].push_back({text, added.at("id")});
    }
    for (std::vector<AddedToken>& tokens : encoder_->added_tokens_) {
      std::sort(tokens.begin(), tokens.end(), [](const AddedToken& a, const AddedToken& b) {
        return a.text.size() > b.text.size();
      });
    }
  }

  const Json file_;
  const TokenTable& table_;
  std::shared_ptr<TextEncoder> encoder_{new TextEncoder};
  std::unordered_map<std::string, int32_t> token_ids_;  // as the vocabulary spells them
  bool byte_level_ = false;
  bool space_is_metaspace_ = false;
};

std::shared_ptr<const TextEncoder> TextEncoder::FromTokenizerJson(
    const std::string& tokenizer_json_path, const TokenTable& table, std::string* reason) {
  try {
    return Reader(tokenizer_json_path, table).Read();
  } catch (const Unsupported& unsupported) {
    *reason = unsupported.what();
    return nullptr;
  } catch (const Json::exception& error) {  // damaged text, a missing member, a wrong type
    FailTokenizerFile(tokenizer_json_path, error.what());
  }
}

}  // namespace mlc_native
