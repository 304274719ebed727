#include "arch/model_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "arch/rope_config.h"
#include "arch/unsupported.h"
#include "checkpoint/model_defaults.h"
#include "mlc_native/config.h"
#include "model_files/model_files.h"
#include "support/config_fields.h"
#include "support/error.h"

namespace mlc_native {
namespace {

constexpr char kTiedField[] = "tie_word_embeddings";
// Of a GGUF file's metadata: the norms are stored with the family's norm_weight_offset.
constexpr char kFoldedNorms[] = "norms_hold_offset";

std::optional<int64_t> OrRequired(int64_t absent) {
  return absent == 0 ? std::nullopt : std::optional<int64_t>(absent);
}

// For a config.json that names none: that of its model_type, else an example.
std::string LikelyArchitecture(const ConfigFields& root) {
  const MlcFamily* family = FindMlcFamily(root.String("model_type", ""));
  return std::string(family == nullptr ? "LlamaForCausalLM" : family->architecture);
}

const ArchSpec& ReadArchitecture(const ConfigFields& root) {
  const std::vector<std::string> names = root.Strings("architectures");
  std::string list;
  for (const std::string& name : names) {
    if (const ArchSpec* arch = FindArchitecture(name)) return *arch;
    list += (list.empty() ? "" : ", ") + name;
  }
  if (names.empty()) {
    root.Fail("architectures",
              "names no architecture; add the one of the model to the file, as [\"" +
                  LikelyArchitecture(root) + "\"]; supported: " + SupportedArchitectureList());
  }
  for (const std::string& name : names) {
    const std::string_view lacks = WhatItLacks(name);
    if (lacks.empty()) continue;
    root.Fail("architectures", "= " + name + " is not supported: it needs " + std::string(lacks) +
                                   "; supported: " + SupportedArchitectureList());
  }
  root.Fail("architectures",
            "= " + list + " is not supported; supported: " + SupportedArchitectureList());
}

void RefuseUnsupported(const ConfigFields& fields) {
  if (fields.Bool("use_bidirectional_attention", false)) {
    fields.Fail("use_bidirectional_attention", "is not supported");
  }
  // Of models that make embeddings; transformers attends in both directions then, too.
  if (!fields.Bool("is_causal", true)) fields.Fail("is_causal", "= false is not supported");
  if (fields.Has("clip_qkv")) fields.Fail("clip_qkv", "is not supported");
}

// The values of a field that is a string or an integer, or a list of strings.
std::vector<std::string> ValuesOf(const ConfigFields& fields, const char* field) {
  const JsonValue* const value = fields.Find(field);
  if (value == nullptr) return {"null"};
  if (value->is_array()) return fields.Strings(field);
  if (value->is_string()) return {fields.String(field)};
  return {std::to_string(fields.Integer(field, std::nullopt, 0, kMaxDimension))};
}

void CheckRequirements(const ConfigFields& fields, const ArchSpec& arch) {
  for (const Requirement& requirement : arch.requirements) {
    const std::string field(requirement.field);
    for (const std::string& value : ValuesOf(fields, field.c_str())) {
      if (std::ranges::find(requirement.values, value) != requirement.values.end()) continue;
      fields.Fail(field, "= " + value + " is not supported: " + std::string(arch.architecture) +
                             " then needs " + std::string(requirement.lacks));
    }
  }
}

// `root`: config.json; `fields`: of the text model.
std::optional<Quantization> FindQuantization(const ConfigFields& root, const ConfigFields& fields) {
  // The second name is that of the first releases of compressed-tensors.
  for (const char* name : {"quantization_config", "compression_config"}) {
    for (const ConfigFields* place : {&fields, &root}) {
      if (place->Has(name)) return ReadQuantization(place->Object(name));
    }
  }
  return std::nullopt;
}

// Of latent attention, whose "head_dim" is that of the part with rope.
void ReadLatentSizes(const ConfigFields& fields, ModelConfig& config) {
  const LatentRule& rule = config.arch->latent;
  const auto size = [&](const char* field, int64_t absent) {
    return fields.Integer(field, absent, 1, kMaxDimension);
  };
  LatentConfig latent;
  if (!fields.IsNull("q_lora_rank")) latent.q_rank = size("q_lora_rank", rule.absent.q_rank);
  latent.kv_rank = size("kv_lora_rank", rule.absent.kv_rank);
  latent.plain_dim = size("qk_nope_head_dim", rule.absent.plain_dim);
  latent.rope_dim = size("qk_rope_head_dim", rule.absent.rope_dim);
  latent.value_dim = size("v_head_dim", rule.absent.value_dim);
  if (config.num_kv_heads != config.num_heads) {
    fields.FailValue("num_key_value_heads",
                     "\"num_attention_heads\" = " + std::to_string(config.num_heads));
  }
  const int64_t most_heads =
      std::min(kMaxLatentHeads, kMaxDimension / (latent.query_dim() + latent.value_dim));
  if (config.num_heads > most_heads) {
    fields.FailValue("num_attention_heads", "at most " + std::to_string(most_heads));
  }
  if (latent.rope_dim % 2 != 0) fields.FailValue("qk_rope_head_dim", "an even number");
  if (!fields.Bool("rope_interleave", true)) {
    fields.Fail("rope_interleave", "= false is not supported");
  }
  latent.splits_up_projection = fields.Bool("has_split_kv_b_proj", false);
  if (latent.q_rank == 0) config.projections = rule.direct_queries;
  config.latent = latent;
  config.num_kv_heads = 1;
  config.head_dim = latent.rope_dim + latent.kv_rank;
}

void ReadSizes(const ConfigFields& fields, ModelConfig& config) {
  const ArchDefaults& absent = config.arch->defaults;
  const auto size = [&](const char* field, int64_t or_else) {
    return fields.Integer(field, OrRequired(or_else), 1, kMaxDimension);
  };
  config.vocab_size = size("vocab_size", absent.vocab_size);
  config.hidden_size = size("hidden_size", 0);
  config.ffn_size = size(std::string(config.arch->ffn_size_field).c_str(), 0);
  config.num_heads = size("num_attention_heads", absent.num_attention_heads);
  // Here and for head_dim, null means what follows from other fields, whatever the family's
  // default.
  const bool as_heads = fields.IsNull("num_key_value_heads") || absent.num_key_value_heads == 0;
  config.num_kv_heads =
      size("num_key_value_heads", as_heads ? config.num_heads : absent.num_key_value_heads);
  config.layers.resize(
      static_cast<size_t>(fields.Integer("num_hidden_layers", std::nullopt, 1, kMaxLayers)));
  config.max_positions =
      fields.Integer("max_position_embeddings", absent.max_position_embeddings, 1, kMaxPositions);
  if (config.num_heads % config.num_kv_heads != 0) {
    fields.FailValue("num_key_value_heads",
                     "a divisor of \"num_attention_heads\" = " + std::to_string(config.num_heads));
  }
  if (config.arch->latent.exists) return ReadLatentSizes(fields, config);
  const bool derive =
      !fields.Has("head_dim") && (fields.IsNull("head_dim") || absent.head_dim == 0);
  if (derive && config.hidden_size % config.num_heads != 0) {
    fields.FailValue("num_attention_heads",
                     "a divisor of \"hidden_size\" = " + std::to_string(config.hidden_size));
  }
  config.head_dim =
      size("head_dim", derive ? config.hidden_size / config.num_heads : absent.head_dim);
  if (config.num_heads * config.head_dim > kMaxDimension) {
    fields.FailValue("head_dim", "at most " + std::to_string(kMaxDimension / config.num_heads));
  }
}

kernels::Activation ReadActivation(const ConfigFields& fields, const ArchSpec& arch,
                                   bool gelu_is_tanh) {
  const std::string field(arch.activation_field);
  const std::string name = fields.String(field.c_str(), std::string(arch.default_activation));
  if (name == "silu" || name == "swish") return kernels::Activation::kSilu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return kernels::Activation::kGeluTanh;
  if (name == "relu2") return kernels::Activation::kReluSquared;
  if (name == "xielu" && arch.plain_ffn) return kernels::Activation::kXielu;
  if (name == "gelu" && gelu_is_tanh) return kernels::Activation::kGeluTanh;
  fields.FailValue(field.c_str(), "one of silu, swish, gelu_pytorch_tanh, gelu_new, relu2" +
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

void ReadMultipliers(const ConfigFields& fields, ModelConfig& config) {
  const Multipliers& names = config.arch->multipliers;
  const double embedding = names.sqrt_hidden_size
                               ? std::sqrt(static_cast<double>(config.hidden_size))
                               : ReadMultiplier(fields, names.embedding, 1.0);
  const double residual = ReadMultiplier(fields, names.residual, 1.0);
  config.residual_scale = static_cast<float>(residual);
  config.embedding_scale = static_cast<float>(embedding / residual);
  config.residual_norm_eps = static_cast<float>(config.norm_eps / (residual * residual));
  const double divisor = names.attention_divisor.empty()
                             ? static_cast<double>(config.head_dim)
                             : ReadMultiplier(fields, names.attention_divisor, 256.0);
  config.attention_scale =
      static_cast<float>(names.attention.empty() ? 1.0 / std::sqrt(divisor)
                                                 : ReadMultiplier(fields, names.attention, 1.0));
  const double logits = names.logits.empty() ? 1.0 : ReadMultiplier(fields, names.logits, 0.0625);
  config.final_norm_scale =
      static_cast<float>(logits / ReadMultiplier(fields, names.logits_divisor, 1.0));
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

// Llama 4's name for it; Ministral 3 has it, too.
void ReadQueryScaling(const ConfigFields& fields, ModelConfig& config) {
  const ConfigFields params = RopeParameters(fields, *config.arch);
  config.query_scaling = static_cast<float>(params.Number("llama_4_scaling_beta", 0.0));
  if (config.query_scaling == 0) return;
  config.query_scaling_period =
      params.Integer("original_max_position_embeddings", std::nullopt, 1, kMaxPositions);
}

bool ReadSwitch(const ConfigFields& fields, const Switch& rule) {
  return rule.field.empty() ? rule.absent
                            : fields.Bool(std::string(rule.field).c_str(), rule.absent);
}

void ReadLayerMath(const ConfigFields& fields, bool gelu_is_tanh, ModelConfig& config) {
  const ArchSpec& arch = *config.arch;
  const std::string eps(arch.norm_eps_field);
  config.norm_eps = static_cast<float>(fields.Positive(eps.c_str(), arch.defaults.norm_eps));
  config.activation = ReadActivation(fields, arch, gelu_is_tanh);
  config.qkv_bias = ReadSwitch(fields, arch.qkv_bias);
  config.out_bias = ReadSwitch(fields, arch.out_bias);
  config.ffn_bias = ReadSwitch(fields, arch.ffn_bias);
  config.head_bias = ReadSwitch(fields, arch.head_bias);
  config.parallel_blocks = ReadSwitch(fields, arch.parallel_blocks);
  if (ReadSwitch(fields, arch.has_qk_norm)) config.qk_norm = arch.qk_norm;
  if (arch.reads_attention_soft_cap) {
    config.attention_soft_cap =
        ReadSoftCap(fields, "attn_logit_softcapping", arch.defaults.attn_soft_cap);
  }
  if (arch.reads_final_soft_cap) {
    config.final_soft_cap =
        ReadSoftCap(fields, "final_logit_softcapping", arch.defaults.final_soft_cap);
  }
}

void ReadExpertLayers(const ConfigFields& fields, ModelConfig& config) {
  const ExpertRule& rule = config.arch->experts;
  config.experts = ReadExperts(fields, rule);
  const std::vector<bool> sparse = ReadSparseLayers(fields, rule, config.layers.size());
  for (size_t i = 0; i < sparse.size(); ++i) config.layers[i].has_experts = sparse[i];
}

// "auto" is what transformers writes for "as stored".
std::optional<DType> ReadDType(const ConfigFields& fields) {
  for (const char* field : {"dtype", "torch_dtype"}) {
    const std::string name = fields.String(field, "auto");
    if (name == "auto") continue;
    const std::optional<DType> dtype = ParseDType(name);
    if (!dtype) fields.FailValue(field, "one of float32, bfloat16, float16");
    return dtype;
  }
  return std::nullopt;
}

// Sets everything that follows from the family and the fields of the text model, except how the
// weights are stored.
ModelConfig ReadNumbers(const ArchSpec& arch, const ConfigFields& fields, int64_t longest,
                        bool gelu_is_tanh) {
  ModelConfig config;
  config.arch = &arch;
  config.projections = arch.projections;
  config.norm_weight_offset = arch.norm_weight_offset;
  ReadSizes(fields, config);
  ReadLayerMath(fields, gelu_is_tanh, config);
  ReadMultipliers(fields, config);
  if (config.latent) config.attention_scale = ReadLatentScale(fields, config);
  if (config.latent && config.latent->q_rank == 0 && config.qkv_bias) {
    fields.Fail("attention_bias", "is not supported where \"q_lora_rank\" is null");
  }
  config.layers = ReadLayers(fields, arch, config.layers.size());
  ReadExpertLayers(fields, config);
  const SequenceLengths lengths{.max_positions = config.max_positions, .longest = longest};
  const int64_t roped_dim = config.latent ? config.latent->rope_dim : config.head_dim;
  config.ropes = ReadRopes(fields, arch, roped_dim, lengths);
  config.max_positions = ExactPositions(config.ropes, lengths);
  if (arch.reads_query_scaling) ReadQueryScaling(fields, config);
  config.tie_word_embeddings = fields.Bool(kTiedField, arch.defaults.tie_word_embeddings);
  return config;
}

ModelConfig ReadHuggingFaceConfig(const std::string& folder, int64_t longest) {
  const ConfigFields root = ReadConfigJson(folder);
  if (DescribesDraftHead(root)) {
    root.Fail("model", "is a draft head, which only guesses the tokens of another model");
  }
  const ArchSpec& named = ReadArchitecture(root);
  const std::string section(named.config_section);
  const bool outside =
      section.empty() || (!root.HasObject(section.c_str()) && root.Has("hidden_size"));
  if (!outside && !root.HasObject(section.c_str())) {
    root.FailValue(section.c_str(), "a JSON object");
  }
  const ConfigFields fields = outside ? root : root.Object(section.c_str());
  return ReadDecoder(*RowOfText(&named, fields.String("model_type", "")), root, fields, longest);
}

// Older checkpoints of ModelOpt say in a file of their own how they are quantized.
std::optional<Quantization> FindModeloptFile(const std::string& folder) {
  const std::string path = folder + "/hf_quant_config.json";
  if (!HasModelFile(path)) return std::nullopt;
  return ReadModeloptFile(ReadModelFile(path));
}

// The sizes of an MLC folder under the names of config.json. In an MLC folder, 0 and -1 mean "not
// given".
ConfigFields MlcFields(const ConfigFields& root) {
  const ConfigFields model = root.Object("model_config");
  return model.Flattened("text_config")
      .Flattened("kwargs")
      .Respelled({{"rope_theta", "position_embedding_base"},
                  {"max_position_embeddings", "context_window_size"},
                  {"sliding_window", "sliding_window_size"},
                  {"sliding_window", "sliding_window"},
                  {"rope_scaling", "rope_scaling"},
                  {"head_dim", "head_dim"},
                  {"num_key_value_heads", "num_key_value_heads"}});
}

ModelConfig ReadMlcModelConfig(const std::string& folder, int64_t longest) {
  const ConfigFields root = ConfigFields::ReadFile(folder + "/mlc-chat-config.json");
  const std::string type = root.String("model_type", "");
  const MlcFamily* family = FindMlcFamily(type);
  if (family == nullptr) {
    root.Fail("model_type",
              "= \"" + type + "\" is not supported; supported: " + MlcModelTypeList());
  }
  const std::string name = root.String("quantization", "");
  const MlcQuantization* quantization = FindMlcQuantization(name);
  if (quantization == nullptr) {
    root.Fail("quantization",
              "= \"" + name + "\" is not supported; supported: " + MlcQuantizationList());
  }
  const ArchSpec& arch = *FindArchitecture(family->architecture);
  // MLC-LLM has no other GELU for these families.
  ModelConfig config = ReadNumbers(arch, MlcFields(root), longest, /*gelu_is_tanh=*/true);
  config.projections = family->projections;
  config.norm_weight_offset = 0;
  config.quantization = quantization->matrices;
  config.dtype = quantization->dtype;
  const int64_t context = root.Integer("context_window_size", -1, -1, kMaxPositions);
  if (context > 0) config.max_positions = std::min(config.max_positions, context);
  return config;
}

}  // namespace

ConfigFields ReadConfigJson(const std::string& folder) {
  std::error_code ignored;
  if (!std::filesystem::exists(folder, ignored)) {
    throw LoadError("model", folder + " is not a model folder: there is no such folder");
  }
  const std::string path = folder + "/config.json";
  if (!HasModelFile(path)) {
    throw LoadError("config.json", folder + " is not a model folder: it has no config.json");
  }
  return ReadModelFile(path);
}

ModelConfig ReadDecoder(const ArchSpec& arch, const ConfigFields& root, const ConfigFields& fields,
                        int64_t longest) {
  RefuseUnsupported(root);
  RefuseUnsupported(fields);
  CheckRequirements(fields, arch);
  ModelConfig config = ReadNumbers(arch, fields, longest, arch.gelu_is_tanh);
  // Wrappers of a text model say it inside or outside; a head that is stored all the same counts.
  if (root.Bool(kTiedField, false)) config.tie_word_embeddings = true;
  if (root.Has(kTiedField) && !fields.Has(kTiedField)) {
    config.tie_word_embeddings = root.Bool(kTiedField, false);
  }
  config.quantization = FindQuantization(root, fields);
  if (root.Bool(kFoldedNorms, false)) config.norm_weight_offset = 0;
  config.dtype = ReadDType(fields);
  if (!config.dtype) config.dtype = ReadDType(root);
  return config;
}

ModelConfig ReadModelConfig(const std::string& folder, int64_t longest) {
  if (IsMlcFolder(folder)) return ReadMlcModelConfig(folder, longest);
  ModelConfig config = ReadHuggingFaceConfig(folder, longest);
  if (!config.quantization) config.quantization = FindModeloptFile(folder);
  return config;
}

}  // namespace mlc_native
