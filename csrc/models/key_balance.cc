#include "models/key_balance.h"

#include <algorithm>
#include <cmath>

#include "support/check.h"

namespace mlc_native {
namespace {

// With 1, all channels would be alike, and queries would have the differences: their products are
// rounded, too, on some processors. On published models 0.75 gave the smallest error.
constexpr float kShare = 0.75f;
constexpr float kMaxExponent = 8.0f;

// The channel that rope mixes this one with.
int64_t PartnerOf(int64_t channel, const KeyHeads& heads) {
  if (channel >= heads.rotary_dim) return channel;
  if (heads.interleaved) return channel ^ 1;
  const int64_t half = heads.rotary_dim / 2;
  return channel < half ? channel + half : channel - half;
}

float MedianOf(std::vector<float> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace

std::vector<float> BalanceOf(std::span<const float> largest, const KeyHeads& heads) {
  MLC_CHECK(std::ssize(largest) == heads.kv_heads * heads.head_dim) << largest.size();
  std::vector<float> balance(largest.size(), 1.0f);
  const auto dim = static_cast<size_t>(heads.head_dim);
  std::vector<float> of_head(dim);
  for (size_t first = 0; first < largest.size(); first += dim) {
    for (size_t i = 0; i < dim; ++i) {
      const auto partner = static_cast<size_t>(PartnerOf(static_cast<int64_t>(i), heads));
      of_head[i] = std::max(largest[first + i], largest[first + partner]);
      if (!std::isfinite(of_head[i])) of_head[i] = 0;
    }
    const float usual = MedianOf(of_head);
    if (usual <= 0) continue;
    for (size_t i = 0; i < dim; ++i) {
      if (of_head[i] <= 0) continue;
      const float exponent = std::round(kShare * std::log2(of_head[i] / usual));
      balance[first + i] = std::exp2(std::clamp(exponent, -kMaxExponent, kMaxExponent));
    }
  }
  return balance;
}

std::vector<float> BalancingScales(std::span<const float> balance, const KeyHeads& heads) {
  MLC_CHECK(std::ssize(balance) == heads.kv_heads * heads.head_dim) << balance.size();
  std::vector<float> scales;
  scales.reserve(static_cast<size_t>((heads.q_heads + heads.kv_heads) * heads.head_dim));
  const int64_t queries_per_key = heads.q_heads / heads.kv_heads;
  for (int64_t head = 0; head < heads.q_heads; ++head) {
    const auto first = static_cast<size_t>(head / queries_per_key * heads.head_dim);
    const auto of_key = balance.subspan(first, static_cast<size_t>(heads.head_dim));
    scales.insert(scales.end(), of_key.begin(), of_key.end());
  }
  for (const float power : balance) scales.push_back(1 / power);
  return scales;
}

}  // namespace mlc_native
