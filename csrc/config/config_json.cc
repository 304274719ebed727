// JSON of the configs. Reading is strict: each field's type and range is checked where it is read,
// and a name that no field has is refused.
#include <algorithm>
#include <string>
#include <vector>

#include "config/field_reader.h"
#include "config/speculation_checks.h"
#include "mlc_native/config.h"
#include "mlc_native/detail/dtype.h"
#include "support/config_fields.h"
#include "support/error.h"
#include "support/json.h"

namespace mlc_native {
namespace {

// Levenshtein distance, for "did you mean".
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

// "; did you mean ...?" with the known name that is nearest to a wrong one, unless a third of the
// letters would have to be others.
std::string NameHint(const std::string& name, const std::vector<std::string>& known) {
  size_t least = std::string::npos;
  const std::string* nearest = nullptr;
  for (const std::string& other : known) {
    const size_t distance = EditDistance(name, other);
    if (3 * distance > std::max(name.size(), other.size()) || distance >= least) continue;
    least = distance;
    nearest = &other;
  }
  return nearest == nullptr ? "" : "; did you mean \"" + *nearest + "\"?";
}

// What is understood but not there.
void CheckSupported(const EngineConfig& config) {
  if (config.max_history_size.value_or(0) != 0) {
    throw InvalidConfig("max_history_size",
                        "KV cache does not support max_history_size, while it is set to " +
                            std::to_string(*config.max_history_size) +
                            " in the input EngineConfig");
  }
  if (config.sliding_window_size) {
    throw InvalidConfig("sliding_window_size",
                        "\"sliding_window_size\" must be null, got " +
                            std::to_string(*config.sliding_window_size) +
                            ": the window of the model's config.json is used");
  }
  if (config.attention_sink_size.value_or(0) != 0) {
    throw InvalidConfig("attention_sink_size",
                        OutOfRangeMessage("attention_sink_size", *config.attention_sink_size,
                                          "0 or null: attention sinks are not supported"));
  }
  if (config.speculative_mode != SpeculativeMode::kDisable && config.spec_tree_width != 1) {
    throw InvalidConfig("spec_tree_width",
                        OutOfRangeMessage("spec_tree_width", config.spec_tree_width,
                                          "1: a draft is one chain of tokens"));
  }
  if (config.max_queue_length == 0) {
    throw InvalidConfig("max_queue_length",
                        OutOfRangeMessage("max_queue_length", 0, "at least 1, or -1 for no limit"));
  }
}

void CheckTogether(const EngineConfig& config) {
  CheckAdditionalModels(config);
  if (config.speculative_mode == SpeculativeMode::kDisable && config.spec_draft_length != 0) {
    throw InvalidConfig("spec_draft_length",
                        OutOfRangeMessage("spec_draft_length", config.spec_draft_length,
                                          "0 while \"speculative_mode\" is \"disable\""));
  }
  if (config.prompt_lookup_min > config.prompt_lookup_max) {
    throw InvalidConfig("prompt_lookup_max",
                        OutOfRangeMessage("prompt_lookup_max", config.prompt_lookup_max,
                                          "at least \"prompt_lookup_min\" (" +
                                              std::to_string(config.prompt_lookup_min) + ')'));
  }
  if (config.prefill_chunk_size && config.max_num_sequence &&
      *config.prefill_chunk_size < *config.max_num_sequence) {
    throw InvalidConfig("prefill_chunk_size",
                        OutOfRangeMessage("prefill_chunk_size", *config.prefill_chunk_size,
                                          "at least \"max_num_sequence\" (" +
                                              std::to_string(*config.max_num_sequence) + ')'));
  }
}

// Writes members of a config.
template <typename Config>
class FieldWriter {
 public:
  FieldWriter(const Config& config, JsonWriter* json) : config_(config), json_(json) {}

  template <typename T>
  void operator()(const Field& field, T Config::* member) {
    json_->Name(field.name);
    Write(config_.*member);
  }

 private:
  template <typename T>
  void Write(const T& value) {
    if constexpr (std::is_enum_v<T>) {
      const char* name = NameOf(value);
      name == nullptr ? json_->Null() : json_->Put(name);
    } else {
      json_->Put(value);
    }
  }
  template <typename T>
  void Write(const std::optional<T>& value) {
    value ? Write(*value) : void(json_->Null());
  }
  template <typename T>
  void Write(const std::vector<T>& values) {
    json_->BeginArray();
    for (const T& value : values) Write(value);
    json_->EndArray();
  }
  void Write(const WeightQuantization& quantization) {
    const std::string name = quantization.ToString();
    name.empty() ? json_->Null() : json_->Put(name);
  }
  void Write(const LogitBias& bias) {
    json_->BeginObject();
    for (const auto& [token_id, value] : bias) json_->Add(std::to_string(token_id), value);
    json_->EndObject();
  }
  void Write(const ResponseFormat& format) {
    json_->BeginObject().Add("type", ToString(format.type)).Add("text", format.text);
    json_->Name("choices");
    Write(format.choices);
    json_->Add("strict", format.strict).EndObject();
  }
  void Write(const DebugConfig& debug) {
    json_->BeginObject();
    VisitDebugFields(FieldWriter<DebugConfig>(debug, json_));
    json_->EndObject();
  }

  const Config& config_;
  JsonWriter* json_;
};

}  // namespace

void RefuseUnknownFields(const ConfigFields& fields, const std::vector<std::string>& known,
                         const std::string& what) {
  for (const std::string& name : fields.Names()) {
    if (std::ranges::count(known, name) > 0) continue;
    const std::string beginning = name.substr(0, 64);
    fields.Refuse(name,
                  "Unknown field \"" + beginning + "\" in " + what + NameHint(beginning, known));
  }
}

EngineConfig EngineConfig::FromJSONString(const std::string& json_text) {
  const ConfigFields fields = ConfigFields::Parse(json_text, "The engine config", "engine_config",
                                                  ThrowFieldError<InvalidConfig>);
  EngineConfig config;
  FieldReader<EngineConfig> read(fields, &config);
  VisitEngineFields(read);
  RefuseUnknownFields(fields, read.known(), "the engine config");
  CheckSupported(config);
  CheckTogether(config);
  return config;
}

std::string EngineConfig::AsJSONString() const {
  JsonWriter json;
  json.BeginObject();
  VisitEngineFields(FieldWriter(*this, &json));
  return json.EndObject().Take();
}

std::string GenerationConfig::AsJSONString() const {
  JsonWriter json;
  json.BeginObject();
  VisitGenerationFields(FieldWriter(*this, &json));
  return json.EndObject().Take();
}

}  // namespace mlc_native
