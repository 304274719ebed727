// BpeModel: byte-pair encoding. Immutable after building; any thread.
//
// A word is spelled in the tokens of its characters, or of its bytes behind the pre-tokenizer
// ByteLevel, whose alphabet the tokens then are written in. Pairs of tokens are merged.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/bpe_merges.h"
#include "tokenizer/token_model.h"

namespace mlc_native {

struct BpeOptions {
  bool byte_level = false;
  bool byte_fallback = false;  // a character without a token becomes the tokens of its bytes
  bool fuse_unk = false;       // a run of unknown characters is one token
  bool ignore_merges = false;  // a word that is a token is that token
  std::string unk_token;       // none: unknown characters are left out
  std::string prefix;          // of the tokens of all characters but the first of a word
  std::string suffix;          // of the token of the last character
};

class BpeModel final : public TokenModel {
 public:
  struct Merge {
    std::string left;
    std::string right;
  };
  // Throws LoadError if a merge or unk_token is not in the vocabulary.
  BpeModel(std::shared_ptr<const TokenIds> vocab, const std::vector<Merge>& merges,
           BpeOptions options);

  bool Encode(std::string_view word, bool allows_unknown,
              std::vector<int32_t>* token_ids) const override;
  int32_t unk_id() const override { return unk_id_; }

 private:
  static constexpr int32_t kNoToken = -1;
  enum Place : uint8_t { kMiddle = 0, kFirst = 1, kLast = 2, kNumPlaces = 4 };  // bits

  struct Speller;  // of one word
  void ReadByteTokens();
  int32_t Find(std::string_view token) const;
  // The vocabulary's spelling of a character at a place of a word.
  std::string Spelling(std::string_view character, int place) const;

  const std::shared_ptr<const TokenIds> vocab_;
  const BpeOptions options_;
  BpeMerges merges_;
  int32_t unk_id_ = kNoToken;
  std::array<std::array<int32_t, 256>, kNumPlaces> byte_ids_{};  // byte_level: by place and byte
  std::array<std::string, 256> alphabet_;    // byte_level: how a byte is written
  std::array<int32_t, 256> fallback_ids_{};  // byte_fallback: by byte
};

}  // namespace mlc_native
