// How the channels of keys are evened out before keys become 8 bits.
//
// All channels of a key share one scale, and in many models some of them are far larger than the
// others: those with a large bias (Qwen2) or a large weight of the keys' norm (Gemma 3, Qwen3).
// Then few codes are left for the others. So each channel of the keys is divided by a power of two,
// and that of the queries is multiplied by it. Both are exact, so that of the scores only the
// rounding of the keys changes. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace mlc_native {

// The heads of a layer.
struct KeyHeads {
  int64_t q_heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t rotary_dim = 0;    // 0: no rope
  bool interleaved = false;  // as RopeArgs
};

// What each channel of the keys is divided by, [kv_heads * head_dim], from its largest magnitude in
// some keys in front of rope. Channels that rope mixes have the same. What is not finite or zero
// counts as usual.
std::vector<float> BalanceOf(std::span<const float> largest, const KeyHeads& heads);

// What queries and, behind them, keys are multiplied by: [(q_heads + kv_heads) * head_dim].
// Requires: balance has a power for each channel of the keys that the queries meet.
std::vector<float> BalancingScales(std::span<const float> balance, const KeyHeads& heads);

}  // namespace mlc_native
