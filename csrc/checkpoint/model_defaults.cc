// Reads the generation defaults of a model folder from config.json and generation_config.json, or
// from mlc-chat-config.json.
#include "checkpoint/model_defaults.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <span>
#include <string>

#include "checkpoint/embedding_defaults.h"
#include "mlc_native/config.h"
#include "model_files/model_files.h"
#include "support/config_fields.h"
#include "support/error.h"

namespace mlc_native {
namespace {

namespace fs = std::filesystem;

constexpr char kEosTokenId[] = "eos_token_id";
constexpr char kMlcConfig[] = "mlc-chat-config.json";

// An id or a list of ids; old checkpoints write -1 for "none".
std::vector<int32_t> ReadTokenIds(const ConfigFields& file, const char* field) {
  std::vector<int32_t> ids;
  const JsonValue* value = file.Find(field);
  if (value == nullptr) return ids;
  const std::span<const JsonValue> list =
      value->is_array() ? std::span(value->AsArray()) : std::span(value, 1);
  for (const JsonValue& item : list) {
    if (!item.IsIntegerIn(std::numeric_limits<int64_t>::min(),
                          std::numeric_limits<int32_t>::max())) {
      file.FailValue(field, "a token id or a list of token ids");
    }
    if (item.AsInteger() >= 0) ids.push_back(static_cast<int32_t>(item.AsInteger()));
  }
  return ids;
}

void ReadNumber(const ConfigFields& file, const char* name, double* out) {
  *out = file.Number(name, *out);
}

void ReadSamplingNumbers(const ConfigFields& file, GenerationConfig* config) {
  ReadNumber(file, "temperature", &config->temperature);
  ReadNumber(file, "top_p", &config->top_p);
  ReadNumber(file, "repetition_penalty", &config->repetition_penalty);
}

void CheckDefaults(const ConfigFields& file, const GenerationConfig& config) {
  try {
    config.Validate(std::numeric_limits<int32_t>::max());
  } catch (const InvalidRequest& e) {
    throw LoadError(e.field(), file.place() + ": " + e.what());
  }
}

void ReadTopK(const ConfigFields& file, GenerationConfig* config) {
  double top_k = 0;
  ReadNumber(file, "top_k", &top_k);
  if (!(top_k >= -1 && top_k <= std::numeric_limits<int32_t>::max()) ||
      top_k != std::floor(top_k)) {
    file.FailValue("top_k", "an integer, at least -1");
  }
  config->top_k = static_cast<int32_t>(top_k);
}

GenerationConfig ReadGenerationDefaults(const ConfigFields& file) {
  constexpr int64_t kMaxTokens = std::numeric_limits<int32_t>::max();
  GenerationConfig config;
  if (file.Bool("do_sample", false)) {
    ReadSamplingNumbers(file, &config);
    ReadNumber(file, "min_p", &config.min_p);
    ReadTopK(file, &config);
  } else if (file.Has("do_sample")) {
    // Greedy. As in transformers, the numbers of sampling do not count then.
    config.temperature = 0;
    ReadNumber(file, "repetition_penalty", &config.repetition_penalty);
  }
  config.max_tokens = file.Integer("max_new_tokens", config.max_tokens, 0, kMaxTokens);
  config.min_tokens = file.Integer("min_new_tokens", config.min_tokens, 0, kMaxTokens);
  CheckDefaults(file, config);
  return config;
}

// The end tokens of the model and the stop tokens of its conversation template. Either may be 2 by
// default, regardless of the tokenizer, so 2 counts only if both contain it or if there is no
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
  const ConfigFields config = ConfigFields::ReadFile(path.string());
  ModelDefaults defaults;
  ReadSamplingNumbers(config, &defaults.generation);
  ReadNumber(config, "frequency_penalty", &defaults.generation.frequency_penalty);
  ReadNumber(config, "presence_penalty", &defaults.generation.presence_penalty);
  CheckDefaults(config, defaults.generation);
  std::vector<int32_t> stops;
  const JsonValue* conversation = config.Find("conv_template");  // may be its name alone
  if (conversation != nullptr && conversation->is_object()) {
    stops = ReadTokenIds(config.Object("conv_template"), "stop_token_ids");
  }
  defaults.eos_token_ids = MlcStopTokens(ReadTokenIds(config, "eos_token_id"), stops);
  return defaults;
}

// Multi-modal checkpoints keep their language model's settings one level deeper.
ConfigFields ReadGenerationFields(const fs::path& config_path) {
  const ConfigFields config = ReadModelFile(config_path.string());
  const JsonValue* text_config = config.Find("text_config");
  const bool is_nested = text_config != nullptr && text_config->is_object();
  return is_nested && !config.Has(kEosTokenId) ? config.Object("text_config") : config;
}

}  // namespace

ModelDefaults ReadModelDefaults(const std::string& model_path) {
  const fs::path folder(model_path);
  std::error_code error;
  if (!fs::exists(folder, error)) {
    throw LoadError("model", "The model folder \"" + model_path + "\" does not exist");
  }
  if (IsMlcFolder(model_path)) return ReadMlcDefaults(folder / kMlcConfig);
  const fs::path config_path = folder / "config.json";
  if (!HasModelFile(config_path.string())) {
    throw LoadError("config.json",
                    "\"" + model_path + "\" is no model folder: it has no config.json");
  }
  const ConfigFields config = ReadGenerationFields(config_path);
  const std::string generation_path = (folder / "generation_config.json").string();
  ModelDefaults defaults;
  defaults.embedding = ReadEmbeddingDefaults(model_path);
  if (!HasModelFile(generation_path)) {
    defaults.eos_token_ids = ReadTokenIds(config, kEosTokenId);
    return defaults;
  }
  const ConfigFields generation = ReadModelFile(generation_path);
  defaults.generation = ReadGenerationDefaults(generation);
  defaults.eos_token_ids =
      ReadTokenIds(generation.Has(kEosTokenId) ? generation : config, kEosTokenId);
  return defaults;
}

}  // namespace mlc_native
