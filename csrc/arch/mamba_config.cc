// What a config.json says about layers with Mamba-2.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

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

void ReadHeads(const ConfigFields& fields, int64_t hidden_size, MambaConfig& mamba) {
  constexpr int64_t kMostHeads = 1024, kMostDim = 1024, kMostExpand = 64;
  constexpr char kDim[] = "mamba_d_head", kHeads[] = "mamba_n_heads";
  const int64_t size = hidden_size * fields.Integer("mamba_expand", 2, 1, kMostExpand);
  const std::string sizes = "\"mamba_expand\" * \"hidden_size\" = " + std::to_string(size);
  mamba.num_heads = fields.Integer(kHeads, 128, 1, kMostHeads);
  if (size % mamba.num_heads != 0) fields.FailValue(kHeads, "a divisor of " + sizes);
  const JsonValue* const dim = fields.Find(kDim);
  const bool is_auto = dim == nullptr || (dim->is_string() && dim->AsString() == "auto");
  mamba.head_dim =
      is_auto ? size / mamba.num_heads : fields.Integer(kDim, std::nullopt, 1, kMostDim);
  if (mamba.head_dim > kMostDim) {
    fields.Fail(kHeads, "= " + std::to_string(mamba.num_heads) + " gives heads of more than " +
                            std::to_string(kMostDim) + " elements");
  }
  if (mamba.num_heads * mamba.head_dim != size) {
    fields.FailValue(kDim,
                     sizes + " divided by \"mamba_n_heads\" = " + std::to_string(mamba.num_heads));
  }
  mamba.num_groups = fields.Integer("mamba_n_groups", 1, 1, kMostHeads);
  if (mamba.num_heads % mamba.num_groups != 0) {
    fields.FailValue("mamba_n_groups",
                     "a divisor of \"mamba_n_heads\" = " + std::to_string(mamba.num_heads));
  }
  mamba.state_dim = fields.Integer("mamba_d_state", 256, 1, kMostDim);
}

}  // namespace

void ReadMamba(const ConfigFields& fields, ModelConfig& config) {
  constexpr int64_t kMostWidth = 8;
  if (!config.arch->has_mamba_layers) return;
  ReadMambaLayers(fields, config.layers);
  if (std::ranges::none_of(config.layers, &LayerConfig::is_recurrent)) return;
  if (config.activation != kernels::Activation::kSilu) {
    fields.FailValue("hidden_act", "\"silu\" in a model with Mamba layers");
  }
  if (fields.Bool("mamba_proj_bias", false)) {
    fields.Fail("mamba_proj_bias", "= true is not supported");
  }
  MambaConfig mamba;
  ReadHeads(fields, config.hidden_size, mamba);
  mamba.conv_width = fields.Integer("mamba_d_conv", 4, 2, kMostWidth);
  mamba.conv_bias = fields.Bool("mamba_conv_bias", true);
  ReadSteps(fields, mamba);
  config.mamba = mamba;
}

}  // namespace mlc_native
