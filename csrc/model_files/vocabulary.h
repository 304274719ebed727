// Vocabulary is a vocabulary and how it cuts texts, as a GGUF file or the files of a model folder
// say it: all that a tokenizer.json (huggingface/tokenizers) is written of.
//
// The texts of its tokens are those of the file that it was read from, which must outlive it, or
// its own ones. Belongs to one thread while it is filled; any thread then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model_files/word_splits.h"

namespace mlc_native {

inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581
inline constexpr size_t kMaxVocabulary = size_t{1} << 20;       // tokens

// As SentencePiece and GGUF number them.
enum class TokenType : int64_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

// Whether tokens of this type are found in texts before these are split into words.
inline bool IsAddedType(TokenType type) {
  return type == TokenType::kControl || type == TokenType::kUserDefined ||
         type == TokenType::kUnknown;
}

// A token that is found in texts before these are split into words.
struct AddedTokenText {
  size_t id = 0;
  bool special = false;
  bool normalized = false;
  bool single_word = false;
  bool lstrip = false;
  bool rstrip = false;
};

// The special tokens around a text, and those of a pair.
struct SpecialTemplate {
  std::optional<size_t> front{};
  std::optional<size_t> back{};
  std::vector<size_t> between{};  // behind the first text of a pair
  int second_type = 0;            // of the second text, and of what is behind it
};

// Two tokens, by their ids, that become one.
struct MergePair {
  size_t left = 0;
  size_t right = 0;
};

struct Vocabulary {
  enum class Model : uint8_t { kByteLevelBpe, kSpacedBpe, kUnigram, kWordPiece };
  // Where a space becomes U+2581.
  enum class Spaces : uint8_t {
    kInTexts,  // in every text between two added tokens, with one in front
    kAtStart,  // the same with one in front of the whole alone
    kInWords,  // texts are cut in front of spaces
  };

  Vocabulary() = default;
  Vocabulary(Vocabulary&&) noexcept = default;  // keeps the places of `owned`
  Vocabulary& operator=(Vocabulary&&) noexcept = default;

  TokenType type(size_t id) const {
    return types.empty() ? TokenType::kNormal : static_cast<TokenType>(types[id]);
  }
  std::string_view Own(std::string text) { return owned.emplace_back(std::move(text)); }

  Model model = Model::kByteLevelBpe;
  std::vector<std::string_view> tokens;  // by id
  std::vector<int64_t> types;            // TokenType; or none
  std::vector<AddedTokenText> added;
  SpecialTemplate around;
  std::optional<size_t> unknown;

  // Of both kinds of BPE, in one of two forms: "a b", of texts without spaces, or ids.
  std::vector<std::string_view> merge_texts;
  std::vector<MergePair> merge_pairs;

  // Of byte-level BPE.
  WordSplit words;
  std::vector<std::string_view> regexes;  // where `words` does not have those of a known name
  bool adds_word_space = false;           // in front of a text

  // Of BPE of characters, and of Unigram.
  std::vector<double> scores;  // one for each token; BPE needs none
  bool falls_back_to_bytes = false;
  std::string characters;  // SentencePiece's precompiled table of replacements
  bool adds_space = true;  // in front of a text
  bool joins_spaces = false;
  Spaces spaces = Spaces::kInTexts;

  // Of WordPiece.
  bool lowers_case = false;
  bool splits_chinese = true;
  std::optional<bool> strips_accents;  // nullopt: as the case

  std::deque<std::string> owned;
};

}  // namespace mlc_native
