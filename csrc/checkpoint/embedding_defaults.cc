#include "checkpoint/embedding_defaults.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/dense_layers.h"
#include "model_files/model_files.h"
#include "support/config_fields.h"
#include "support/error.h"

namespace mlc_native {
namespace {

constexpr char kModules[] = "modules.json";
// Of GGUF files; 0 is none, 4 a rank.
constexpr int64_t kMeanOfGguf = 1;
constexpr int64_t kFirstOfGguf = 2;
constexpr int64_t kLastOfGguf = 3;
constexpr int64_t kLastTypeOfGguf = 4;

constexpr char kScoringModule[] = "LogitScore";

// "sentence_transformers.models.Pooling" and "sentence_transformers.models.pooling.Pooling" are
// "Pooling".
std::string KindOf(const ConfigFields& module) {
  const std::string type = module.String("type");
  return type.substr(type.rfind('.') + 1);
}

// The folder of a module, within that of the model.
std::string FolderOf(const ConfigFields& module) {
  const std::string path = module.String("path", "");
  const std::filesystem::path folder(path);
  const bool leaves = folder.is_absolute() || std::ranges::find(folder, "..") != folder.end();
  if (leaves) module.FailValue("path", "a folder within the model's");
  return path;
}

// The ways of pooling that the file turns on, by the names that its newer form has.
std::vector<std::string> ModesOf(const ConfigFields& config) {
  constexpr std::string_view kPrefix = "pooling_mode_";
  if (config.Has("pooling_mode")) return {config.String("pooling_mode")};
  std::vector<std::string> modes;
  for (const std::string& name : config.Names()) {
    if (name.starts_with(kPrefix) && config.Bool(name.c_str(), false)) {
      modes.push_back(name.substr(kPrefix.size()));
    }
  }
  return modes;
}

// `name`: of the file, for refusals, which callers of the engine may see.
void ReadPooling(const ConfigFields& config, const std::string& name, EmbeddingDefaults* defaults) {
  const std::vector<std::string> modes = ModesOf(config);
  const std::string mode = modes.size() == 1 ? modes[0] : "";
  if (mode == "lasttoken") {
    defaults->pooling = Pooling::kLast;
  } else if (mode == "cls_token" || mode == "cls") {
    defaults->pooling = Pooling::kCls;
  } else if (mode == "mean_tokens" || mode == "mean") {
    defaults->pooling = Pooling::kMean;
    if (config.Bool("include_prompt", true)) return;
    defaults->refusal = name + " leaves the prompt out of the mean";
  } else {
    std::string list;
    for (const std::string& each : modes) list += (list.empty() ? "" : " and ") + each;
    defaults->refusal = name + " pools by " + (list.empty() ? "nothing" : list);
  }
}

// A Dense module in this folder; nullopt with a refusal if it is of a kind that is not supported.
std::optional<DenseLayer> ReadDense(const std::string& folder, const std::string& name,
                                    EmbeddingDefaults* defaults) {
  constexpr int64_t kMaxDenseSize = 1 << 20;
  const std::string path = folder + '/' + name;
  const auto refuse = [&](const std::string& what) {
    defaults->refusal = name + what;
    return std::nullopt;
  };
  for (const char* const file : {"/config.json", "/model.safetensors"}) {
    if (!HasModelFile(path + file)) return refuse(file + std::string(" does not exist"));
  }
  const ConfigFields config = ConfigFields::ReadFile(path + "/config.json");
  for (const char* const field : {"module_input_name", "module_output_name"}) {
    const std::string value = config.String(field, "sentence_embedding");
    if (value != "sentence_embedding") return refuse("/config.json reads or writes " + value);
  }
  const std::string function = config.String("activation_function", "torch.nn.Tanh");
  const std::optional<DenseActivation> activation = FindDenseActivation(function);
  if (!activation) return refuse(" has the activation " + function.substr(0, 64));
  const Checkpoint checkpoint(path);
  DenseLayer layer{.input_size = config.Integer("in_features", std::nullopt, 1, kMaxDenseSize),
                   .activation = *activation};
  const int64_t outputs = config.Integer("out_features", std::nullopt, 1, kMaxDenseSize);
  layer.weight = ReadDenseMatrix(checkpoint, "linear.weight", outputs, layer.input_size);
  if (config.Bool("bias", true)) layer.bias = ReadDenseVector(checkpoint, "linear.bias", outputs);
  return layer;
}

// Each takes what the one before it gives, and so few multiply that no number is beyond a double.
// Throws LoadError.
void CheckChain(const std::string& path, const std::vector<DenseLayer>& layers) {
  constexpr size_t kMaxDense = 4;
  if (layers.size() > kMaxDense) {
    throw LoadError(kModules, path + ": at most " + std::to_string(kMaxDense) +
                                  " Dense modules are supported, got " +
                                  std::to_string(layers.size()));
  }
  for (size_t i = 1; i < layers.size(); ++i) {
    const int64_t given = layers[i - 1].output_size();
    if (layers[i].input_size == given) continue;
    throw LoadError(kModules, path + ": a Dense module has \"in_features\" " +
                                  std::to_string(layers[i].input_size) + " behind one that gives " +
                                  std::to_string(given));
  }
}

EmbeddingDefaults ReadModules(const std::string& folder, const std::string& path) {
  EmbeddingDefaults defaults{.normalize = false};
  std::vector<DenseLayer> layers;
  bool is_pooled = false;
  for (const ConfigFields& module : ConfigFields::ReadListFile(path)) {
    const std::string kind = KindOf(module);
    if (kind == "Pooling") {
      is_pooled = true;
      const std::string name = FolderOf(module) + "/config.json";
      const std::string config = folder + '/' + name;
      if (HasModelFile(config)) {
        ReadPooling(ConfigFields::ReadFile(config), name, &defaults);
      } else {
        defaults.refusal = name + ", which " + kModules + " names, does not exist";
      }
    } else if (kind == "Normalize") {
      defaults.normalize = true;
    } else if (kind == "Dense" && is_pooled && !defaults.normalize) {
      std::optional<DenseLayer> layer = ReadDense(folder, FolderOf(module), &defaults);
      if (layer) layers.push_back(std::move(*layer));
    } else if (kind != "Transformer" && kind != "Dropout") {
      defaults.refusal = std::string(kModules) + " has a module \"" + kind.substr(0, 64) + '"';
    }
  }
  if (!defaults.refusal.empty() || layers.empty()) return defaults;
  CheckChain(path, layers);
  defaults.layers = std::make_shared<const DenseLayers>(std::move(layers));
  return defaults;
}

// The Dense modules of a GGUF file, as llama.cpp keeps those of EmbeddingGemma: matrices without
// biases and activations.
void ReadDenseOfGguf(const std::string& path, EmbeddingDefaults* defaults) {
  const Checkpoint checkpoint(path);
  std::vector<DenseLayer> layers;
  for (const char* const name : {"dense_2.weight", "dense_3.weight"}) {
    const Checkpoint::Entry* const entry = checkpoint.Find(name);
    if (entry == nullptr) continue;
    const std::vector<int64_t>& shape = entry->tensor->shape;
    if (!entry->tensor->dtype || shape.size() != 2) {
      defaults->refusal = std::string(name) + " is no matrix of floats";
      return;
    }
    layers.push_back(
        {.input_size = shape[1], .weight = ReadDenseMatrix(checkpoint, name, shape[0], shape[1])});
  }
  if (layers.empty()) return;
  CheckChain(path, layers);
  defaults->layers = std::make_shared<const DenseLayers>(std::move(layers));
}

// 0 also for a folder.
int64_t PoolingOfGguf(const std::string& model_path) {
  const std::string path = model_path + "/config.json";
  if (GgufOf(model_path).empty() || !HasModelFile(path)) return 0;
  return ReadModelFile(path).Integer("pooling_type", 0, 0, kLastTypeOfGguf);
}

}  // namespace

bool SaysPooling(const std::string& model_path) {
  if (HasModelFile(model_path + '/' + kModules)) return true;
  const int64_t type = PoolingOfGguf(model_path);
  return type >= kMeanOfGguf && type <= kLastOfGguf;
}

std::vector<int32_t> ReadScoredTokens(const std::string& model_path) {
  constexpr int64_t kMaxId = std::numeric_limits<int32_t>::max();
  const std::string modules = model_path + '/' + kModules;
  if (!HasModelFile(modules)) return {};
  for (const ConfigFields& module : ConfigFields::ReadListFile(modules)) {
    if (KindOf(module) != kScoringModule) continue;
    const ConfigFields config =
        ConfigFields::ReadFile(model_path + '/' + FolderOf(module) + "/config.json");
    const auto id = [&](const char* field) {
      return static_cast<int32_t>(config.Integer(field, std::nullopt, 0, kMaxId));
    };
    if (!config.Has("false_token_id")) return {id("true_token_id")};
    return {id("false_token_id"), id("true_token_id")};
  }
  return {};
}

EmbeddingDefaults ReadEmbeddingDefaults(const std::string& model_path) {
  const std::string modules = model_path + '/' + kModules;
  if (HasModelFile(modules)) return ReadModules(model_path, modules);
  EmbeddingDefaults defaults;
  const int64_t type = PoolingOfGguf(model_path);
  if (type == kMeanOfGguf) {
    defaults.pooling = Pooling::kMean;
    ReadDenseOfGguf(model_path, &defaults);
  }
  if (type == kFirstOfGguf) defaults.pooling = Pooling::kCls;
  if (type != 0 && type != kMeanOfGguf && type != kFirstOfGguf && type != kLastOfGguf) {
    defaults.refusal = "the file pools by type " + std::to_string(type);
  }
  return defaults;
}

}  // namespace mlc_native
