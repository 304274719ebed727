// The parts of a tokenizer.json (format: huggingface/tokenizers), read into what encodes. Used
// while a file is loaded.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "mlc_native/tokenizer.h"
#include "support/config_fields.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/token_model.h"

namespace mlc_native {

// A part of a file is not supported; what() names it.
class UnsupportedPart : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// All parts of a file.
struct TokenizerParts {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::shared_ptr<const TokenIds> vocab;
  std::unique_ptr<const TokenModel> model;
  std::vector<AddedToken> added_tokens;
  SpecialTokens special_tokens;
  std::vector<std::string> patterns;  // the regular expressions of all parts, and of the decoder

  // By how much texts may become shorter before they are tokens; 0: that is not known.
  size_t most_shrinking = 1;

  // Of a TextEncoder: the steps that spell spaces.
  Normalizer spelling;
  std::string changes_texts;  // the first part that may change more of a text than spaces
};

// Throws LoadError.
ConfigFields ReadTokenizerFile(const std::string& path);
// Throws LoadError. Lists named "merges" are not needed. `visible` as
// TokenTable::FromTokenizerJson.
std::shared_ptr<const TokenTable> ReadTokenTable(const std::string& path, const ConfigFields& file,
                                                 const std::vector<std::string>& visible);
// Each throws LoadError, UnsupportedPart.
TokenizerParts ReadTokenizerParts(const std::string& path, const ConfigFields& file);
void ReadNormalizer(const ConfigFields& normalizer, TokenizerParts* parts);
// Returns whether words are written in the alphabet of ByteLevel.
bool ReadPreTokenizer(const ConfigFields& pre_tokenizer, TokenizerParts* parts);
void ReadModel(const ConfigFields& model, bool byte_level, TokenizerParts* parts);
SpecialTokens ReadPostProcessor(const ConfigFields& post_processor);

}  // namespace mlc_native
