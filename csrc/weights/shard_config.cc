// Into how many shards a decoder can be divided, and what config each of them has.
#include <algorithm>
#include <string>
#include <vector>

#include "support/error.h"
#include "weights/weight_shard.h"

namespace mlc_native {
namespace {

constexpr int64_t kMostShards = 64;  // that messages list

bool HasDenseLayers(const ModelConfig& config) {
  return std::ranges::any_of(config.layers, &LayerConfig::has_dense_ffn);
}

bool Attends(const ModelConfig& config) {
  return std::ranges::any_of(config.layers, &LayerConfig::attends);
}

// Of so many KV heads, how many parts the devices have that differ. Several may have the same one.
int64_t NumKvParts(int64_t kv_heads, int64_t size) { return std::min(kv_heads, size); }

// All devices have a single group.
bool Divides(const MambaConfig& mamba, int64_t size) {
  return mamba.num_heads % size == 0 && mamba.values_size() % (size * kShardVector) == 0 &&
         (mamba.num_groups == 1 || mamba.num_groups % size == 0);
}

// Whether the sizes can be divided.
bool Divides(const ModelConfig& config, int64_t size) {
  const auto is_even = [&](int64_t ffn) { return ffn % (size * kShardVector) == 0; };
  if (config.delta && config.delta->num_key_heads % size != 0) return false;
  if (config.convolution && !is_even(config.convolution->channels)) return false;
  if (config.mamba && !Divides(*config.mamba, size)) return false;
  if (config.scan) return false;  // what steps come from is a sum over all channels
  for (const LayerConfig& layer : config.layers) {
    const int64_t kv_heads = config.kv_heads_of(layer);
    if (layer.attends() && config.heads_of(layer) % size != 0) return false;
    if (layer.attends() && kv_heads % size != 0 && size % kv_heads != 0) return false;
    if (layer.has_dense_ffn() && !is_even(config.ffn_size_of(layer))) return false;
  }
  return !config.experts ||
         (is_even(config.experts->ffn_size) && is_even(config.experts->shared_ffn_size));
}

std::string Listed(const std::vector<std::string>& parts, const char* before_last) {
  std::string text = parts.front();
  for (size_t i = 1; i < parts.size(); ++i) {
    text += (i + 1 < parts.size() ? ", " : before_last) + parts[i];
  }
  return text;
}

// "1, 2 or 4"
std::string AllowedShards(const ModelConfig& config) {
  std::vector<std::string> allowed;
  const int64_t most = Attends(config) ? std::min(config.most_heads(), kMostShards) : kMostShards;
  for (int64_t size = 1; size <= most; ++size) {
    if (size == 1 || Divides(config, size)) allowed.push_back(std::to_string(size));
  }
  return Listed(allowed, " or ");
}

// What the layers have of it: "16 or 4".
template <typename Size>
std::string OfLayers(const ModelConfig& config, const Size& size) {
  std::vector<int64_t> found;
  for (const LayerConfig& layer : config.layers) {
    const int64_t own = size(layer);
    if (own > 0 && std::ranges::count(found, own) == 0) found.push_back(own);
  }
  std::string text;
  for (const int64_t own : found) text += (text.empty() ? "" : " or ") + std::to_string(own);
  return text;
}

std::string Sizes(const ModelConfig& config) {
  std::vector<std::string> sizes;
  if (Attends(config)) {
    sizes.push_back(
        OfLayers(config, [&](const LayerConfig& layer) { return config.heads_of(layer); }) +
        " query heads");
    sizes.push_back(
        OfLayers(config, [&](const LayerConfig& layer) { return config.kv_heads_of(layer); }) +
        " KV heads");
  }
  if (config.delta) {
    sizes.push_back(std::to_string(config.delta->num_key_heads) + " key heads of linear attention");
  }
  if (config.convolution) {
    sizes.push_back(std::to_string(config.convolution->channels) +
                    " channels of short convolutions");
  }
  if (config.mamba) {
    sizes.push_back(std::to_string(config.mamba->num_heads) + " heads in " +
                    std::to_string(config.mamba->num_groups) + " groups of Mamba-2");
  }
  if (config.scan) sizes.push_back("Mamba-1");
  if (HasDenseLayers(config)) {
    sizes.push_back("a feed-forward size of " + OfLayers(config, [&](const LayerConfig& layer) {
                      return layer.has_dense_ffn() ? config.ffn_size_of(layer) : 0;
                    }));
  }
  if (config.experts) {
    sizes.push_back("experts of size " + std::to_string(config.experts->ffn_size));
    if (config.experts->shared_ffn_size > 0) {
      sizes.push_back("a shared expert of size " + std::to_string(config.experts->shared_ffn_size));
    }
  }
  return Listed(sizes, ", ");
}

}  // namespace

ModelConfig ShardOf(const ModelConfig& config, int64_t num_shards) {
  if (num_shards == 1) return config;
  if (!Divides(config, num_shards)) {
    throw InvalidConfig(kShardsField,
                        OutOfRangeMessage(kShardsField, num_shards,
                                          AllowedShards(config) + " for " + Sizes(config)));
  }
  ModelConfig part = config;
  if (Attends(config)) part.num_heads /= num_shards;
  part.num_kv_parts = NumKvParts(part.num_kv_heads, num_shards);
  part.num_kv_heads /= part.num_kv_parts;
  part.ffn_size /= num_shards;
  for (LayerConfig& layer : part.layers) {
    layer.own_heads /= num_shards;
    if (layer.own_kv_heads > 0) layer.own_kv_heads /= NumKvParts(layer.own_kv_heads, num_shards);
    layer.own_ffn_size /= num_shards;
  }
  if (part.convolution) part.convolution->channels /= num_shards;
  if (part.mamba) {
    MambaConfig& mamba = *part.mamba;
    mamba.num_heads /= num_shards;
    mamba.num_group_parts = mamba.num_groups == 1 ? num_shards : 1;
    mamba.num_groups = std::max<int64_t>(mamba.num_groups / num_shards, 1);
  }
  if (part.delta) {
    part.delta->num_key_heads /= num_shards;
    part.delta->num_value_heads /= num_shards;
  }
  if (part.experts) {
    part.experts->ffn_size /= num_shards;
    part.experts->shared_ffn_size /= num_shards;
  }
  return part;
}

}  // namespace mlc_native
