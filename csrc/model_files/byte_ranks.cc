#include "model_files/byte_ranks.h"

#include <array>
#include <optional>
#include <utility>

#include "model_files/merges.h"
#include "support/base64.h"
#include "support/byte_level.h"
#include "support/error.h"

namespace mlc_native {

void ByteRanks::Fail(const std::string& place, const std::string& what) const {
  throw LoadError(place, path_ + ": " + place + " " + what);
}

void ByteRanks::Add(const std::string& place, std::string_view base64, size_t rank) {
  std::optional<std::string> bytes = FromBase64(base64);
  if (!bytes || bytes->empty()) Fail(place, "is no token in base64");
  if (rank >= kMaxVocabulary) {
    Fail(place, "has the rank " + std::to_string(rank) + ", must be in [0, " +
                    std::to_string(kMaxVocabulary) + ")");
  }
  if (rank >= bytes_.size()) bytes_.resize(rank + 1);
  if (!bytes_[rank].empty()) {
    Fail(place, "has the rank " + std::to_string(rank) + " of another token");
  }
  if (!known_.insert(*bytes).second) Fail(place, "is a token that has another rank, too");
  bytes_[rank] = *std::move(bytes);
}

void ByteRanks::AppendTo(Vocabulary* vocabulary, bool with_merges) const {
  for (int byte = 0; byte < 256; ++byte) {
    if (known_.contains(std::string(1, static_cast<char>(byte)))) continue;
    throw LoadError(path_.substr(path_.rfind('/') + 1),
                    path_ + ": has no token for the byte " + std::to_string(byte));
  }
  const ByteLevelAlphabet alphabet;
  const size_t first = vocabulary->tokens.size();
  vocabulary->model = Vocabulary::Model::kByteLevelBpe;
  vocabulary->types.resize(first, static_cast<int64_t>(TokenType::kNormal));
  for (const std::string& bytes : bytes_) {
    const TokenType type = bytes.empty() ? TokenType::kUnused : TokenType::kNormal;
    vocabulary->types.push_back(static_cast<int64_t>(type));
    vocabulary->tokens.push_back(vocabulary->Own(alphabet.Spell(bytes)));
  }
  if (!with_merges) return;
  vocabulary->merge_pairs = MergesByRank(bytes_, path_);
  for (MergePair& merge : vocabulary->merge_pairs) {
    merge.left += first;
    merge.right += first;
  }
}

}  // namespace mlc_native
