// What a config.json says about the mathematics of a layer: activation, biases, norms, and what
// scales values on their way.
#include <cmath>
#include <string>

#include "arch/model_config.h"
#include "arch/rope_config.h"

namespace mlc_native {
namespace {

kernels::Activation ReadActivation(const ConfigFields& fields, const ArchSpec& arch,
                                   bool gelu_is_tanh) {
  const std::string field(arch.activation_field);
  const std::string name = fields.String(field.c_str(), std::string(arch.default_activation));
  if (name == "silu" || name == "swish") return kernels::Activation::kSilu;
  for (const char* tanh : {"gelu_pytorch_tanh", "gelu_new", "gelu_fast"}) {
    if (name == tanh) return kernels::Activation::kGeluTanh;
  }
  if (name == "relu") return kernels::Activation::kRelu;
  if (name == "relu2") return kernels::Activation::kReluSquared;
  if (name == "xielu" && arch.plain_ffn) return kernels::Activation::kXielu;
  if (name == "gelu") {
    return gelu_is_tanh ? kernels::Activation::kGeluTanh : kernels::Activation::kGelu;
  }
  fields.FailValue(field.c_str(),
                   "one of silu, swish, gelu, gelu_pytorch_tanh, gelu_new, gelu_fast, relu, relu2" +
                       std::string(arch.plain_ffn ? ", xielu" : ""));
}

// An absent cap means that of the family, and null means none.
float ReadSoftCap(const ConfigFields& fields, const char* field, double absent) {
  if (fields.IsNull(field) || (!fields.Has(field) && absent == 0)) return 0.0f;
  return static_cast<float>(fields.Positive(field, absent));
}

// Absent or of another family: `absent`.
double ReadMultiplier(const ConfigFields& fields, std::string_view name, double absent) {
  return name.empty() ? absent : fields.Positive(std::string(name).c_str(), absent);
}

// Of the embeddings, of what a block adds, and of the logits.
struct StreamScales {
  double embedding = 1;
  double residual = 1;
  double logits = 1;
};

StreamScales ReadMiniCpmScales(const ConfigFields& fields, const ModelConfig& config) {
  const auto hidden = static_cast<double>(config.hidden_size);
  const double layers = std::sqrt(static_cast<double>(config.layers.size()));
  const double depth = fields.IsNull("scale_depth") ? layers : fields.Positive("scale_depth", 1.4);
  const double base =
      fields.IsNull("dim_model_base") ? hidden : fields.Positive("dim_model_base", 256.0);
  return {.embedding = fields.Positive("scale_emb", 12.0),
          .residual = depth / layers,
          .logits = base / hidden};
}

StreamScales ReadStreamScales(const ConfigFields& fields, const ModelConfig& config) {
  const Multipliers& names = config.arch->multipliers;
  if (names.of_minicpm) return ReadMiniCpmScales(fields, config);
  const double logits =
      names.logits.empty() ? 1.0 : ReadMultiplier(fields, names.logits, names.absent_logits);
  const bool by_root =
      names.sqrt_hidden_size ||
      (!names.root_if.empty() && fields.Bool(std::string(names.root_if).c_str(), false));
  return {.embedding = by_root ? std::sqrt(static_cast<double>(config.hidden_size))
                               : ReadMultiplier(fields, names.embedding, 1.0),
          .residual = ReadMultiplier(fields, names.residual, 1.0),
          .logits = logits / ReadMultiplier(fields, names.logits_divisor, 1.0)};
}

void ReadMultipliers(const ConfigFields& fields, ModelConfig& config) {
  const Multipliers& names = config.arch->multipliers;
  const StreamScales scales = ReadStreamScales(fields, config);
  config.residual_scale = static_cast<float>(scales.residual);
  config.embedding_scale = static_cast<float>(scales.embedding / scales.residual);
  config.residual_norm_eps =
      static_cast<float>(config.norm_eps / (scales.residual * scales.residual));
  config.final_norm_scale = static_cast<float>(scales.logits);
  const double divisor = names.attention_divisor.empty()
                             ? static_cast<double>(config.head_dim)
                             : ReadMultiplier(fields, names.attention_divisor, 256.0);
  const double by_head = names.plain_attention ? 1.0 : 1.0 / std::sqrt(divisor);
  config.attention_scale = static_cast<float>(
      names.attention.empty()
          ? by_head
          : ReadMultiplier(fields, names.attention, names.attention_by_head ? by_head : 1.0));
}

// Of latent attention, where yarn scales the logits instead of queries and keys.
float ReadLatentScale(const ConfigFields& fields, const ModelConfig& config) {
  double scale = 1.0 / std::sqrt(static_cast<double>(config.latent->query_dim()));
  const ConfigFields params = RopeParameters(fields, *config.arch);
  const double all_dim = params.Number("mscale_all_dim", 0.0);
  if (params.String("rope_type", params.String("type", "default")) != "default" && all_dim != 0) {
    const double factor = params.Positive("factor", std::nullopt);
    const double magnitude = factor <= 1.0 ? 1.0 : 0.1 * all_dim * std::log(factor) + 1.0;
    scale *= magnitude * magnitude;
  }
  return static_cast<float>(scale);
}

// Of Ministral 3.
QueryScaling ReadQueryScalingOfRope(const ConfigFields& fields, const ModelConfig& config) {
  const ConfigFields params = RopeParameters(fields, *config.arch);
  const double strength = params.Number("llama_4_scaling_beta", 0.0);
  if (strength == 0) return {};
  return {
      .strength = static_cast<float>(strength),
      .period = params.Integer("original_max_position_embeddings", std::nullopt, 1, kMaxPositions)};
}

// Of Llama 4, whose first checkpoints have a number in place of true.
QueryScaling ReadAttentionTemperature(const ConfigFields& fields) {
  constexpr char kSwitch[] = "attn_temperature_tuning";
  const JsonValue* const value = fields.Find(kSwitch);
  const bool is_number = value != nullptr && value->is_number();
  const bool is_on =
      is_number ? fields.Integer(kSwitch, 1, 0, kMaxPositions) != 0 : fields.Bool(kSwitch, true);
  if (!is_on) return {};
  return {.strength = static_cast<float>(fields.Number("attn_scale", 0.1)),
          .period = fields.Integer("floor_scale", 8192, 1, kMaxPositions),
          .first = 1,
          .without_rope = true};
}

QueryScaling ReadQueryScaling(const ConfigFields& fields, const ModelConfig& config) {
  switch (config.arch->query_scaling) {
    case QueryScalingRule::kNone:
      break;
    case QueryScalingRule::kRopeSays:
      return ReadQueryScalingOfRope(fields, config);
    case QueryScalingRule::kWithoutRope:
      return ReadAttentionTemperature(fields);
  }
  return {};
}

bool ReadSwitch(const ConfigFields& fields, const Switch& rule) {
  return rule.field.empty() ? rule.absent
                            : fields.Bool(std::string(rule.field).c_str(), rule.absent);
}

// A yes or a name.
AttentionGates ReadAttentionGates(const ConfigFields& fields, const ArchSpec& arch) {
  if (arch.attention_gates_field.empty()) {
    return ReadSwitch(fields, arch.has_attention_gates) ? arch.attention_gates
                                                        : AttentionGates::kNone;
  }
  const std::string field(arch.attention_gates_field);
  const JsonValue* const value = fields.Find(field.c_str());
  const bool is_name = value != nullptr && value->is_string();
  const std::string name = is_name                            ? value->AsString()
                           : fields.Bool(field.c_str(), true) ? "per-head"
                                                              : "";
  if (name == "per-head") return AttentionGates::kOfHeads;
  if (name != "per-element")
    fields.FailValue(field.c_str(), "true, \"per-head\" or \"per-element\"");
  return AttentionGates::kOfElements;
}

void ReadNorms(const ConfigFields& fields, ModelConfig& config) {
  const ArchSpec& arch = *config.arch;
  config.norm_eps =
      static_cast<float>(ReadMultiplier(fields, arch.norm_eps_field, arch.defaults.norm_eps));
  config.norm_kind = arch.norm_kind;
  constexpr char kRmsEps[] = "rms_norm_eps";
  if (arch.is_rms_with_eps && fields.Has(kRmsEps)) {
    config.norm_kind = NormKind::kRms;
    config.norm_eps = static_cast<float>(fields.Positive(kRmsEps, std::nullopt));
  }
  config.has_post_norms = ReadSwitch(fields, arch.has_post_norms);
  if (ReadSwitch(fields, arch.has_qk_norm)) config.qk_norm = arch.qk_norm;
  config.attention_gates = ReadAttentionGates(fields, arch);
}

}  // namespace

void ReadLayerMath(const ConfigFields& fields, bool gelu_is_tanh, ModelConfig& config) {
  const ArchSpec& arch = *config.arch;
  ReadNorms(fields, config);
  config.activation = ReadActivation(fields, arch, gelu_is_tanh);
  config.qkv_bias = ReadSwitch(fields, arch.qkv_bias);
  config.out_bias = ReadSwitch(fields, arch.out_bias);
  config.ffn_bias = ReadSwitch(fields, arch.ffn_bias);
  config.head_bias = ReadSwitch(fields, arch.head_bias);
  config.parallel_blocks = ReadSwitch(fields, arch.parallel_blocks);
  if (arch.reads_attention_soft_cap) {
    config.attention_soft_cap =
        ReadSoftCap(fields, "attn_logit_softcapping", arch.defaults.attn_soft_cap);
  }
  if (arch.reads_final_soft_cap) {
    config.final_soft_cap =
        ReadSoftCap(fields, "final_logit_softcapping", arch.defaults.final_soft_cap);
  }
  ReadMultipliers(fields, config);
  if (config.latent) config.attention_scale = ReadLatentScale(fields, config);
  config.query_scaling = ReadQueryScaling(fields, config);
}

}  // namespace mlc_native
