#include "checkpoint/embedding_defaults.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "model_files/model_files.h"
#include "support/config_fields.h"

namespace mlc_native {
namespace {

constexpr char kModules[] = "modules.json";
// Of GGUF files; 0 is none, 2 the first token, 4 a rank.
constexpr int64_t kMeanOfGguf = 1;
constexpr int64_t kLastOfGguf = 3;
constexpr int64_t kLastTypeOfGguf = 4;

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

EmbeddingDefaults ReadModules(const std::string& folder, const std::string& path) {
  EmbeddingDefaults defaults{.normalize = false};
  for (const ConfigFields& module : ConfigFields::ReadListFile(path)) {
    const std::string kind = KindOf(module);
    if (kind == "Pooling") {
      const std::string name = FolderOf(module) + "/config.json";
      const std::string config = folder + '/' + name;
      if (HasModelFile(config)) {
        ReadPooling(ConfigFields::ReadFile(config), name, &defaults);
      } else {
        defaults.refusal = name + ", which " + kModules + " names, does not exist";
      }
    } else if (kind == "Normalize") {
      defaults.normalize = true;
    } else if (kind != "Transformer") {
      defaults.refusal = std::string(kModules) + " has a module \"" + kind.substr(0, 64) + '"';
    }
  }
  return defaults;
}

}  // namespace

EmbeddingDefaults ReadEmbeddingDefaults(const std::string& model_path) {
  const std::string modules = model_path + '/' + kModules;
  if (HasModelFile(modules)) return ReadModules(model_path, modules);
  const std::string config_path = model_path + "/config.json";
  EmbeddingDefaults defaults;
  if (GgufOf(model_path).empty() || !HasModelFile(config_path)) return defaults;
  const int64_t type = ReadModelFile(config_path).Integer("pooling_type", 0, 0, kLastTypeOfGguf);
  if (type == kMeanOfGguf) defaults.pooling = Pooling::kMean;
  if (type != 0 && type != kMeanOfGguf && type != kLastOfGguf) {
    defaults.refusal = "the file pools by type " + std::to_string(type);
  }
  return defaults;
}

}  // namespace mlc_native
