// Masks of tokens: bit t % 32 of word t / 32 says whether token t is allowed. Pure; any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace mlc_native {

inline constexpr int64_t kTokensPerWord = 32;

constexpr int64_t TokenMaskWords(int64_t vocab_size) {
  return (vocab_size + kTokensPerWord - 1) / kTokensPerWord;
}

// Tokens beyond the mask are ignored.
inline void SetTokenBit(std::span<int32_t> mask, int32_t token_id, bool value) {
  if (token_id < 0 || static_cast<size_t>(token_id / kTokensPerWord) >= mask.size()) return;
  const auto bit = static_cast<int32_t>(uint32_t{1} << (token_id % kTokensPerWord));
  int32_t& word = mask[token_id / kTokensPerWord];
  word = value ? word | bit : word & ~bit;
}

inline bool HasTokenBit(std::span<const int32_t> mask, int32_t token_id) {
  if (token_id < 0 || static_cast<size_t>(token_id / kTokensPerWord) >= mask.size()) return false;
  return (static_cast<uint32_t>(mask[token_id / kTokensPerWord]) >> (token_id % kTokensPerWord) &
          1) != 0;
}

// Clears every bit but those of `token_ids`.
inline void KeepTokenBits(std::span<int32_t> mask, std::span<const int32_t> token_ids) {
  std::vector<int32_t> kept;
  std::ranges::copy_if(token_ids, std::back_inserter(kept),
                       [&](int32_t id) { return HasTokenBit(mask, id); });
  std::ranges::fill(mask, 0);
  for (int32_t id : kept) SetTokenBit(mask, id, true);
}

}  // namespace mlc_native
