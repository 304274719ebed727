#include "arch/model_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "arch/rope_config.h"
#include "arch/unsupported.h"
#include "mlc_native/config.h"
#include "model_files/model_files.h"
#include "support/config_fields.h"
#include "support/error.h"

namespace mlc_native {
namespace {

constexpr char kTiedField[] = "tie_word_embeddings";
// Of a GGUF file's metadata: the norms are stored with the family's norm_weight_offset.
constexpr char kFoldedNorms[] = "norms_hold_offset";
// Likewise: what the family's row says where a folder has a tower.
constexpr char kRowsSeeEachOther[] = "rows_see_each_other";

std::optional<int64_t> OrRequired(int64_t absent) {
  return absent == 0 ? std::nullopt : std::optional<int64_t>(absent);
}

// For a config.json that names none: that of its model_type, else an example.
std::string LikelyArchitecture(const ConfigFields& root) {
  const MlcFamily* family = FindMlcFamily(root.String("model_type", ""));
  return std::string(family == nullptr ? "LlamaForCausalLM" : family->architecture);
}

// One of both.
struct NamedModel {
  const ArchSpec* arch = nullptr;
  const ImageModel* image_model = nullptr;
  bool has_head = true;
  bool has_classes = false;
};

NamedModel ReadArchitecture(const ConfigFields& root) {
  const std::vector<std::string> names = root.Strings("architectures");
  std::string list;
  for (const std::string& name : names) {
    if (const ArchSpec* arch = FindArchitecture(name)) {
      return {.arch = arch, .has_head = !arch->is_encoder};
    }
    if (const ImageModel* model = FindImageModel(name)) return {.image_model = model};
    if (const ArchSpec* arch = FindDecoder(name)) return {.arch = arch, .has_head = false};
    if (const ArchSpec* arch = FindClassifier(name, root.HasObject("text_config"))) {
      return {.arch = arch, .has_head = false, .has_classes = true};
    }
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

// Of models that make embeddings: rows see all others, and in the windows of layers as many behind
// them as in front of them. What a window's number is of then is as in transformers. "vision" is of
// the tokens of an image alone.
void ReadDirections(const ConfigFields& fields, ModelConfig* config) {
  constexpr char kOfFamily[] = "use_bidirectional_attention";
  constexpr char kOfAll[] = "is_causal";
  const JsonValue* const value = fields.Find(kOfFamily);
  const bool is_vision =
      value != nullptr && value->is_string() && fields.String(kOfFamily) == "vision";
  const bool is_of_family =
      !is_vision && value != nullptr && (value->is_string() || fields.Bool(kOfFamily, false));
  const bool is_encoder = config->arch->is_encoder;
  if (!is_of_family && !is_encoder && fields.Bool(kOfAll, true)) return;
  const bool is_known = !is_of_family || (config->arch->reads_bidirectional && !value->is_string());
  const bool has_chunks = std::ranges::any_of(
      config->layers, [](const LayerConfig& layer) { return layer.window.is_chunk; });
  if (!is_known || config->has_states() || config->latent || config->compression || has_chunks) {
    fields.Fail(is_of_family ? kOfFamily : kOfAll,
                is_of_family ? "is not supported for this family"
                             : "= false is not supported for this family");
  }
  if (config->sight == RowSight::kAll) return;  // said twice
  config->sight = RowSight::kAll;
  for (LayerConfig& layer : config->layers) {
    int64_t& window = layer.window.size;
    if (window > 0) window = (is_of_family || is_encoder ? window / 2 : window) + 1;
  }
}

void RefuseUnsupported(const ConfigFields& fields) {
  if (fields.Has("clip_qkv")) fields.Fail("clip_qkv", "is not supported");
}

// The values of a field that is a string, a number or a boolean, or a list of strings.
std::vector<std::string> ValuesOf(const ConfigFields& fields, const char* field) {
  const JsonValue* const value = fields.Find(field);
  if (value == nullptr) return {"null"};
  if (value->is_array()) return fields.Strings(field);
  if (value->is_string()) return {fields.String(field)};
  if (value->is_bool()) return {fields.Bool(field, false) ? "true" : "false"};
  if (value->is_number() && !value->is_integer()) return {JsonExcerpt(*value)};
  return {std::to_string(fields.Integer(field, std::nullopt, 0, kMaxDimension))};
}

void CheckRequirements(const ConfigFields& fields, const ArchSpec& arch) {
  for (const Requirement& requirement : arch.requirements) {
    const std::string field(requirement.field), other(requirement.same_as);
    for (const std::string& value : ValuesOf(fields, field.c_str())) {
      if (std::ranges::find(requirement.values, value) != requirement.values.end()) continue;
      if (!other.empty() && value == ValuesOf(fields, other.c_str()).front()) continue;
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
  latent.value_dim =
      size("v_head_dim", rule.absent.value_dim != 0
                             ? rule.absent.value_dim
                             : std::max<int64_t>(config.hidden_size / config.num_heads, 1));
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

// That of the first layer where layers have sizes of their own (ReadLayerSizes).
int64_t ReadFfnSize(const ConfigFields& fields, const ModelConfig& config, int64_t absent) {
  const ArchSpec& arch = *config.arch;
  const std::string own(arch.own_ffn_size_field);
  const bool has_own = !own.empty() && fields.Has(own.c_str());
  const std::string field = has_own ? own : std::string(arch.ffn_size_field);
  const JsonValue* const value = fields.Find(field.c_str());
  if (arch.reads_ffn_sizes && value != nullptr && value->is_array()) {
    const std::vector<int64_t> sizes = fields.Sizes(field.c_str());
    if (!sizes.empty()) return sizes.front();
  }
  return fields.Integer(field.c_str(), OrRequired(absent), 1, kMaxDimension);
}

void ReadSizes(const ConfigFields& fields, const TextSizes& sizes, ModelConfig& config) {
  const ArchDefaults& absent = config.arch->defaults;
  const auto first = [](int64_t size, int64_t or_else) { return size != 0 ? size : or_else; };
  const auto size = [&](const char* field, int64_t or_else) {
    return fields.Integer(field, OrRequired(or_else), 1, kMaxDimension);
  };
  config.vocab_size = size("vocab_size", first(sizes.vocab_size, absent.vocab_size));
  config.hidden_size = size("hidden_size", sizes.hidden_size);
  config.ffn_size = ReadFfnSize(
      fields, config,
      first(sizes.ffn_size, first(absent.ffn_size, absent.ffn_per_hidden * config.hidden_size)));
  config.num_heads =
      size("num_attention_heads", first(sizes.num_heads, absent.num_attention_heads));
  // Here and for head_dim, null means what follows from other fields, whatever the family's
  // default.
  const bool as_heads = fields.IsNull("num_key_value_heads") || absent.num_key_value_heads == 0;
  config.num_kv_heads =
      size("num_key_value_heads", as_heads ? config.num_heads : absent.num_key_value_heads);
  if (config.arch->reads_multi_query && !fields.Bool("new_decoder_architecture", false)) {
    config.num_kv_heads = fields.Bool("multi_query", true) ? 1 : config.num_heads;
  }
  if (config.arch->has_single_blocks) {
    config.layers = ReadBlocks(fields, *config.arch);
  } else {
    config.layers.resize(static_cast<size_t>(
        fields.Integer("num_hidden_layers", OrRequired(sizes.num_layers), 1, kMaxLayers)));
  }
  const PositionTable& table = config.arch->positions;
  const int64_t unused = table.is_counted ? table.first : 0;
  config.max_positions =
      fields.Integer("max_position_embeddings", absent.max_position_embeddings + unused, 1 + unused,
                     kMaxPositions) -
      unused;
  config.max_positions = std::min(config.max_positions, TrainedPositions(fields, *config.arch));
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
  const auto has_fourths = [](const ProjectionName& p) { return p.rows == Rows::kQvkOfFour; };
  if (std::ranges::any_of(config.projections, has_fourths) && config.kv_size() % 4 != 0) {
    fields.FailValue("hidden_size", "a multiple of 4");
  }
  if (config.num_heads * config.head_dim > kMaxDimension) {
    fields.FailValue("head_dim", "at most " + std::to_string(kMaxDimension / config.num_heads));
  }
}

void ReadExpertLayers(const ConfigFields& fields, ModelConfig& config) {
  const ExpertRule& rule = config.arch->experts;
  if (config.arch->has_single_blocks) {
    const bool has_some = std::ranges::any_of(config.layers, &LayerConfig::has_experts);
    if (has_some) config.experts = ReadExperts(fields, rule);
    return;
  }
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

// Elements of a head that the rope is for: of the layers that have it.
int64_t RopedDim(const ModelConfig& config, int rope) {
  if (config.latent) return config.latent->rope_dim;
  const auto layer = std::ranges::find(config.layers, rope, &LayerConfig::rope);
  return layer == config.layers.end() ? config.head_dim : config.head_dim_of(*layer);
}

// GGUF files of DistilBERT are those of a BERT without text types.
int64_t ReadTextTypes(const ConfigFields& fields, const ArchSpec& arch) {
  constexpr int64_t kMost = 1024;
  const bool has_some = !arch.text_types.empty() && fields.Bool("has_text_types", true);
  if (!has_some) return 0;
  const int64_t fewest = arch.may_lack_text_types ? 0 : 1;
  return fields.Integer("type_vocab_size", arch.defaults.type_vocab_size, fewest, kMost);
}

// Sets everything that follows from the family and the fields of the text model, except how the
// weights are stored.
ModelConfig ReadNumbers(const ArchSpec& arch, const ConfigFields& fields, int64_t longest,
                        bool gelu_is_tanh, const TextSizes& sizes = {}) {
  ModelConfig config;
  config.arch = &arch;
  const bool splits =
      !arch.split_projections.empty() && fields.Bool("has_split_projections", false);
  config.projections = splits ? arch.split_projections : arch.projections;
  config.norm_weight_offset = arch.norm_weight_offset;
  if (arch.rows_see_each_other) config.sight = RowSight::kOfImages;
  ReadSizes(fields, sizes, config);
  ReadLayerMath(fields, gelu_is_tanh, config);
  if (config.latent && config.latent->q_rank == 0 && config.qkv_bias) {
    fields.Fail("attention_bias", "is not supported where \"q_lora_rank\" is null");
  }
  ReadFalcon(fields, config);
  config.distances =
      ReadDistances(fields, arch.distance_rule, config.num_heads, config.max_positions);
  config.attention_scale = static_cast<float>(
      config.attention_scale / std::sqrt(static_cast<double>(config.distances.rows.NumProducts())));
  ReadKeyChoice(fields, config);
  ReadLayers(fields, arch, config.layers);
  ReadCompression(fields, config);
  ReadDelta(fields, config);
  ReadShortConvolutions(fields, config);
  ReadMamba(fields, config);
  ReadScan(fields, config);
  ReadMatrixScales(fields, config);
  ReadLayerSizes(fields, config);
  ReadGateCuts(fields, config);
  ReadLayerInputs(fields, config);
  ReadResidualStreams(fields, config);
  config.num_text_types = ReadTextTypes(fields, arch);
  ReadExpertLayers(fields, config);
  const SequenceLengths lengths{.max_positions = config.max_positions, .longest = longest};
  const RopedDims dims{.full = RopedDim(config, 0), .local = RopedDim(config, 1)};
  config.ropes = ReadRopes(fields, arch, dims, lengths);
  CheckIndexRope(fields, config);
  if (arch.reads_layer_thetas) ReadLayerThetas(fields, config.ropes, config.layers);
  config.max_positions = ExactPositions(config.ropes, lengths);
  // Their tables would be large: positions have no end, and heads that no layer has any size.
  if (arch.has_mamba_alone || arch.scan != nullptr) config.ropes.clear();
  config.tie_word_embeddings = fields.Bool(kTiedField, arch.defaults.tie_word_embeddings);
  if (arch.has_short_convolutions) {
    config.tie_word_embeddings = fields.Bool("tie_embedding", config.tie_word_embeddings);
  }
  return config;
}

// Whether the head is tied is said outside, and by older files inside. transformers' defaults
// differ; a head that is not stored is tied, one that is stored and differs counts.
ModelConfig ReadTextOfImageModel(const ImageModel& model, const ConfigFields& root,
                                 int64_t longest) {
  const std::string section(kTextSection);
  if (!root.HasObject(section.c_str())) root.FailValue(section.c_str(), "a JSON object");
  const ConfigFields fields = root.Object(section.c_str());
  const std::string type = fields.String("model_type", std::string(model.text_model_type));
  const TextFamily* const family = FindTextFamily(type);
  if (family == nullptr) {
    fields.Fail("model_type", "= \"" + type + "\" is not supported as the text model of " +
                                  std::string(model.architecture) +
                                  "; supported: " + TextFamilyList());
  }
  const ArchSpec& arch = *RowOfText(FindArchitecture(family->architecture), type);
  ModelConfig config = ReadDecoder(arch, root, fields, longest, family->sizes);
  config.image_model = &model;
  if (!model.has_head_of_text) {
    config.final_norm_scale = 1;
    config.final_soft_cap = 0;
    config.head_bias = false;
  }
  config.tie_word_embeddings = root.Bool(kTiedField, true) || fields.Bool(kTiedField, false);
  return config;
}

// The section of the text model; the file itself where the family has none or an older file lacks
// it.
ConfigFields FieldsOfText(const ArchSpec& arch, const ConfigFields& root) {
  if (arch.config_section.empty()) return root;
  const std::string_view path = arch.config_section;
  const size_t dot = path.find('.');
  const bool is_nested = dot != std::string_view::npos;
  const ConfigFields outer =
      is_nested ? root.Object(std::string(path.substr(0, dot)).c_str()) : root;
  const std::string section(is_nested ? path.substr(dot + 1) : path);
  if (outer.HasObject(section.c_str())) return outer.Object(section.c_str());
  if (!root.Has("hidden_size")) outer.FailValue(section.c_str(), "a JSON object");
  return root;
}

int64_t NumImageLayers(const ConfigFields& root, int64_t num_layers) {
  constexpr char kField[] = "deepstack_visual_indexes";
  const ConfigFields vision = root.Object("vision_config");
  if (!vision.Has(kField)) return 0;
  const int64_t count = std::ssize(vision.Sizes(kField));
  if (count >= num_layers) vision.FailValue(kField, "a list for fewer than all layers");
  return count;
}

ModelConfig ReadHuggingFaceConfig(const std::string& folder, int64_t longest) {
  const ConfigFields root = ReadConfigJson(folder);
  if (DescribesDraftHead(root)) {
    root.Fail("model", "is a draft head, which only guesses the tokens of another model");
  }
  const NamedModel model = ReadArchitecture(root);
  if (model.image_model != nullptr) {
    return ReadTextOfImageModel(*model.image_model, root, longest);
  }
  const ArchSpec& named = *model.arch;
  const ConfigFields fields = FieldsOfText(named, root);
  ModelConfig config =
      ReadDecoder(*RowOfText(&named, fields.String("model_type", "")), root, fields, longest);
  if (named.reads_mrope) config.num_image_layers = NumImageLayers(root, std::ssize(config.layers));
  if (!model.has_head) {  // the embeddings stand in for it, which take no memory of their own
    config.has_head = false;
    config.has_classes = model.has_classes;
    config.tie_word_embeddings = true;
    config.head_bias = false;
  }
  return config;
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
                  {"num_key_value_heads", "num_key_value_heads"}},
                 ConfigFields::SmallNumbers::kNotGiven);
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

ModelConfig ReadDecoder(const ArchSpec& arch, const ConfigFields& root, const ConfigFields& given,
                        int64_t longest, const TextSizes& sizes) {
  const ConfigFields flat = arch.attention_section.empty()
                                ? given
                                : given.Flattened(std::string(arch.attention_section).c_str());
  const ConfigFields fields =
      flat.Respelled({arch.field_spellings.begin(), arch.field_spellings.end()});
  RefuseUnsupported(root);
  RefuseUnsupported(fields);
  CheckRequirements(fields, arch);
  ModelConfig config = ReadNumbers(arch, fields, longest, arch.gelu_is_tanh, sizes);
  // Wrappers of a text model say it inside or outside; a head that is stored all the same counts.
  if (root.Bool(kTiedField, false)) config.tie_word_embeddings = true;
  if (root.Has(kTiedField) && !fields.Has(kTiedField)) {
    config.tie_word_embeddings = root.Bool(kTiedField, false);
  }
  ReadDirections(fields, &config);
  ReadDirections(root, &config);
  config.quantization = FindQuantization(root, fields);
  if (root.Bool(kFoldedNorms, false)) config.norm_weight_offset = 0;
  if (root.Bool(kRowsSeeEachOther, false)) config.sight = RowSight::kOfImages;
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
