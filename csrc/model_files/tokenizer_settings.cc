#include "model_files/tokenizer_settings.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "support/error.h"

namespace mlc_native {
namespace {

constexpr char kAddedDecoder[] = "added_tokens_decoder";
constexpr char kAddedFile[] = "added_tokens.json";
constexpr const char* kSpecialNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                         "pad_token", "cls_token", "mask_token"};
constexpr const char* kSpecialLists[] = {"additional_special_tokens", "extra_special_tokens"};

std::optional<ConfigFields> ReadIfThere(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  return ConfigFields::ReadFile(path);
}

bool Flag(const JsonValue& token, std::string_view name) {
  const JsonValue* flag = token.Find(name);
  return flag != nullptr && flag->is_bool() && flag->AsBool();
}

// A text, or an object as transformers writes an AddedToken.
std::optional<NamedToken> TokenIn(const JsonValue& value, bool is_special) {
  if (value.is_string()) return NamedToken{value.AsString(), {.special = is_special}};
  const JsonValue* content = value.Find("content");
  if (content == nullptr || !content->is_string()) return std::nullopt;
  return NamedToken{content->AsString(),
                    {.special = is_special || Flag(value, "special"),
                     .normalized = Flag(value, "normalized"),
                     .single_word = Flag(value, "single_word"),
                     .lstrip = Flag(value, "lstrip"),
                     .rstrip = Flag(value, "rstrip")}};
}

void CheckId(const std::string& file, const std::string& field, int64_t id) {
  if (id >= 0 && id < static_cast<int64_t>(kMaxVocabulary)) return;
  throw LoadError(field, file + ": \"" + field + "\" has the id " + std::to_string(id) +
                             ", must be in [0, " + std::to_string(kMaxVocabulary) + ")");
}

// The vocabulary with its tokens by their texts.
class TokenAdder {
 public:
  explicit TokenAdder(Vocabulary* vocabulary) : vocabulary_(*vocabulary) {
    if (vocabulary_.types.empty()) {
      vocabulary_.types.assign(vocabulary_.tokens.size(), static_cast<int64_t>(TokenType::kNormal));
    }
    for (size_t id = 0; id < vocabulary_.tokens.size(); ++id) {
      if (vocabulary_.type(id) != TokenType::kUnused) ids_.emplace(vocabulary_.tokens[id], id);
    }
    for (const AddedTokenText& token : vocabulary_.added) added_[token.id] = token;
  }
  ~TokenAdder() {
    vocabulary_.added.clear();
    for (const auto& [id, token] : added_) vocabulary_.added.push_back(token);
  }
  TokenAdder(const TokenAdder&) = delete;
  TokenAdder& operator=(const TokenAdder&) = delete;

  // At this id, unless another one has the text. Returns false if a word has the id.
  bool AddAt(size_t id, const NamedToken& token) {
    if (token.content.empty()) return true;
    if (const auto found = ids_.find(token.content); found != ids_.end()) {
      Mark(found->second, token);
      return true;
    }
    while (vocabulary_.tokens.size() <= id) Append("", TokenType::kUnused);
    // A piece may be a place that was kept free. Words and bytes are not.
    const bool has_scores = !vocabulary_.scores.empty();
    if (!has_scores && vocabulary_.type(id) == TokenType::kNormal) return false;
    const auto replaced = ids_.find(vocabulary_.tokens[id]);
    if (replaced != ids_.end() && replaced->second == id) ids_.erase(replaced);
    vocabulary_.tokens[id] = vocabulary_.Own(token.content);
    ids_.emplace(vocabulary_.tokens[id], id);
    Mark(id, token);
    return true;
  }

  // Behind the others, unless one has the text. Flags that are known already stay.
  void Add(const NamedToken& token) {
    const auto found = ids_.find(token.content);
    if (found == ids_.end()) {
      if (vocabulary_.tokens.size() < kMaxVocabulary) AddAt(vocabulary_.tokens.size(), token);
    } else if (const auto known = added_.find(found->second); known != added_.end()) {
      known->second.special |= token.flags.special;
      known->second.normalized &= !known->second.special;
      SetType(found->second, known->second.special);
    } else {
      Mark(found->second, token);
    }
  }

 private:
  void Append(std::string_view text, TokenType type) {
    vocabulary_.tokens.push_back(text);
    vocabulary_.types.push_back(static_cast<int64_t>(type));
    if (!vocabulary_.scores.empty()) vocabulary_.scores.push_back(0.0);
  }

  void Mark(size_t id, const NamedToken& token) {
    AddedTokenText flags = token.flags;
    flags.id = id;
    // A special token is found as it is written, also where a space is put in front of texts.
    flags.normalized &= !flags.special;
    added_[id] = flags;
    SetType(id, flags.special);
  }

  void SetType(size_t id, bool is_special) {
    if (vocabulary_.type(id) == TokenType::kUnknown) return;
    vocabulary_.types[id] =
        static_cast<int64_t>(is_special ? TokenType::kControl : TokenType::kUserDefined);
  }

  Vocabulary& vocabulary_;
  std::unordered_map<std::string_view, size_t> ids_;
  std::map<size_t, AddedTokenText> added_;
};

}  // namespace

void AddTokensOfTypes(Vocabulary* vocabulary) {
  for (size_t id = 0; id < vocabulary->tokens.size(); ++id) {
    if (!IsAddedType(vocabulary->type(id)) || vocabulary->tokens[id].empty()) continue;
    vocabulary->added.push_back(
        {.id = id, .special = vocabulary->type(id) != TokenType::kUserDefined});
  }
}

TokenizerSettings::TokenizerSettings(const std::string& folder)
    : place_(folder + "/tokenizer_config.json"), config_(ReadIfThere(place_)) {
  // Newer files have all in one.
  if (!config_ || !config_->Has(kAddedDecoder)) {
    map_ = ReadIfThere(folder + "/special_tokens_map.json");
  }
  const std::optional<ConfigFields> model = ReadIfThere(folder + "/config.json");
  if (config_) class_ = config_->String("tokenizer_class", "");
  if (class_.empty() && model) class_ = model->String("tokenizer_class", "");
  if (class_.ends_with("Fast")) class_.resize(class_.size() - 4);
  if (model) model_type_ = model->String("model_type", "");
  ReadAddedTokens(folder);
}

void TokenizerSettings::ReadAddedTokens(const std::string& folder) {
  if (config_ && config_->Has(kAddedDecoder)) {
    const ConfigFields decoder = config_->Object(kAddedDecoder);
    for (const std::string& name : decoder.Names()) {
      int64_t id = -1;
      const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
      if (error != std::errc() || end != name.data() + name.size()) id = -1;
      CheckId(place_, kAddedDecoder, id);
      const JsonValue* value = decoder.Find(name.c_str());
      const std::optional<NamedToken> token =
          value == nullptr ? std::nullopt : TokenIn(*value, false);
      if (!token) decoder.FailValue(name.c_str(), "a token with \"content\"");
      added_[id] = *token;
    }
    return;
  }
  const std::string path = folder + '/' + kAddedFile;
  const std::optional<ConfigFields> file = ReadIfThere(path);
  if (!file) return;
  for (const std::string& content : file->Names()) {
    const int64_t id =
        file->Integer(content.c_str(), std::nullopt, 0, static_cast<int64_t>(kMaxVocabulary) - 1);
    // Those that are special follow by their names.
    added_[id] = NamedToken{content, {.normalized = true}};
  }
}

bool TokenizerSettings::Has(const char* field) const { return config_ && config_->Has(field); }

bool TokenizerSettings::IsNull(const char* field) const {
  return config_ && config_->IsNull(field);
}

std::optional<bool> TokenizerSettings::Bool(const char* field) const {
  if (!Has(field)) return std::nullopt;
  return config_->Bool(field, false);
}

int64_t TokenizerSettings::Integer(const char* field, int64_t absent, int64_t min,
                                   int64_t max) const {
  return config_ ? config_->Integer(field, absent, min, max) : absent;
}

std::optional<NamedToken> TokenizerSettings::Token(const char* name) const {
  for (const std::optional<ConfigFields>* file : {&map_, &config_}) {
    const JsonValue* value = *file ? (*file)->Find(name) : nullptr;
    if (value != nullptr) return TokenIn(*value, true);
  }
  return std::nullopt;
}

std::optional<size_t> TokenizerSettings::IdOf(
    const char* name, const Vocabulary& vocabulary,
    std::initializer_list<std::string_view> absent) const {
  const auto find = [&](std::string_view text) -> std::optional<size_t> {
    const auto found = std::ranges::find(vocabulary.tokens, text);
    if (text.empty() || found == vocabulary.tokens.end()) return std::nullopt;
    return static_cast<size_t>(found - vocabulary.tokens.begin());
  };
  if (const std::optional<NamedToken> token = Token(name)) return find(token->content);
  if (IsNull(name)) return std::nullopt;
  for (const std::string_view text : absent) {
    if (const std::optional<size_t> id = find(text)) return id;
  }
  return std::nullopt;
}

void TokenizerSettings::AddTokens(std::span<const FamilyToken> absent,
                                  Vocabulary* vocabulary) const {
  TokenAdder adder(vocabulary);
  std::vector<const NamedToken*> displaced;
  for (const auto& [id, token] : added_) {
    if (!adder.AddAt(static_cast<size_t>(id), token)) displaced.push_back(&token);
  }
  for (const NamedToken* token : displaced) adder.Add(*token);
  for (const char* name : kSpecialNames) {
    const auto usual = std::ranges::find(absent, name, &FamilyToken::name);
    std::optional<NamedToken> token = Token(name);
    if (token) {
      const bool is_plain = usual != absent.end() && token->content == usual->text;
      token->flags.lstrip |= is_plain && usual->lstrip;
    } else if (usual != absent.end() && !IsNull(name)) {
      token = NamedToken{std::string(usual->text), {.special = true, .lstrip = usual->lstrip}};
    }
    if (token) adder.Add(*token);
  }
  for (const char* name : kSpecialLists) {
    for (const std::optional<ConfigFields>* file : {&map_, &config_}) {
      const JsonValue* list = *file ? (*file)->Find(name) : nullptr;
      if (list == nullptr) continue;
      const auto add = [&](const JsonValue& value) {
        if (const auto token = TokenIn(value, true)) adder.Add(*token);
      };
      if (list->is_array()) {
        for (const JsonValue& value : list->AsArray()) add(value);
      } else if (list->is_object()) {
        for (const JsonMember& member : list->AsObject()) add(member.value);
      }
      break;
    }
  }
}

}  // namespace mlc_native
