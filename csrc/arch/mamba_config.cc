// What a config.json says about layers with Mamba-2.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "arch/mamba_fields.h"
#include "arch/model_config.h"

namespace mlc_native {
namespace {

constexpr char kTypes[] = "layer_types";
constexpr char kStepLimit[] = "time_step_limit";

// Both spellings of each kind: those of the hub, and those that transformers writes.
bool IsMamba(const ConfigFields& fields, const std::string& type) {
  if (type == "mamba" || type == "linear_attention") return true;
  if (type != "attention" && type != "full_attention") {
    fields.Fail(kTypes, "= \"" + type + "\" is not supported; supported: mamba, attention");
  }
  return false;
}

void ReadMambaLayers(const ConfigFields& fields, std::vector<LayerConfig>& layers) {
  if (fields.Has(kTypes)) {
    const std::vector<std::string> types = fields.Strings(kTypes);
    if (types.size() != layers.size()) {
      fields.Fail(kTypes, "has " + std::to_string(types.size()) +
                              " entries, \"num_hidden_layers\" is " +
                              std::to_string(layers.size()));
    }
    for (size_t i = 0; i < types.size(); ++i) layers[i].is_recurrent = IsMamba(fields, types[i]);
    return;
  }
  ReadAttendingLayers(fields, "attn_layer_indices", layers);
}

// A number, or transformers' spelling of infinity: {"__float__": "Infinity"}.
double LimitOf(const ConfigFields& fields, const JsonValue& value) {
  const JsonValue* const spelled = value.Find("__float__");
  if (spelled != nullptr && spelled->is_string() && spelled->AsString() == "Infinity") {
    return std::numeric_limits<double>::infinity();
  }
  if (!value.is_number() || !(value.AsNumber() >= 0)) {
    fields.FailValue(kStepLimit, "a list of two numbers of at least 0, in order");
  }
  return value.AsNumber();
}

void ReadSteps(const ConfigFields& fields, MambaConfig& mamba) {
  const JsonValue* const limits = fields.Find(kStepLimit);
  if (limits == nullptr) return;
  if (!limits->is_array() || limits->AsArray().size() != 2) {
    fields.FailValue(kStepLimit, "a list of two numbers of at least 0, in order");
  }
  mamba.shortest_step = static_cast<float>(LimitOf(fields, limits->AsArray()[0]));
  mamba.longest_step = static_cast<float>(LimitOf(fields, limits->AsArray()[1]));
  if (mamba.shortest_step > mamba.longest_step || std::isinf(mamba.shortest_step)) {
    fields.FailValue(kStepLimit, "a list of two numbers of at least 0, in order");
  }
}

// The size of the heads, from that of all together.
int64_t ReadHeadDim(const ConfigFields& fields, const MambaFields& names, int64_t hidden_size,
                    int64_t num_heads) {
  constexpr int64_t kMostDim = 1024, kMostExpand = 64;
  int64_t size = hidden_size * fields.Integer(names.expand, 2, 1, kMostExpand);
  std::string sizes = '"' + std::string(names.expand) + "\" * \"hidden_size\"";
  if (names.size != nullptr && !fields.IsNull(names.size)) {
    size = fields.Integer(names.size, names.absent.size, 1, kMaxDimension);
    sizes = '"' + std::string(names.size) + '"';
  }
  sizes += " = " + std::to_string(size);
  if (size % num_heads != 0) fields.FailValue(names.num_heads, "a divisor of " + sizes);
  const JsonValue* const dim = fields.Find(names.head_dim);
  const bool is_auto = dim == nullptr || (dim->is_string() && dim->AsString() == "auto");
  const int64_t head_dim =
      is_auto ? size / num_heads : fields.Integer(names.head_dim, std::nullopt, 1, kMostDim);
  const std::string heads =
      '"' + std::string(names.num_heads) + "\" = " + std::to_string(num_heads);
  if (head_dim > kMostDim) {
    fields.Fail(names.num_heads, "= " + std::to_string(num_heads) + " gives heads of more than " +
                                     std::to_string(kMostDim) + " elements");
  }
  if (num_heads * head_dim != size) {
    fields.FailValue(names.head_dim, sizes + " divided by " + heads);
  }
  return head_dim;
}

void ReadHeads(const ConfigFields& fields, int64_t hidden_size, const MambaFields& names,
               MambaConfig& mamba) {
  constexpr int64_t kMostHeads = 1024, kMostDim = 1024;
  mamba.num_heads = fields.Integer(names.num_heads, 128, 1, kMostHeads);
  mamba.head_dim = names.expand == nullptr
                       ? fields.Integer(names.head_dim, names.absent.head_dim, 1, kMostDim)
                       : ReadHeadDim(fields, names, hidden_size, mamba.num_heads);
  mamba.num_groups = fields.Integer(names.num_groups, names.absent.num_groups, 1, kMostHeads);
  if (mamba.num_heads % mamba.num_groups != 0) {
    fields.FailValue(names.num_groups, "a divisor of \"" + std::string(names.num_heads) +
                                           "\" = " + std::to_string(mamba.num_heads));
  }
  mamba.state_dim = fields.Integer(names.state_dim, names.absent.state_dim, 1, kMostDim);
}

}  // namespace

void ReadMamba(const ConfigFields& fields, ModelConfig& config) {
  constexpr int64_t kMostWidth = 8;
  if (config.arch->mamba == nullptr) return;
  const MambaFields& names = *config.arch->mamba;
  if (config.arch->attends_beside_mamba) {
    for (LayerConfig& layer : config.layers) layer.is_recurrent = layer.attends_beside = true;
  } else if (!config.arch->has_single_blocks) {
    ReadMambaLayers(fields, config.layers);
  }
  if (std::ranges::none_of(config.layers, &LayerConfig::is_recurrent)) return;
  const std::string activation = fields.String(names.activation, "silu");
  if (activation != "silu" && activation != "swish") {
    fields.FailValue(names.activation, "\"silu\" in a model with Mamba layers");
  }
  if (fields.Bool(names.biases, false)) fields.Fail(names.biases, "= true is not supported");
  MambaConfig mamba;
  ReadHeads(fields, config.hidden_size, names, mamba);
  mamba.conv_width = fields.Integer(names.conv_width, 4, 2, kMostWidth);
  mamba.conv_bias = fields.Bool(names.conv_bias, true);
  ReadSteps(fields, mamba);
  if (names.norm != nullptr) mamba.has_norm = fields.Bool(names.norm, false);
  constexpr char kGateLast[] = "mamba_norm_before_gate";
  if (names.norm != nullptr && mamba.has_norm && fields.Bool(kGateLast, true)) {
    fields.Fail(kGateLast,
                "= true is not supported where \"" + std::string(names.norm) + "\" is true");
  }
  config.mamba = mamba;
}

}  // namespace mlc_native
