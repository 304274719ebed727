// TextEncoder::FromTokenizerJson: reads the parts of tokenizer.json that concern encoding (format:
// huggingface/tokenizers).
#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "model_files/model_files.h"
#include "support/config_fields.h"
#include "support/error.h"
#include "support/json.h"
#include "support/utf8.h"
#include "tokenizer/text_encoder.h"

namespace mlc_native {
namespace {

constexpr int64_t kMaxEncodedId = std::numeric_limits<int32_t>::max();
constexpr int kMaxSteps = 32;
constexpr size_t kMaxAddedTokens = size_t{64} << 10;
constexpr std::string_view kMetaspace = "\xE2\x96\x81";  // U+2581

// A kind of tokenizer that is not supported; what() names it.
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

class BpeEncoder::Reader {
 public:
  Reader(const std::string& path, const TokenTable& table)
      : file_(ReadModelFile(path)), table_(table) {}

  std::shared_ptr<const TextEncoder> Read() {
    const ConfigFields model = file_.Object("model");
    CheckModel(model);
    if (file_.Has("normalizer")) ReadNormalizer(file_.Object("normalizer"));
    if (file_.Has("pre_tokenizer")) ReadPreTokenizer(file_.Object("pre_tokenizer"));
    ReadSymbols(model);
    ReadMerges(Member(model, "merges").AsArray());
    if (model.Bool("ignore_merges", false)) ReadWords();
    if (file_.Has("added_tokens")) ReadAddedTokens(file_.Objects("added_tokens"));
    return std::move(encoder_);
  }

 private:
  static const JsonValue& Member(const ConfigFields& fields, const char* name) {
    const JsonValue* value = fields.Find(name);
    if (value == nullptr) fields.Fail(name, "is missing");
    return *value;
  }

  static void CheckModel(const ConfigFields& model) {
    const JsonValue& vocab = Member(model, "vocab");
    const std::string type = model.String("type", vocab.is_array() ? "Unigram" : "BPE");
    if (type != "BPE") throw Unsupported("model type \"" + type + '"');
    for (const char* option : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
      const JsonValue* value = model.Find(option);
      const bool is_empty = value == nullptr || (value->is_string() && value->AsString().empty());
      if (!is_empty) throw Unsupported('"' + std::string(option) + '"');
    }
  }

  void ReadNormalizer(const ConfigFields& normalizer) {
    const std::string type = normalizer.String("type");
    if (type == "Sequence") {
      for (const ConfigFields& inner : normalizer.Objects("normalizers")) ReadNormalizer(inner);
    } else if (type == "Replace") {
      const std::string pattern = normalizer.Object("pattern").String("String", "");
      if (pattern != " " || normalizer.String("content") != kMetaspace) {
        throw Unsupported("normalizer \"Replace\" of what is no space");
      }
      space_is_metaspace_ = true;
    } else if (type != "Prepend" && type != "NFC") {
      throw Unsupported("normalizer \"" + type + '"');
    }
  }

  void ReadPreTokenizer(const ConfigFields& step) {
    if (++num_steps_ > kMaxSteps) throw Unsupported("more than 32 pre-tokenizers");
    const std::string type = step.String("type");
    if (type == "Sequence") {
      for (const ConfigFields& inner : step.Objects("pretokenizers")) ReadPreTokenizer(inner);
    } else if (type == "ByteLevel") {
      byte_level_ = true;
      if (step.Bool("use_regex", true)) encoder_->pre_tokenizer_.Add(word_rule::Gpt2);
    } else if (type == "Digits") {
      encoder_->pre_tokenizer_.Add(step.Bool("individual_digits", false) ? word_rule::SingleDigits
                                                                         : word_rule::RunsOfDigits);
    } else if (type == "Metaspace") {
      space_is_metaspace_ = true;
      if (step.Bool("split", true)) encoder_->pre_tokenizer_.Add(word_rule::SpaceBegins);
    } else if (type == "Split") {
      const ConfigFields pattern = step.Object("pattern");
      if (pattern.Has("Regex")) {
        encoder_->pre_tokenizer_.Add(RuleOfPattern(pattern.String("Regex")));
      }
    } else if (type != "Punctuation") {
      throw Unsupported("pre-tokenizer \"" + type + '"');
    }
  }

  // The tokens that spell words before merging.
  void ReadSymbols(const ConfigFields& model) {
    const bool byte_fallback = model.Bool("byte_fallback", false);
    for (const auto& [token, id_value] : Member(model, "vocab").AsObject()) {
      const auto id = static_cast<int32_t>(id_value.AsInteger());
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
    if (space_is_metaspace_ && token == kMetaspace) {
      encoder_->char_ids_.emplace(" ", id);
    } else if (!space_is_metaspace_ || token != " ") {
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

  void ReadMerges(const JsonArray& merges) {
    encoder_->merges_.Reserve(merges.size());
    int32_t rank = 0;
    for (const JsonValue& merge : merges) {
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
  static std::pair<std::string, std::string> MergeOf(const JsonValue& merge) {
    if (merge.is_array()) {
      const JsonArray& pair = merge.AsArray();
      if (pair.size() != 2) throw JsonError("a merge is not of two tokens");
      return {pair[0].AsString(), pair[1].AsString()};
    }
    const std::string& both = merge.AsString();
    const size_t space = std::min(both.find(' '), both.size());
    return {both.substr(0, space), both.substr(std::min(space + 1, both.size()))};
  }

  void ReadWords() {
    for (const auto& [token, id] : token_ids_) {
      encoder_->word_ids_.emplace(table_.bytes(id), id);
    }
  }

  // Each is searched for at every place of a text where its first byte is.
  void ReadAddedTokens(const std::vector<ConfigFields>& added_tokens) {
    if (added_tokens.size() > kMaxAddedTokens) throw Unsupported("more than 65536 added tokens");
    for (const ConfigFields& added : added_tokens) {
      const std::string text = added.String("content");
      const bool strips = added.Bool("lstrip", false) || added.Bool("rstrip", false) ||
                          added.Bool("single_word", false);
      const int64_t id = added.Integer("id", std::nullopt, 0, kMaxEncodedId);
      if (text.empty() || strips || table_.is_special(static_cast<int32_t>(id))) continue;
      encoder_->added_tokens_[static_cast<uint8_t>(text[0])].push_back(
          {text, static_cast<int32_t>(id)});
    }
    for (std::vector<AddedToken>& tokens : encoder_->added_tokens_) {
      std::sort(tokens.begin(), tokens.end(), [](const AddedToken& a, const AddedToken& b) {
        return a.text.size() > b.text.size();
      });
    }
  }

  const ConfigFields file_;
  const TokenTable& table_;
  std::shared_ptr<BpeEncoder> encoder_{new BpeEncoder};
  std::unordered_map<std::string, int32_t> token_ids_;  // as the vocabulary spells them
  int num_steps_ = 0;
  bool byte_level_ = false;
  bool space_is_metaspace_ = false;
};

std::shared_ptr<const TextEncoder> TextEncoder::FromTokenizerJson(
    const std::string& tokenizer_json_path, const TokenTable& table, std::string* reason) {
  try {
    return BpeEncoder::Reader(tokenizer_json_path, table).Read();
  } catch (const Unsupported& unsupported) {
    *reason = unsupported.what();
    return nullptr;
  } catch (const LoadError& error) {  // about a field of it
    throw LoadError("tokenizer.json", error.what());
  } catch (const JsonError& error) {  // an entry of the vocabulary or a merge has a wrong type
    throw LoadError("tokenizer.json", tokenizer_json_path + ": " + error.what());
  }
}

}  // namespace mlc_native
