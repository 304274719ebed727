// UnigramModel: the most likely tokens of a word (Viterbi's search over all ways to spell it).
// Immutable after building; any thread. Takes the length of the word times that of the longest
// token.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/byte_trie.h"
#include "tokenizer/token_model.h"

namespace mlc_native {

class UnigramModel final : public TokenModel {
 public:
  // `scores` are those of the ids. Throws LoadError for an unk_id beyond them.
  UnigramModel(std::shared_ptr<const TokenIds> vocab, std::vector<double> scores,
               std::optional<int32_t> unk_id, bool byte_fallback);

  bool Encode(std::string_view word, bool allows_unknown,
              std::vector<int32_t>* token_ids) const override;
  int32_t unk_id() const override { return unk_id_; }

 private:
  static constexpr int32_t kNoToken = -1;
  struct Node;  // the best way to spell the text before a place
  // Returns false for an unknown character without a token for such.
  bool FindBest(std::string_view word, std::vector<Node>* nodes) const;
  bool AddToken(std::string_view text, bool allows_unknown, std::vector<int32_t>* token_ids) const;

  const std::shared_ptr<const TokenIds> vocab_;
  const std::vector<double> scores_;
  const int32_t unk_id_;
  double unk_score_ = 0.0;
  ByteTrie trie_;
  std::array<int32_t, 256> fallback_ids_{};  // by byte
};

}  // namespace mlc_native
