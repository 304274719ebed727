// TokenModel turns one word into tokens: the "model" of tokenizer.json. Immutable after building;
// any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace mlc_native {

// Finds a std::string by a std::string_view.
struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using TokenIds = std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>>;

// The token "<0xE4>" of a byte.
std::string ByteToken(uint8_t byte);

class TokenModel {
 public:
  virtual ~TokenModel() = default;

  // Appends the tokens of a word. Returns false if the word has characters without a token and the
  // model has no token for unknown ones. Without `allows_unknown` it also returns false where
  // tokens would not spell the word. *token_ids is then incomplete.
  virtual bool Encode(std::string_view word, bool allows_unknown,
                      std::vector<int32_t>* token_ids) const = 0;
  // The token of unknown characters, or -1.
  virtual int32_t unk_id() const = 0;
};

}  // namespace mlc_native
