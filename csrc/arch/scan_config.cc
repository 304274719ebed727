// What a config.json says about layers with Mamba-1.
#include <algorithm>
#include <string>
#include <vector>

#include "arch/mamba_fields.h"
#include "arch/model_config.h"

namespace mlc_native {
namespace {

void ReadScanLayers(const ConfigFields& fields, const ScanFields& names,
                    std::vector<LayerConfig>& layers) {
  if (fields.Has("layer_types")) {  // of GGUF files
    const std::vector<bool> has = LayersOfType(fields, layers.size(), "linear_attention");
    for (size_t i = 0; i < has.size(); ++i) layers[i].is_recurrent = has[i];
    return;
  }
  const int64_t period = fields.Integer(names.attn_period, 8, 1, kMaxLayers);
  const int64_t offset = fields.Integer(names.attn_offset, 4, 0, kMaxLayers);
  if (offset >= period) {
    fields.FailValue(names.attn_offset, "less than \"" + std::string(names.attn_period) +
                                            "\" = " + std::to_string(period));
  }
  for (int64_t i = 0; i < std::ssize(layers); ++i) {
    layers[static_cast<size_t>(i)].is_recurrent = i % period != offset;
  }
}

int64_t ReadChannels(const ConfigFields& fields, const ScanFields& names, int64_t hidden_size) {
  constexpr int64_t kMostExpand = 64;
  if (names.size != nullptr && fields.Has(names.size)) {
    return fields.Integer(names.size, std::nullopt, 1, kMaxDimension / 2);
  }
  const int64_t expand = fields.Integer(names.expand, 2, 1, kMostExpand);
  if (hidden_size > kMaxDimension / 2 / expand) {
    fields.FailValue(names.expand, "less: the layers would be too wide");
  }
  return expand * hidden_size;
}

int64_t ReadRank(const ConfigFields& fields, const ScanFields& names, int64_t hidden_size) {
  constexpr int64_t kUsualPart = 16;  // of hidden_size
  const JsonValue* const value = fields.Find(names.rank);
  const bool is_auto = value == nullptr || (value->is_string() && value->AsString() == "auto");
  if (is_auto) return (hidden_size + kUsualPart - 1) / kUsualPart;
  if (value->is_string()) fields.FailValue(names.rank, "\"auto\" or an integer of at least 1");
  return fields.Integer(names.rank, std::nullopt, 1, kMaxDimension / 2);
}

}  // namespace

void ReadScan(const ConfigFields& fields, ModelConfig& config) {
  constexpr int64_t kMostStates = 1024, kMostWidth = 8;
  if (config.arch->scan == nullptr) return;
  const ScanFields& names = *config.arch->scan;
  if (!config.arch->has_single_blocks) ReadScanLayers(fields, names, config.layers);
  if (std::ranges::none_of(config.layers, &LayerConfig::is_recurrent)) return;
  const std::string activation = fields.String(names.activation, "silu");
  if (activation != "silu" && activation != "swish") {
    fields.FailValue(names.activation, "\"silu\" in a model with Mamba layers");
  }
  fields.Bool("use_mambapy", false);  // how transformers computes the same
  ScanConfig scan;
  scan.channels = ReadChannels(fields, names, config.hidden_size);
  scan.state_dim = fields.Integer(names.state_dim, 16, 1, kMostStates);
  scan.rank = ReadRank(fields, names, config.hidden_size);
  scan.conv_width = fields.Integer(names.conv_width, 4, 2, kMostWidth);
  scan.conv_bias = fields.Bool(names.conv_bias, true);
  scan.biases = fields.Bool(names.biases, false);
  scan.has_norms = names.norms != ScanNorms::kNone;
  scan.norm_eps = names.norm_eps == nullptr
                      ? config.norm_eps
                      : static_cast<float>(fields.Positive(names.norm_eps, 1e-6));
  config.scan = scan;
}

}  // namespace mlc_native
