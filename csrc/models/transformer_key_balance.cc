// What the keys of each layer are balanced by (key_balance.h), from the keys of random rows.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include "models/key_balance.h"
#include "models/transformer.h"
#include "support/random.h"
#include "weights/tensor_storage.h"

namespace mlc_native {
namespace {

constexpr int64_t kBalanceRows = 32;
constexpr uint64_t kBalanceSeed = 0x6b657973;

// Normally distributed, so that no channel of the rows stands out.
void FillRandomly(uint64_t layer, std::span<float> rows) {
  for (size_t i = 0; i < rows.size(); ++i) {
    const double radius = std::sqrt(-2 * std::log(1 - RandomUniform(kBalanceSeed, layer, 2 * i)));
    const double turns = RandomUniform(kBalanceSeed, layer, 2 * i + 1);
    rows[i] = static_cast<float>(radius * std::cos(2 * std::numbers::pi * turns));
  }
}

}  // namespace

void Transformer::BalanceKeys() {
  // Vectors by distance are multiplied with queries and keys as they are.
  const bool has_plain_keys = !config_.latent && !config_.compression && !config_.key_choice &&
                              !config_.draft_head &&
                              config_.arch->distance_rule != DistanceRule::kVectors;
  if (kv_format_ != kernels::KvFormat::kInt8 || !has_plain_keys || !balances_.empty()) return;
  const int64_t width = config_.Widest([&](const LayerConfig& layer) {
    return config_.attention_gates_size(layer) + config_.qkv_size(layer);
  });
  const TensorStorage workspace(kernels::LinearWorkspaceBytes(kBalanceRows, config_.hidden_size),
                                "kv_cache_dtype");
  std::vector<float> rows(static_cast<size_t>(kBalanceRows * config_.hidden_size));
  std::vector<float> qkv(static_cast<size_t>(kBalanceRows * width));

  std::vector<std::vector<float>> balances(config_.layers.size());  // of keys
  std::vector<std::vector<float>> scales(config_.layers.size());
  for (size_t i = 0; i < config_.layers.size(); ++i) {
    const LayerConfig& layer = config_.layers[i];
    if (!layer.attends()) continue;
    const KeyHeads heads{
        .q_heads = config_.heads_of(layer),
        .kv_heads = config_.kv_heads_of(layer),
        .head_dim = config_.head_dim_of(layer),
        .rotary_dim = layer.rope == LayerConfig::kNoRope
                          ? 0
                          : config_.ropes[static_cast<size_t>(layer.rope)].rotary_dim,
        .interleaved = config_.arch->interleaved_rope};
    if (layer.has_own_kv()) {
      FillRandomly(i, rows);
      const std::vector<float> largest =
          LargestKeys(i, {rows.data(), config_.hidden_size}, {qkv.data(), width}, workspace.data());
      balances[i] = BalanceOf(largest, heads);
    } else {
      balances[i] = balances[static_cast<size_t>(layer.kv_source)];
    }
    scales[i] = BalancingScales(balances[i], heads);
  }
  balances_ = std::move(scales);
}

std::vector<float> Transformer::LargestKeys(size_t layer, const Activations& x,
                                            const Activations& qkv, void* workspace) const {
  const CpuDecoderWeights::Layer& w = weights_.layers[layer];
  const LayerConfig& sizes = config_.layers[layer];
  const NormWeights<const float*>& norm = w.norm(NormRole::kPreAttention);
  if (norm.weight != nullptr) {
    kernels::Normalize(cpu_, {.x = x.data,
                              .ldx = x.width,
                              .y = x.data,
                              .ldy = x.width,
                              .weight = norm.weight,
                              .weight_offset = config_.norm_weight_offset,
                              .bias = norm.bias,
                              .eps = config_.norm_eps,
                              .m = kBalanceRows,
                              .groups = 1,
                              .dim = config_.hidden_size,
                              .subtract_mean = config_.norm_kind == NormKind::kLayer});
  }
  const CpuDecoderWeights::Linear& linear = w.linear(LinearRole::kQkv);
  kernels::Linear(cpu_, linear.matrix,
                  {.x = x.data,
                   .ldx = x.width,
                   .m = kBalanceRows,
                   .bias = linear.bias,
                   .y = qkv.data,
                   .ldy = qkv.width,
                   .workspace = workspace},
                  {});
  float* const keys = qkv.data + config_.attention_gates_size(sizes) + config_.q_size(sizes);
  const bool has_norm = config_.qk_norm != QkNorm::kNone;
  if (const float* weight = w.norm(NormRole::kK).weight; has_norm && weight != nullptr) {
    kernels::Normalize(cpu_, HeadNorm(weight, {keys, qkv.width}, kBalanceRows,
                                      {config_.kv_heads_of(sizes), config_.head_dim_of(sizes)}));
  }
  std::vector<float> largest(static_cast<size_t>(config_.kv_size(sizes)));
  for (int64_t row = 0; row < kBalanceRows; ++row) {
    for (size_t i = 0; i < largest.size(); ++i) {
      largest[i] = std::max(largest[i], std::abs(keys[row * qkv.width + static_cast<int64_t>(i)]));
    }
  }
  return largest;
}

}  // namespace mlc_native
