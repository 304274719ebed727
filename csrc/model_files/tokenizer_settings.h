// TokenizerSettings is what the files beside a vocabulary say of it: tokenizer_config.json,
// special_tokens_map.json and added_tokens.json, and the family in config.json. A file that is not
// there says nothing. Immutable; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "model_files/vocabulary.h"
#include "support/config_fields.h"

namespace mlc_native {

// A token by its text.
struct NamedToken {
  std::string content;
  AddedTokenText flags;  // its id counts for nothing
};

// A special token of a family, such as {"bos_token", "<s>"}.
struct FamilyToken {
  std::string_view name;
  std::string_view text;
  bool lstrip = false;  // takes the spaces before it, unless a file says otherwise
};

class TokenizerSettings {
 public:
  // Throws LoadError for a damaged file.
  explicit TokenizerSettings(const std::string& folder);

  // As transformers names them since version 5: "LlamaTokenizer", also of "LlamaTokenizerFast".
  const std::string& tokenizer_class() const { return class_; }  // "": not said
  const std::string& model_type() const { return model_type_; }  // "": not said

  std::optional<bool> Bool(const char* field) const;
  int64_t Integer(const char* field, int64_t absent, int64_t min, int64_t max) const;
  bool Has(const char* field) const;
  bool IsNull(const char* field) const;                     // there, and null
  std::optional<NamedToken> Token(const char* name) const;  // such as "bos_token"

  // The id of the token `name`, or else of the first of the texts that the vocabulary has.
  std::optional<size_t> IdOf(const char* name, const Vocabulary& vocabulary,
                             std::initializer_list<std::string_view> absent) const;

  // Makes added tokens of those that the files name, and appends those that the vocabulary lacks.
  // `absent` are the special tokens that a family has where no file names others.
  void AddTokens(std::span<const FamilyToken> absent, Vocabulary* vocabulary) const;

 private:
  void ReadAddedTokens(const std::string& folder);

  std::string place_;                    // of the files, for messages
  std::optional<ConfigFields> config_;   // tokenizer_config.json
  std::optional<ConfigFields> map_;      // special_tokens_map.json; precedes the other
  std::map<int64_t, NamedToken> added_;  // by id
  std::string class_, model_type_;
};

// Adds the tokens whose types say that they are added ones.
void AddTokensOfTypes(Vocabulary* vocabulary);

}  // namespace mlc_native
