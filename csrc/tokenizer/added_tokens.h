// AddedTokens finds the added tokens of a tokenizer.json in a text, before it is split into words.
// Immutable after building; any thread.
//
// Of the tokens that begin at a place the longest one is taken, and the next one is searched for
// behind it. Tokens with "normalized" are searched for in the normalized text, the others before.
//
// Control tokens are the special ones, and others that look like <|user|>. In a prompt whose texts
// are of several authors, they are found within the texts of the chat template alone.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "mlc_native/tokenizer.h"
#include "tokenizer/byte_trie.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"

namespace mlc_native {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;
  bool normalized = false;
  bool single_word = false;  // neither a word character before it nor behind it
  bool lstrip = false;       // takes the spaces before it
  bool rstrip = false;       // takes the spaces behind it

  bool is_control() const;
};

class AddedTokens {
 public:
  AddedTokens() = default;
  // Throws TextTooCostly.
  AddedTokens(std::vector<AddedToken> tokens, const Normalizer& normalizer);

  // Where control tokens begin that are found outside the texts `own`, which ascend.
  std::vector<size_t> ForeignControls(std::string_view text, std::span<const TextSpan> own) const;
  bool IsControl(int32_t token_id) const { return control_ids_.contains(token_id); }

  // Appends the pieces of a text that is not normalized.
  void Split(std::string_view text, std::vector<TextPiece>* pieces) const;
  // The same with control tokens within `own` alone, whatever their flags "normalized" and
  // "single_word".
  void SplitOwn(std::string_view text, std::span<const TextSpan> own,
                std::vector<TextPiece>* pieces) const;
  // Appends the pieces of a normalized one, without control tokens unless they are wanted.
  void SplitNormalized(const TextPiece& normalized, bool wants_controls,
                       std::vector<TextPiece>* pieces) const;

  const std::vector<AddedToken>& tokens() const { return tokens_; }

 private:
  struct Match {
    size_t begin;
    size_t end;
    const AddedToken* token;
    bool is_own = false;  // a control token of the template
  };
  // Appends the matches in text[begin, end).
  void Find(const ByteTrie& trie, std::string_view text, TextSpan within,
            std::vector<Match>* matches) const;
  // Appends the pieces between the matches, and those that the flags of the tokens leave.
  static void Cut(const TextPiece& whole, const std::vector<Match>& matches,
                  std::vector<TextPiece>* pieces);

  std::vector<AddedToken> tokens_;
  // Their values are indices of tokens_.
  ByteTrie raw_, normalized_;
  ByteTrie raw_texts_, normalized_texts_;  // without control tokens
  ByteTrie controls_;
  std::unordered_set<int32_t> control_ids_;
};

}  // namespace mlc_native
