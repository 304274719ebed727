// JSON of the configs. Reading is strict: each field's type and range is checked where it is read,
// and a name that nobody read is refused.
#include <algorithm>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "config/config.h"
#include "support/dtype.h"
#include "support/error.h"

namespace mlc_native {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int64_t kMaxSize = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxBytes = int64_t{1} << 50;

template <typename Enum>
using EnumNames = std::vector<std::pair<const char*, Enum>>;

const EnumNames<EngineMode>& ModeNames() {
  static const EnumNames<EngineMode> names = {{"local", EngineMode::kLocal},
                                              {"interactive", EngineMode::kInteractive},
                                              {"server", EngineMode::kServer}};
  return names;
}

const EnumNames<SpeculativeMode>& SpeculativeModeNames() {
  static const EnumNames<SpeculativeMode> names = {{"disable", SpeculativeMode::kDisable},
                                                   {"small_draft", SpeculativeMode::kSmallDraft},
                                                   {"eagle", SpeculativeMode::kEagle},
                                                   {"medusa", SpeculativeMode::kMedusa}};
  return names;
}

const EnumNames<WeightQuantization>& WeightQuantizationNames() {
  static const EnumNames<WeightQuantization> names = {{"off", WeightQuantization::kOff},
                                                      {"q8", WeightQuantization::kQ8},
                                                      {"q4", WeightQuantization::kQ4}};
  return names;
}

const EnumNames<KvCacheDType>& KvCacheDTypeNames() {
  static const EnumNames<KvCacheDType> names = {
      {"auto", KvCacheDType::kAuto},       {"bfloat16", KvCacheDType::kBFloat16},
      {"float16", KvCacheDType::kFloat16}, {"float32", KvCacheDType::kFloat32},
      {"int8", KvCacheDType::kInt8},       {"float8", KvCacheDType::kFloat8}};
  return names;
}

const EnumNames<PrefixCacheMode>& PrefixCacheModeNames() {
  static const EnumNames<PrefixCacheMode> names = {{"disable", PrefixCacheMode::kDisable},
                                                   {"radix", PrefixCacheMode::kRadix}};
  return names;
}

const EnumNames<PrefillMode>& PrefillModeNames() {
  static const EnumNames<PrefillMode> names = {{"chunked", PrefillMode::kChunked},
                                               {"hybrid", PrefillMode::kHybrid}};
  return names;
}

template <typename Enum>
const char* NameOf(const EnumNames<Enum>& names, Enum value) {
  for (const auto& [name, candidate] : names) {
    if (candidate == value) return name;
  }
  return "invalid";
}

// `"local", "interactive" or "server"`
template <typename Names>
std::string ListNames(const Names& names) {
  std::string list;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) list += i + 1 == names.size() ? " or " : ", ";
    list += '"' + std::string(names[i]) + '"';
  }
  return list;
}

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

std::string Dump(const json& value) {
  constexpr size_t kMaxLen = 80;
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > kMaxLen) text = text.substr(0, kMaxLen) + "...";
  return text;
}

// Reads the members of one JSON object. An absent or null member leaves the target as it is.
class FieldReader {
 public:
  explicit FieldReader(const json& object) : object_(object) {}

  void Read(const char* name, std::string* out) {
    if (const json* value = Find(name)) {
      if (!value->is_string()) Refuse(name, "a string", *value);
      *out = value->get<std::string>();
    }
  }

  void Read(const char* name, bool* out) {
    if (const json* value = Find(name)) {
      if (!value->is_boolean()) Refuse(name, "true or false", *value);
      *out = value->get<bool>();
    }
  }

  void Read(const char* name, std::vector<std::string>* out) {
    const json* value = Find(name);
    if (value == nullptr) return;
    const bool all_strings =
        value->is_array() && std::all_of(value->begin(), value->end(),
                                         [](const json& item) { return item.is_string(); });
    if (!all_strings) Refuse(name, "a list of strings", *value);
    *out = value->get<std::vector<std::string>>();
  }

  // Integer is int64_t or std::optional<int64_t>.
  template <typename Integer>
  void Read(const char* name, int64_t low, int64_t high, Integer* out) {
    const json* value = Find(name);
    if (value == nullptr) return;
    const bool fits = value->is_number_unsigned()
                          ? value->get<uint64_t>() <= static_cast<uint64_t>(high)
                          : value->is_number_integer();
    if (!fits || value->get<int64_t>() < low || value->get<int64_t>() > high) {
      Refuse(name,
             low == high
                 ? "the integer " + std::to_string(low)
                 : "an integer in [" + std::to_string(low) + ", " + std::to_string(high) + ']',
             *value);
    }
    *out = value->get<int64_t>();
  }

  // A number in (0, high]. Real is double or std::optional<double>.
  template <typename Real>
  void Read(const char* name, double high, Real* out) {
    const json* value = Find(name);
    if (value == nullptr) return;
    if (!value->is_number() || !(value->get<double>() > 0) || !(value->get<double>() <= high)) {
      std::ostringstream range;
      range << "a number in (0, " << high << ']';
      Refuse(name, range.str(), *value);
    }
    *out = value->get<double>();
  }

  template <typename Enum>
  void Read(const char* name, const EnumNames<Enum>& names, Enum* out) {
    const json* value = Find(name);
    if (value == nullptr) return;
    std::vector<const char*> allowed;
    for (const auto& [candidate, constant] : names) {
      if (value->is_string() && value->get_ref<const std::string&>() == candidate) {
        *out = constant;
        return;
      }
      allowed.push_back(candidate);
    }
    Refuse(name, "one of " + ListNames(allowed), *value);
  }

  void RefuseUnknown() const {
    for (const auto& [name, value] : object_.items()) {
      if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
      const auto nearest = std::min_element(
          known_.begin(), known_.end(), [&name = name](const std::string& a, const std::string& b) {
            return EditDistance(name, a) < EditDistance(name, b);
          });
      throw InvalidConfig(name, "Unknown field \"" + name.substr(0, 64) +
                                    "\" in the engine config; did you mean \"" + *nearest + "\"?");
    }
  }

 private:
  const json* Find(const char* name) {
    known_.emplace_back(name);
    const auto found = object_.find(name);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  [[noreturn]] static void Refuse(const char* name, const std::string& allowed, const json& value) {
    throw InvalidConfig(name, OutOfRangeMessage(name, Dump(value), allowed));
  }

  const json& object_;
  std::vector<std::string> known_;
};

void ReadSizes(FieldReader* reader, EngineConfig* config) {
  reader->Read("gpu_memory_utilization", 1.0, &config->gpu_memory_utilization);
  reader->Read("kv_cache_page_size", 16, 16, &config->kv_cache_page_size);
  reader->Read("max_num_sequence", 1, kMaxSize, &config->max_num_sequence);
  reader->Read("max_total_sequence_length", 1, kMaxSize, &config->max_total_sequence_length);
  reader->Read("max_single_sequence_length", 1, kMaxSize, &config->max_single_sequence_length);
  reader->Read("prefill_chunk_size", 1, kMaxSize, &config->prefill_chunk_size);
  reader->Read("sliding_window_size", -1, kMaxSize, &config->sliding_window_size);
  reader->Read("attention_sink_size", 0, kMaxSize, &config->attention_sink_size);
  reader->Read("max_history_size", 0, kMaxSize, &config->max_history_size);
}

void ReadServiceLimits(FieldReader* reader, EngineConfig* config) {
  reader->Read("max_queue_length", -1, kMaxSize, &config->max_queue_length);
  if (config->max_queue_length == 0) {
    throw InvalidConfig("max_queue_length",
                        OutOfRangeMessage("max_queue_length", 0, "at least 1, or -1 for no limit"));
  }
  reader->Read("queue_timeout_s", kMaxTimeoutSeconds, &config->queue_timeout_s);
  reader->Read("timeout_s", kMaxTimeoutSeconds, &config->timeout_s);
}

// Fields of the ancestor that choose among what this engine has one of.
void ReadFixedFields(FieldReader* reader) {
  int64_t one = 1;
  reader->Read("tensor_parallel_shards", 1, 1, &one);
  reader->Read("pipeline_parallel_stages", 1, 1, &one);
  std::string opt;  // compiler flags; there is nothing to compile
  reader->Read("opt", &opt);
  int kind = 0;
  reader->Read("kv_state_kind", EnumNames<int>{{"kv_cache", 0}}, &kind);
}

void CheckDType(const EngineConfig& config) {
  if (config.dtype == "auto" || ParseDType(config.dtype)) return;
  throw InvalidConfig("dtype", OutOfRangeMessage("dtype", '"' + config.dtype + '"',
                                                 "one of \"auto\", \"float32\", \"bfloat16\" or "
                                                 "\"float16\""));
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
  if (config.speculative_mode != SpeculativeMode::kDisable) {
    throw InvalidConfig("speculative_mode",
                        std::string("speculative_mode \"") +
                            NameOf(SpeculativeModeNames(), config.speculative_mode) +
                            "\" is not supported yet; use \"disable\"");
  }
}

void CheckTogether(const EngineConfig& config) {
  if (config.speculative_mode == SpeculativeMode::kDisable) {
    if (!config.additional_models.empty()) {
      throw InvalidConfig("additional_models",
                          "\"additional_models\" must be empty while \"speculative_mode\" is "
                          "\"disable\", got " +
                              std::to_string(config.additional_models.size()) + " models");
    }
    if (config.spec_draft_length != 0) {
      throw InvalidConfig("spec_draft_length",
                          OutOfRangeMessage("spec_draft_length", config.spec_draft_length,
                                            "0 while \"speculative_mode\" is \"disable\""));
    }
  }
  if (config.prefill_chunk_size && config.max_num_sequence &&
      *config.prefill_chunk_size < *config.max_num_sequence) {
    throw InvalidConfig("prefill_chunk_size",
                        OutOfRangeMessage("prefill_chunk_size", *config.prefill_chunk_size,
                                          "at least \"max_num_sequence\" (" +
                                              std::to_string(*config.max_num_sequence) + ')'));
  }
}

json ParseObject(const std::string& text) {
  json parsed;
  try {
    parsed = json::parse(text);
  } catch (const json::exception& e) {
    throw InvalidConfig("engine_config",
                        std::string("The engine config is not valid JSON: ") + e.what());
  }
  if (!parsed.is_object()) {
    throw InvalidConfig("engine_config",
                        "The engine config must be a JSON object, got " + Dump(parsed));
  }
  return parsed;
}

template <typename T>
ordered_json OrNull(const std::optional<T>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

std::string DumpCompact(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace

EngineConfig EngineConfig::FromJSONString(const std::string& json_text) {
  const json object = ParseObject(json_text);
  EngineConfig config;
  FieldReader reader(object);
  reader.Read("model", &config.model);
  reader.Read("model_lib", &config.model_lib);
  reader.Read("additional_models", &config.additional_models);
  reader.Read("mode", ModeNames(), &config.mode);
  reader.Read("dtype", &config.dtype);
  reader.Read("quantization", WeightQuantizationNames(), &config.quantization);
  reader.Read("weight_cache_dir", &config.weight_cache_dir);
  reader.Read("kv_cache_dtype", KvCacheDTypeNames(), &config.kv_cache_dtype);
  reader.Read("num_threads", 1, 1024, &config.num_threads);
  ReadSizes(&reader, &config);
  ReadServiceLimits(&reader, &config);
  reader.Read("speculative_mode", SpeculativeModeNames(), &config.speculative_mode);
  reader.Read("spec_draft_length", 0, 1024, &config.spec_draft_length);
  reader.Read("spec_tree_width", 1, 1024, &config.spec_tree_width);
  reader.Read("prefix_cache_mode", PrefixCacheModeNames(), &config.prefix_cache_mode);
  reader.Read("prefix_cache_max_num_recycling_seqs", -1, kMaxSize,
              &config.prefix_cache_max_num_recycling_seqs);
  reader.Read("prefill_mode", PrefillModeNames(), &config.prefill_mode);
  reader.Read("grammar_compile_timeout_s", 3600, &config.grammar_compile_timeout_s);
  reader.Read("grammar_cache_bytes", 0, kMaxBytes, &config.grammar_cache_bytes);
  reader.Read("verbose", &config.verbose);
  ReadFixedFields(&reader);
  reader.RefuseUnknown();
  CheckDType(config);
  CheckSupported(config);
  CheckTogether(config);
  return config;
}

std::string EngineConfig::AsJSONString() const {
  return DumpCompact(ordered_json{
      {"model", model},
      {"model_lib", model_lib},
      {"additional_models", additional_models},
      {"mode", NameOf(ModeNames(), mode)},
      {"dtype", dtype},
      {"quantization", quantization == WeightQuantization::kAuto
                           ? ordered_json(nullptr)
                           : NameOf(WeightQuantizationNames(), quantization)},
      {"weight_cache_dir", weight_cache_dir},
      {"kv_cache_dtype", NameOf(KvCacheDTypeNames(), kv_cache_dtype)},
      {"num_threads", OrNull(num_threads)},
      {"gpu_memory_utilization", OrNull(gpu_memory_utilization)},
      {"kv_cache_page_size", kv_cache_page_size},
      {"max_num_sequence", OrNull(max_num_sequence)},
      {"max_total_sequence_length", OrNull(max_total_sequence_length)},
      {"max_single_sequence_length", OrNull(max_single_sequence_length)},
      {"prefill_chunk_size", OrNull(prefill_chunk_size)},
      {"sliding_window_size", OrNull(sliding_window_size)},
      {"attention_sink_size", OrNull(attention_sink_size)},
      {"max_history_size", OrNull(max_history_size)},
      {"max_queue_length", OrNull(max_queue_length)},
      {"queue_timeout_s", OrNull(queue_timeout_s)},
      {"timeout_s", OrNull(timeout_s)},
      {"speculative_mode", NameOf(SpeculativeModeNames(), speculative_mode)},
      {"spec_draft_length", spec_draft_length},
      {"spec_tree_width", spec_tree_width},
      {"prefix_cache_mode", NameOf(PrefixCacheModeNames(), prefix_cache_mode)},
      {"prefix_cache_max_num_recycling_seqs", OrNull(prefix_cache_max_num_recycling_seqs)},
      {"prefill_mode", NameOf(PrefillModeNames(), prefill_mode)},
      {"grammar_compile_timeout_s", grammar_compile_timeout_s},
      {"grammar_cache_bytes", grammar_cache_bytes},
      {"verbose", verbose},
  });
}

std::string GenerationConfig::AsJSONString() const {
  ordered_json bias = ordered_json::object();
  for (const auto& [token_id, value] : logit_bias) bias[std::to_string(token_id)] = value;
  return DumpCompact(ordered_json{
      {"n", n},
      {"max_tokens", max_tokens},
      {"stop_strs", stop_strs},
      {"stop_token_ids", stop_token_ids},
      {"response_format",
       {{"type", ToString(response_format.type)},
        {"text", response_format.text},
        {"choices", response_format.choices},
        {"strict", response_format.strict}}},
      {"temperature", temperature},
      {"top_p", top_p},
      {"top_k", top_k},
      {"min_p", min_p},
      {"frequency_penalty", frequency_penalty},
      {"presence_penalty", presence_penalty},
      {"repetition_penalty", repetition_penalty},
      {"logit_bias", bias},
      {"seed", OrNull(seed)},
      {"logprobs", logprobs},
      {"top_logprobs", top_logprobs},
      {"priority", ToString(priority)},
      {"queue_timeout_s", OrNull(queue_timeout_s)},
      {"timeout_s", OrNull(timeout_s)},
      {"debug_config",
       {{"ignore_eos", debug_config.ignore_eos},
        {"pinned_system_prompt", debug_config.pinned_system_prompt},
        {"special_request", debug_config.special_request},
        {"grammar_execution_mode", debug_config.grammar_execution_mode}}},
  });
}

}  // namespace mlc_native
