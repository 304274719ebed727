#include "sampling/token_limits.h"

#include <algorithm>
#include <vector>

#include "support/token_mask.h"

namespace mlc_native {
namespace {

// What would complete a sequence that is never to be completed.
void ForbidLastOf(std::span<const int32_t> bad, std::span<const int32_t> generated,
                  std::span<int32_t> mask) {
  const std::span<const int32_t> before = bad.first(bad.size() - 1);
  if (before.size() <= generated.size() &&
      std::ranges::equal(before, generated.last(before.size()))) {
    SetTokenBit(mask, bad.back(), false);
  }
}

// What would repeat a sequence of `size` tokens. The search is that of Knuth, Morris and Pratt: its
// time is linear in the tokens, also if they repeat themselves and the size is large.
void ForbidRepeats(std::span<const int32_t> tokens, int64_t size, std::span<int32_t> mask) {
  const auto num_before = static_cast<size_t>(size - 1);
  if (tokens.size() <= num_before) return;
  const std::span<const int32_t> before = tokens.last(num_before);
  // [n]: the longest part, short of n, with which the first n tokens of `before` begin and end.
  std::vector<size_t> borders(num_before + 1);
  const auto match = [&](size_t num_matched, int32_t token) {
    if (num_matched == num_before) num_matched = borders[num_matched];
    while (num_matched > 0 && before[num_matched] != token) num_matched = borders[num_matched];
    return num_before > 0 && before[num_matched] == token ? num_matched + 1 : 0;
  };
  for (size_t n = 1; n < num_before; ++n) borders[n + 1] = match(borders[n], before[n]);
  size_t num_matched = 0;  // tokens of `before`, just before `token`
  for (int32_t token : tokens) {
    if (num_matched == num_before) SetTokenBit(mask, token, false);
    num_matched = match(num_matched, token);
  }
}

}  // namespace

bool LimitsTokens(const GenerationConfig& config, int64_t num_generated) {
  return num_generated < config.min_tokens || !config.allowed_token_ids.empty() ||
         !config.bad_words.empty() || config.no_repeat_ngram_size > 0;
}

bool LimitsDependOnTokens(const GenerationConfig& config) {
  return config.no_repeat_ngram_size > 0 ||
         std::ranges::any_of(config.bad_words, [](const auto& bad) { return bad.size() > 1; });
}

void ForbidByLimits(const GenerationConfig& config, std::span<const int32_t> eos_token_ids,
                    const TokenHistory& history, std::span<int32_t> mask) {
  if (!config.allowed_token_ids.empty()) KeepTokenBits(mask, config.allowed_token_ids);
  if (history.num_generated < config.min_tokens) {
    for (int32_t id : config.stop_token_ids) SetTokenBit(mask, id, false);
    if (!config.debug_config.ignore_eos) {
      for (int32_t id : eos_token_ids) SetTokenBit(mask, id, false);
    }
  }
  for (const std::vector<int32_t>& bad : config.bad_words) {
    ForbidLastOf(bad, history.generated(), mask);
  }
  if (config.no_repeat_ngram_size > 0) {
    ForbidRepeats(history.tokens, config.no_repeat_ngram_size, mask);
  }
}

}  // namespace mlc_native
