// TextEncoder: the parts of a tokenizer on texts that continue other ones.
#include <algorithm>
#include <utility>

#include "mlc_native/tokenizer.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/tokenizer_parts.h"

namespace mlc_native {
namespace {

// The added tokens that a text may become.
AddedTokens TokensOfTexts(const TokenizerParts& parts, const TokenTable& table) {
  std::vector<AddedToken> tokens;
  for (AddedToken token : parts.added_tokens) {
    if (token.lstrip || token.rstrip || token.single_word || table.is_special(token.id)) continue;
    token.normalized = false;
    tokens.push_back(std::move(token));
  }
  return AddedTokens(std::move(tokens), Normalizer());
}

class ContinuationEncoder final : public TextEncoder {
 public:
  ContinuationEncoder(TokenizerParts parts, const TokenTable& table)
      : parts_(std::move(parts)), added_tokens_(TokensOfTexts(parts_, table)) {
    for (int32_t id = 0; id < table.size(); ++id) is_special_.push_back(table.is_special(id));
  }

  bool Encode(std::string_view text, std::vector<int32_t>* token_ids) const override {
    try {
      return EncodeText(text, token_ids);
    } catch (const TextTooCostly&) {
      return false;
    }
  }

 private:
  bool EncodeText(std::string_view text, std::vector<int32_t>* token_ids) const {
    TextPool pool;
    std::vector<TextPiece> pieces;
    added_tokens_.Split(text, &pieces);
    for (TextPiece& piece : pieces) {
      if (piece.token_id != TextPiece::kNoToken || parts_.spelling.empty()) continue;
      piece.text = pool.emplace_back(parts_.spelling.Apply(piece.text).text);
    }
    parts_.pre_tokenizer.Apply(/*continues=*/true, &pool, &pieces);
    const size_t begin = token_ids->size();
    for (const TextPiece& piece : pieces) {
      if (piece.token_id != TextPiece::kNoToken) {
        token_ids->push_back(piece.token_id);
      } else if (!parts_.model->Encode(piece.text, /*allows_unknown=*/false, token_ids)) {
        return false;
      }
    }
    return std::none_of(token_ids->begin() + static_cast<std::ptrdiff_t>(begin), token_ids->end(),
                        [this](int32_t id) {
                          return static_cast<size_t>(id) < is_special_.size() && is_special_[id];
                        });
  }

  const TokenizerParts parts_;
  const AddedTokens added_tokens_;
  std::vector<bool> is_special_;  // by token
};

}  // namespace

std::shared_ptr<const TextEncoder> TextEncoder::FromTokenizerJson(
    const std::string& tokenizer_json_path, const TokenTable& table, std::string* reason) {
  try {
    TokenizerParts parts =
        ReadTokenizerParts(tokenizer_json_path, ReadTokenizerFile(tokenizer_json_path));
    if (parts.changes_texts.empty()) {
      return std::make_shared<const ContinuationEncoder>(std::move(parts), table);
    }
    *reason = parts.changes_texts;
  } catch (const UnsupportedPart& unsupported) {
    *reason = unsupported.what();
  }
  return nullptr;
}

}  // namespace mlc_native
