// Reads what a model folder says about generation: config.json and generation_config.json, or
// mlc-chat-config.json.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>

#include <nlohmann/json.hpp>

#include "config/config.h"
#include "support/error.h"

namespace mlc_native {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr uintmax_t kMaxConfigBytes = 16 << 20;
constexpr char kMlcConfig[] = "mlc-chat-config.json";

// nullopt when there is no such file.
std::optional<json> ReadJsonObject(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return std::nullopt;
  const uintmax_t size = fs::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  if (error || !file) throw LoadError(path.string(), "Cannot read " + path.string());
  if (size > kMaxConfigBytes) {
    throw LoadError(path.string(), path.string() + " must have at most " +
                                       std::to_string(kMaxConfigBytes) + " bytes, got " +
                                       std::to_string(size));
  }
  std::stringstream text;
  text << file.rdbuf();
  json parsed;
  try {
    parsed = json::parse(text.str());
  } catch (const json::exception& e) {
    throw LoadError(path.string(), path.string() + " is not valid JSON: " + e.what());
  }
  if (!parsed.is_object()) {
    throw LoadError(path.string(), path.string() + " must hold a JSON object");
  }
  return parsed;
}

// An object of the model folder with the path it came from, for messages.
struct ConfigFile {
  std::string path;
  json object;

  const json* Find(const char* name) const {
    const auto found = object.find(name);
    return found == object.end() || found->is_null() ? nullptr : &*found;
  }

  [[noreturn]] void Refuse(const char* name, const char* allowed) const {
    throw LoadError(name, path + ": \"" + name + "\" must be " + allowed + ", got " +
                              object[name].dump(-1, ' ', false, json::error_handler_t::replace));
  }
};

// An id or a list of ids; old checkpoints write -1 for "none".
std::vector<int32_t> ReadTokenIds(const ConfigFile& file, const char* field) {
  std::vector<int32_t> ids;
  const json* value = file.Find(field);
  if (value == nullptr) return ids;
  const json list = value->is_array() ? *value : json::array({*value});
  for (const json& item : list) {
    if (!item.is_number_integer() || item.get<int64_t>() > std::numeric_limits<int32_t>::max()) {
      file.Refuse(field, "a token id or a list of token ids");
    }
    if (item.get<int64_t>() >= 0) ids.push_back(item.get<int32_t>());
  }
  return ids;
}

void ReadNumber(const ConfigFile& file, const char* name, double* out) {
  const json* value = file.Find(name);
  if (value == nullptr) return;
  if (!value->is_number()) file.Refuse(name, "a number");
  *out = value->get<double>();
}

void ReadSamplingNumbers(const ConfigFile& file, GenerationConfig* config) {
  ReadNumber(file, "temperature", &config->temperature);
  ReadNumber(file, "top_p", &config->top_p);
  ReadNumber(file, "repetition_penalty", &config->repetition_penalty);
}

void CheckDefaults(const ConfigFile& file, const GenerationConfig& config) {
  try {
    config.Validate(std::numeric_limits<int32_t>::max());
  } catch (const InvalidRequest& e) {
    throw LoadError(e.field(), file.path + ": " + e.what());
  }
}

// Defaults of sampling; a model whose generation_config does not sample keeps ours.
GenerationConfig ReadSamplingDefaults(const ConfigFile& file) {
  GenerationConfig config;
  const json* do_sample = file.Find("do_sample");
  if (do_sample == nullptr) return config;
  if (!do_sample->is_boolean()) file.Refuse("do_sample", "true or false");
  if (!do_sample->get<bool>()) return config;
  ReadSamplingNumbers(file, &config);
  ReadNumber(file, "min_p", &config.min_p);
  double top_k = 0;
  ReadNumber(file, "top_k", &top_k);
  if (!(top_k >= -1 && top_k <= std::numeric_limits<int32_t>::max()) ||
      top_k != std::floor(top_k)) {
    file.Refuse("top_k", "an integer, at least -1");
  }
  config.top_k = static_cast<int32_t>(top_k);
  CheckDefaults(file, config);
  return config;
}

// The end tokens of the model and the stop tokens of its conversation template. Either may be 2 by
// default, whatever 2 means to the tokenizer: it counts when both say so, or when there is no
// other.
std::vector<int32_t> MlcStopTokens(std::vector<int32_t> ids, const std::vector<int32_t>& others) {
  constexpr int32_t kDefault = 2;
  const auto has_default = [&](const auto& list) { return std::ranges::count(list, kDefault) > 0; };
  const bool both = has_default(ids) && has_default(others);
  for (int32_t id : others) {
    if (std::ranges::count(ids, id) == 0) ids.push_back(id);
  }
  if (!both && ids.size() > 1) std::erase(ids, kDefault);
  return ids;
}

ModelDefaults ReadMlcDefaults(const fs::path& path) {
  ConfigFile config{path.string(), *ReadJsonObject(path)};
  ModelDefaults defaults;
  ReadSamplingNumbers(config, &defaults.generation);
  ReadNumber(config, "frequency_penalty", &defaults.generation.frequency_penalty);
  ReadNumber(config, "presence_penalty", &defaults.generation.presence_penalty);
  CheckDefaults(config, defaults.generation);
  std::vector<int32_t> stops;
  const json* conversation = config.Find("conv_template");
  if (conversation != nullptr && conversation->is_object()) {
    stops = ReadTokenIds({config.path, *conversation}, "stop_token_ids");
  }
  defaults.eos_token_ids = MlcStopTokens(ReadTokenIds(config, "eos_token_id"), stops);
  return defaults;
}

}  // namespace

bool IsMlcFolder(const std::string& folder) {
  std::error_code ignored;
  return fs::exists(fs::path(folder) / kMlcConfig, ignored) &&
         !fs::exists(fs::path(folder) / "config.json", ignored);
}

ModelDefaults ReadModelDefaults(const std::string& model_path) {
  const fs::path folder(model_path);
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw LoadError("model", "The model folder \"" + model_path + "\" does not exist");
  }
  if (IsMlcFolder(model_path)) return ReadMlcDefaults(folder / kMlcConfig);
  std::optional<json> model_config = ReadJsonObject(folder / "config.json");
  if (!model_config) {
    throw LoadError("config.json",
                    "\"" + model_path + "\" is no model folder: it has no config.json");
  }
  ConfigFile config{(folder / "config.json").string(), std::move(*model_config)};
  // Multi-modal checkpoints keep their language model's settings one level deeper.
  if (config.Find("eos_token_id") == nullptr) {
    const json* text_config = config.Find("text_config");
    if (text_config != nullptr && text_config->is_object()) {
      json nested = *text_config;
      config.object = std::move(nested);
    }
  }

  ModelDefaults defaults;
  ConfigFile generation{(folder / "generation_config.json").string(), json::object()};
  if (auto object = ReadJsonObject(folder / "generation_config.json")) {
    generation.object = std::move(*object);
    defaults.generation = ReadSamplingDefaults(generation);
  }
  defaults.eos_token_ids = ReadTokenIds(
      generation.Find("eos_token_id") != nullptr ? generation : config, "eos_token_id");
  return defaults;
}

}  // namespace mlc_native
