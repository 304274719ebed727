#include "arch/layer_rules.h"

#include <algorithm>
#include <string>

#include "arch/expert_config.h"
#include "arch/rope_config.h"

namespace mlc_native {
namespace {

using Layers = std::vector<LayerConfig>;
constexpr char kDensePattern[] = "prefix_dense_sliding_window_pattern";

void ReadNoRopeLayers(const ConfigFields& fields, const ArchSpec& arch, Layers& layers) {
  if (arch.rope_rule == RopeRule::kNoLayer ||
      (arch.rope_rule == RopeRule::kIfNamed &&
       fields.String("position_embedding_type", "") != "rope") ||
      (arch.rope_rule == RopeRule::kUnlessNull &&
       RopeParameters(fields, arch).IsNull("rope_theta"))) {
    for (LayerConfig& layer : layers) layer.rope = LayerConfig::kNoRope;
  }
  if (arch.rope_rule != RopeRule::kFieldSays) return;
  constexpr char kField[] = "no_rope_layers";
  const int64_t interval = fields.Integer("no_rope_layer_interval", 4, 1, kMaxLayers);
  const std::vector<int64_t> has_rope =
      fields.Has(kField) ? fields.Sizes(kField) : std::vector<int64_t>();
  if (!has_rope.empty() && has_rope.size() < layers.size()) {
    fields.Fail(kField, "has " + std::to_string(has_rope.size()) +
                            " entries, \"num_hidden_layers\" is " + std::to_string(layers.size()));
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    const bool rope =
        has_rope.empty() ? static_cast<int64_t>(i + 1) % interval != 0 : has_rope[i] != 0;
    if (!rope) layers[i].rope = LayerConfig::kNoRope;
  }
}

// Which layers have a window, when `layer_types` does not say so.
std::vector<bool> DefaultWindows(const ConfigFields& fields, const ArchSpec& arch,
                                 const Layers& layers, int64_t window) {
  const auto num_layers = static_cast<int64_t>(layers.size());
  const WindowRule rule = arch.window_rule;
  const int64_t from =
      fields.Integer("max_window_layers", arch.defaults.max_window_layers, 0, kMaxPositions);
  const int64_t usual = arch.defaults.sliding_window_pattern;
  const std::string field(arch.window_pattern_field);
  const int64_t nth = field.empty() ? usual : fields.Integer(field.c_str(), usual, 1, kMaxLayers);
  const bool of_kind = rule == WindowRule::kEveryButNthOfKind;
  const int64_t num_dense = of_kind ? fields.Integer("first_k_dense_replace", 0, 0, kMaxLayers) : 0;
  const int64_t nth_dense = of_kind ? fields.Integer(kDensePattern, 1, 1, kMaxLayers) : 1;
  std::vector<bool> has(layers.size());
  for (int64_t i = 0; i < num_layers; ++i) {
    const bool has_rope = layers[static_cast<size_t>(i)].rope != LayerConfig::kNoRope;
    has[static_cast<size_t>(i)] =
        (rule == WindowRule::kAllLayers && window > 0) ||
        (rule == WindowRule::kAllOrByType && window > 0) ||
        (rule == WindowRule::kAllIfAsked && window > 0) ||
        (rule == WindowRule::kEvenBelowLayer && window > 0 && i % 2 == 0 && i < from) ||
        (rule == WindowRule::kFromLayer && window > 0 && i >= from) ||
        (rule == WindowRule::kFromLayerIfAny && window > 0 && i >= from) ||
        (rule == WindowRule::kWithoutRope && window > 0 && !has_rope) ||
        (rule == WindowRule::kEveryButNth && (i + 1) % nth != 0) ||
        (rule == WindowRule::kEveryButNthIfAny && window > 0 && (i + 1) % nth != 0) ||
        (rule == WindowRule::kEveryButFirstAndNth && i > 0 && (i + 1) % nth != 0) ||
        (of_kind && (i < num_dense ? (i + 1) % nth_dense : (i - num_dense + 1) % nth) != 0) ||
        (rule == WindowRule::kEveryButFirstOfN && i % nth != 0) ||
        (rule == WindowRule::kEveryFourth && i > 0 && i % 4 == 0) ||
        (rule == WindowRule::kEveryButSecondOfFour && i > 0 && i % 4 != 1 && i + 1 < num_layers);
  }
  return has;
}

// By attention_types of GPT-Neo: kinds of layers in a row, and how often they come.
std::vector<bool> LocalLayers(const ConfigFields& fields, size_t num_layers) {
  constexpr char kField[] = "attention_types";
  const auto refuse = [&] {
    fields.FailValue(kField, "a list of lists of \"global\" and \"local\", each with a number");
  };
  std::vector<bool> is_local;
  const JsonValue* const value = fields.Find(kField);
  while (value == nullptr && is_local.size() < num_layers) is_local.push_back(is_local.size() % 2);
  if (value == nullptr) return is_local;
  if (!value->is_array()) refuse();
  for (const JsonValue& part : value->AsArray()) {
    if (!part.is_array() || part.AsArray().size() != 2) refuse();
    const JsonValue &kinds = part.AsArray()[0], &count = part.AsArray()[1];
    if (!kinds.is_array() || kinds.AsArray().empty() || !count.IsIntegerIn(1, kMaxLayers)) refuse();
    for (int64_t i = 0; i < count.AsInteger() && is_local.size() <= num_layers; ++i) {
      for (const JsonValue& kind : kinds.AsArray()) {
        const std::string name = kind.is_string() ? kind.AsString() : "";
        if (name != "global" && name != "local") refuse();
        is_local.push_back(name == "local");
      }
    }
  }
  if (is_local.size() != num_layers) {
    fields.Fail(kField, "is not of the " + std::to_string(num_layers) + " layers of the model");
  }
  return is_local;
}

// Types that a family with windows may have besides these.
std::span<const std::string_view> OtherTypes(const ArchSpec& arch) {
  static constexpr std::string_view kConvolution[] = {"conv"};
  return arch.has_short_convolutions ? std::span<const std::string_view>(kConvolution)
                                     : std::span<const std::string_view>();
}

void ReadChunks(const ConfigFields& fields, Layers& layers) {
  constexpr char kField[] = "attention_chunk_size";
  const int64_t size = fields.IsNull(kField) ? 0 : fields.Integer(kField, 8192, 1, kMaxPositions);
  const bool by_type = fields.Has("layer_types");
  std::vector<bool> has(layers.size());
  if (by_type) has = LayersOfType(fields, layers.size(), "chunked_attention");
  for (size_t i = 0; i < layers.size(); ++i) {
    if (by_type ? !has[i] : layers[i].rope == LayerConfig::kNoRope || size == 0) continue;
    if (size == 0) fields.FailValue(kField, "given: layers of the model need it");
    layers[i].window = kernels::AttentionWindow(size, /*is_chunk=*/true);
  }
}

// Where rope_rule says so.
void LeaveRopesToWindows(const ConfigFields& fields, const ArchSpec& arch, bool has_window,
                         Layers& layers) {
  const RopeRule rule = arch.rope_rule;
  const bool or_dense = rule == RopeRule::kInWindowsOrDense;
  if (rule != RopeRule::kInWindows && !or_dense &&
      (rule != RopeRule::kInWindowsIfAny || !has_window)) {
    return;
  }
  std::vector<bool> sparse(layers.size(), true);
  if (or_dense && fields.Integer(kDensePattern, 1, 1, kMaxLayers) == 1) {
    sparse = ReadSparseLayers(fields, arch.experts, layers.size());
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].window.size == 0 && sparse[i]) layers[i].rope = LayerConfig::kNoRope;
  }
}

void ReadWindows(const ConfigFields& fields, const ArchSpec& arch, Layers& layers) {
  const WindowRule rule = arch.window_rule;
  if (rule == WindowRule::kNever) return;
  if (rule == WindowRule::kChunksWithRope) return ReadChunks(fields, layers);
  const bool is_optional = rule == WindowRule::kAllIfAsked || rule == WindowRule::kEvenBelowLayer ||
                           rule == WindowRule::kFromLayer || rule == WindowRule::kWithoutRope;
  const bool has_window = !fields.IsNull("sliding_window") &&
                          (!is_optional || fields.Bool("use_sliding_window", false));
  int64_t window =
      has_window ? fields.Integer("sliding_window", arch.defaults.sliding_window, 1, kMaxPositions)
                 : 0;
  constexpr char kBefore[] = "sliding_window_size";
  if (arch.reads_window_before && fields.Has(kBefore)) {
    window = fields.Integer(kBefore, std::nullopt, 0, kMaxPositions - 1) + 1;
  }
  const bool by_type = rule != WindowRule::kAllLayers && fields.Has("layer_types");
  std::vector<bool> has =
      rule == WindowRule::kLocal ? LocalLayers(fields, layers.size())
      : by_type ? LayersOfType(fields, layers.size(), "sliding_attention", OtherTypes(arch))
                : DefaultWindows(fields, arch, layers, window);
  if (arch.last_has_no_window) has.back() = false;
  for (size_t i = 0; i < has.size(); ++i) {
    if (!has[i]) continue;
    if (window == 0) fields.FailValue("sliding_window", "given: layers of the model need it");
    layers[i].window = window;
    if (arch.local_rope) layers[i].rope = 1;
  }
  LeaveRopesToWindows(fields, arch, window > 0, layers);
}

}  // namespace

std::vector<bool> LayersOfType(const ConfigFields& fields, size_t num_layers,
                               const std::string& wanted,
                               std::span<const std::string_view> others) {
  const std::vector<std::string> types = fields.Strings("layer_types");
  if (types.size() != num_layers) {
    fields.Fail("layer_types", "has " + std::to_string(types.size()) +
                                   " entries, \"num_hidden_layers\" is " +
                                   std::to_string(num_layers));
  }
  std::vector<bool> has;
  for (const std::string& type : types) {
    if (type != wanted && type != "full_attention" && std::ranges::count(others, type) == 0) {
      std::string list = "full_attention, " + wanted;
      for (const std::string_view other : others) list += ", " + std::string(other);
      fields.Fail("layer_types", "= \"" + type + "\" is not supported; supported: " + list);
    }
    has.push_back(type == wanted);
  }
  return has;
}

void ReadLayers(const ConfigFields& fields, const ArchSpec& arch, Layers& layers) {
  ReadNoRopeLayers(fields, arch, layers);
  ReadWindows(fields, arch, layers);
}

void ReadRecurrentLayers(const ConfigFields& fields, Layers& layers) {
  if (fields.Has("layer_types")) {
    const std::vector<bool> has = LayersOfType(fields, layers.size(), "linear_attention");
    for (size_t i = 0; i < has.size(); ++i) layers[i].is_recurrent = has[i];
    return;
  }
  const auto interval =
      static_cast<size_t>(fields.Integer("full_attention_interval", 4, 1, kMaxLayers));
  for (size_t i = 0; i < layers.size(); ++i) layers[i].is_recurrent = (i + 1) % interval != 0;
}

void ReadAttendingLayers(const ConfigFields& fields, const char* field, Layers& layers) {
  for (LayerConfig& layer : layers) layer.is_recurrent = true;
  if (!fields.Has(field)) return;
  for (int64_t layer : fields.Sizes(field)) {
    if (layer >= std::ssize(layers)) {
      fields.Fail(field, "has " + std::to_string(layer) + ", which is no layer of the model");
    }
    layers[static_cast<size_t>(layer)].is_recurrent = false;
  }
}

void ReadLayerThetas(const ConfigFields& fields, std::vector<RopeConfig>& ropes,
                     std::vector<LayerConfig>& layers) {
  constexpr char kField[] = "layer_rope_theta";
  if (!fields.Has(kField)) return;
  const std::vector<double> thetas = fields.Numbers(kField);
  if (thetas.size() != layers.size() ||
      std::ranges::any_of(thetas, [](double theta) { return theta < 0; })) {
    fields.Fail(kField, "must be a list of \"num_hidden_layers\" = " +
                            std::to_string(layers.size()) + " numbers of at least 0");
  }
  const RopeConfig common = ropes.front();
  ropes.clear();
  for (size_t i = 0; i < layers.size(); ++i) {
    layers[i].rope = LayerConfig::kNoRope;
    if (thetas[i] == 0) continue;
    auto found = std::ranges::find(ropes, thetas[i], &RopeConfig::theta);
    layers[i].rope = static_cast<int>(found - ropes.begin());
    if (found != ropes.end()) continue;
    ropes.push_back(common);
    ropes.back().theta = thetas[i];
  }
}

}  // namespace mlc_native
