#include "tokenizer/bpe_model.h"

#include <algorithm>
#include <utility>

#include "support/byte_level.h"
#include "support/error.h"
#include "support/utf8.h"

namespace mlc_native {

std::string ByteToken(uint8_t byte) {
  constexpr char kHex[] = "0123456789ABCDEF";
  return std::string("<0x") + kHex[byte >> 4] + kHex[byte & 15] + '>';
}

BpeModel::BpeModel(std::shared_ptr<const TokenIds> vocab, const std::vector<Merge>& merges,
                   BpeOptions options)
    : vocab_(std::move(vocab)), options_(std::move(options)), merges_(merges.size()) {
  const auto id_of = [this](const std::string& token) {
    const int32_t id = Find(token);
    if (id != kNoToken) return id;
    throw LoadError("tokenizer.json", "tokenizer.json: the token \"" + ToValidUtf8(token) +
                                          "\" of a merge is not in the vocabulary");
  };
  int32_t rank = 0;
  for (const Merge& merge : merges) {
    const size_t skipped = std::min(options_.prefix.size(), merge.right.size());
    merges_.Add(id_of(merge.left), id_of(merge.right), rank++,
                id_of(merge.left + merge.right.substr(skipped)));
  }
  if (!options_.unk_token.empty()) unk_id_ = Find(options_.unk_token);
  if (options_.byte_level) ReadByteTokens();
  for (int byte = 0; byte < 256; ++byte) {
    fallback_ids_[byte] =
        options_.byte_fallback ? Find(ByteToken(static_cast<uint8_t>(byte))) : kNoToken;
  }
}

void BpeModel::ReadByteTokens() {
  const ByteLevelAlphabet alphabet;
  for (int byte = 0; byte < 256; ++byte) {
    const char character = static_cast<char>(byte);
    alphabet_[byte] = alphabet.Spell({&character, 1});
  }
  for (int place = 0; place < kNumPlaces; ++place) {
    for (int byte = 0; byte < 256; ++byte) {
      byte_ids_[place][byte] = Find(Spelling(alphabet_[byte], place));
    }
  }
}

int32_t BpeModel::Find(std::string_view token) const {
  const auto found = vocab_->find(token);
  return found == vocab_->end() ? kNoToken : found->second;
}

std::string BpeModel::Spelling(std::string_view character, int place) const {
  std::string token;
  if ((place & kFirst) == 0) token = options_.prefix;
  token += character;
  if ((place & kLast) != 0) token += options_.suffix;
  return token;
}

// An unknown character is added when the next known one comes, behind the bytes of those that have
// come meanwhile, as in the tokenizers package.
struct BpeModel::Speller {
  const BpeModel& model;
  const bool allows_unknown;
  std::vector<int32_t>* token_ids;
  bool has_unknown = false;

  void Flush() {
    if (has_unknown) token_ids->push_back(model.unk_id_);
    has_unknown = false;
  }

  void AddKnown(int32_t id) {
    Flush();
    token_ids->push_back(id);
  }

  // `spelling` is what the vocabulary lacks.
  bool AddUnknown(std::string_view spelling) {
    const auto id_of = [this](char byte) {
      return model.fallback_ids_[static_cast<uint8_t>(byte)];
    };
    if (std::ranges::none_of(spelling, [&](char c) { return id_of(c) == kNoToken; })) {
      for (char byte : spelling) token_ids->push_back(id_of(byte));
      return true;
    }
    if (!allows_unknown) return false;
    if (model.options_.unk_token.empty()) return true;
    if (model.unk_id_ == kNoToken) return false;
    if (!model.options_.fuse_unk) Flush();
    has_unknown = true;
    return true;
  }

  bool SpellBytes(std::string_view word) {
    for (size_t i = 0; i < word.size(); ++i) {
      const int place = (i == 0 ? kFirst : 0) | (i + 1 == word.size() ? kLast : 0);
      const auto byte = static_cast<uint8_t>(word[i]);
      const int32_t id = model.byte_ids_[place][byte];
      if (id != kNoToken) {
        AddKnown(id);
      } else if (!AddUnknown(model.Spelling(model.alphabet_[byte], place))) {
        return false;
      }
    }
    Flush();
    return true;
  }

  bool SpellCharacters(std::string_view word) {
    const bool is_plain = model.options_.prefix.empty() && model.options_.suffix.empty();
    for (size_t at = 0; at < word.size();) {
      const size_t length = ReadUtf8(word.substr(at)).length;
      const int place = (at == 0 ? kFirst : 0) | (at + length == word.size() ? kLast : 0);
      const std::string_view character = word.substr(at, length);
      const std::string spelling = is_plain ? "" : model.Spelling(character, place);
      const std::string_view token = is_plain ? character : spelling;
      const int32_t id = model.Find(token);
      if (id != kNoToken) {
        AddKnown(id);
      } else if (!AddUnknown(token)) {
        return false;
      }
      at += length;
    }
    Flush();
    return true;
  }
};

bool BpeModel::Encode(std::string_view word, bool allows_unknown,
                      std::vector<int32_t>* token_ids) const {
  if (options_.ignore_merges) {
    std::string written;
    if (options_.byte_level) {
      for (char byte : word) written += alphabet_[static_cast<uint8_t>(byte)];
    }
    const int32_t id = Find(options_.byte_level ? std::string_view(written) : word);
    if (id != kNoToken) {
      token_ids->push_back(id);
      return true;
    }
  }
  const size_t begin = token_ids->size();
  Speller speller{*this, allows_unknown, token_ids};
  const bool is_spelled =
      options_.byte_level ? speller.SpellBytes(word) : speller.SpellCharacters(word);
  if (!is_spelled) return false;
  merges_.Apply(begin, token_ids);
  return true;
}

}  // namespace mlc_native
