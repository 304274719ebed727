// Settings of a generation, of the engine and of a model folder. Plain values with defaults; any
// thread.
//
// Every wrong value is refused by name with its allowed range (InvalidRequest, InvalidConfig). JSON
// is read and written only in config.cc; unknown JSON fields are errors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace mlc_native {

// ---- One request. Checked when the request is created, against the vocabulary of the model that
// is loaded.

enum class ResponseFormatType {
  kText,  // anything
  kJsonObject,
  kJsonSchema,
  kRegex,
  kGrammar,  // EBNF
  kChoice,
  kStructuralTag
};

// "json_schema" and so on. ParseResponseFormatType throws InvalidRequest for an unknown name.
const char* ToString(ResponseFormatType type);
ResponseFormatType ParseResponseFormatType(const std::string& name);

// What an answer must look like. All but kText becomes a grammar when the request is created.
struct ResponseFormat {
  ResponseFormatType type = ResponseFormatType::kText;
  std::string text;                  // the JSON schema, regex, EBNF grammar or structural tag
  std::vector<std::string> choices;  // kChoice: the answers there are, >= 1
  bool strict = true;                // kJsonSchema: nothing that the schema does not list

  bool is_constrained() const { return type != ResponseFormatType::kText; }
};

struct DebugConfig {
  bool ignore_eos = false;  // the model's end-of-sequence ids do not stop; stop strings and
                            // stop_token_ids still do
  bool pinned_system_prompt = false;
  std::string special_request;  // "" or "query_engine_metrics"
  std::string grammar_execution_mode = "jump_forward";
};

constexpr double kMaxTimeoutSeconds = 1e9;

enum class RequestPriority { kHigh, kNormal, kLow };

// "high", "normal", "low"
const char* ToString(RequestPriority priority);
// Throws InvalidRequest.
RequestPriority ParsePriority(const std::string& name);

struct GenerationConfig {
  // Shape of the answer.
  int32_t n = 1;            // sequences, >= 1
  int64_t max_tokens = -1;  // -1 is unlimited, 0 is an empty answer
  std::vector<std::string> stop_strs;
  std::vector<int32_t> stop_token_ids;
  ResponseFormat response_format;

  // Distribution. Applied in this order: logit_bias, penalties, temperature, top_k, top_p, min_p.
  double temperature = 1.0;                            // [0, inf); below 1e-5 is greedy
  double top_p = 1.0;                                  // [0, 1]
  int32_t top_k = 0;                                   // 0 (or -1) is off
  double min_p = 0.0;                                  // [0, 1], relative to the most likely token
  double frequency_penalty = 0.0;                      // [-2, 2]
  double presence_penalty = 0.0;                       // [-2, 2]
  double repetition_penalty = 1.0;                     // (0, inf)
  std::vector<std::pair<int32_t, double>> logit_bias;  // token id -> [-100, 100]
  std::optional<int64_t> seed;

  // Report.
  bool logprobs = false;
  int32_t top_logprobs = 0;  // [0, 20], needs logprobs

  // Service. Times are in seconds from the submission, in (0, 1e9]; absent is the engine's default.
  RequestPriority priority = RequestPriority::kNormal;
  std::optional<double> queue_timeout_s;  // until the first work on its tokens starts
  std::optional<double> timeout_s;        // until its end

  DebugConfig debug_config;

  // Throws InvalidRequest. Token ids are checked against vocab_size.
  void Validate(int64_t vocab_size) const;
  std::string AsJSONString() const;
};

// ---- The engine. What the caller gave and, after ResolveEngineConfig, what is in effect.
// Optional fields are those that may be left to the mode rules.

enum class EngineMode { kLocal, kInteractive, kServer };
enum class PrefillMode { kChunked, kHybrid };
// Of the matrices. Auto: those that the checkpoint holds as integers which a format of the kernels
// has too stay so, the others are of `dtype`; off: all are of `dtype`.
enum class WeightQuantization { kAuto, kOff, kQ8, kQ4 };
// Of the keys and values; auto: the type of the weights that are floats. int8 is the CPU's, float8
// the GPU's.
enum class KvCacheDType { kAuto, kBFloat16, kFloat16, kFloat32, kInt8, kFloat8 };
enum class PrefixCacheMode { kDisable, kRadix };
enum class SpeculativeMode { kDisable, kSmallDraft, kEagle, kMedusa };

struct EngineConfig {
  std::string model;      // folder with config.json
  std::string model_lib;  // plug-in library that creates the model; empty is the built-in decoder
  std::vector<std::string> additional_models;
  EngineMode mode = EngineMode::kLocal;

  std::string dtype = "auto";  // "auto" (the checkpoint's), "float32", "bfloat16", "float16"
  WeightQuantization quantization = WeightQuantization::kAuto;  // null, "off", "q8", "q4"
  std::string weight_cache_dir;  // where packed weights are kept for the next start; empty: nowhere
  KvCacheDType kv_cache_dtype = KvCacheDType::kAuto;
  std::optional<int64_t>
      num_threads;  // CPU threads of the model; default: all cores the process may use

  std::optional<double> gpu_memory_utilization;  // (0, 1], share of free memory; default 0.85
  int64_t kv_cache_page_size = 16;               // only 16
  // Inferred from mode and free memory when not given; filled in by Resolve.
  std::optional<int64_t> max_num_sequence;
  std::optional<int64_t> max_total_sequence_length;   // tokens in the KV cache
  std::optional<int64_t> max_single_sequence_length;  // tokens, prompt + generated
  std::optional<int64_t> prefill_chunk_size;          // tokens in one forward
  std::optional<int64_t> sliding_window_size;
  std::optional<int64_t> attention_sink_size;
  std::optional<int64_t> max_history_size;  // 0 only: recurrent models are not supported

  // Requests that may wait for their start, [1, 2^31); -1 is any number. Default: 16 *
  // max_num_sequence in server mode, -1 in the others.
  std::optional<int64_t> max_queue_length;
  std::optional<double> queue_timeout_s;  // of requests that give none; absent is no limit
  std::optional<double> timeout_s;

  SpeculativeMode speculative_mode = SpeculativeMode::kDisable;
  int64_t spec_draft_length = 0;
  int64_t spec_tree_width = 1;
  PrefixCacheMode prefix_cache_mode = PrefixCacheMode::kRadix;
  std::optional<int64_t> prefix_cache_max_num_recycling_seqs;
  PrefillMode prefill_mode = PrefillMode::kHybrid;

  double grammar_compile_timeout_s = 10;             // of one response_format, (0, 3600]
  int64_t grammar_cache_bytes = int64_t{256} << 20;  // compiled grammars that are kept for reuse
  bool verbose = true;

  // Throws InvalidConfig naming the field: wrong type, unknown field, out of range.
  static EngineConfig FromJSONString(const std::string& json);
  std::string AsJSONString() const;
};

// What a model costs and allows; given by the model, input of the inference.
struct ModelMetadata {
  int64_t vocab_size = 0;
  int64_t context_window_size = 0;              // tokens; 0 when unlimited
  int64_t max_batch_size = 128;                 // rows of one decode step
  int64_t preferred_prefill_chunk_size = 2048;  // tokens
  int64_t weight_bytes = 0;                     // already resident when memory is inferred
  int64_t mapped_weight_bytes = 0;              // of them, those that the system counts as free
  int64_t kv_bytes_per_token = 0;               // all layers, K and V
  int64_t workspace_bytes_per_token = 0;        // per token of a prefill chunk
  int64_t workspace_bytes_per_sequence = 0;     // per row of logits
  // Of the device, after the weights; nullopt: the model lives in the memory of the host.
  std::optional<int64_t> free_memory_bytes{};
};

// Completes the optional fields by the mode's rules (mlc_llm.md section 1.15, on free instead of
// total memory) and checks what the user gave against what fits. The memory is the model's
// device's, or what the host has free after the weights were loaded. Throws InvalidConfig. Pure.
EngineConfig ResolveEngineConfig(const EngineConfig& config, const ModelMetadata& model,
                                 int64_t free_host_bytes);

// ---- The model folder. Read before a model is unloaded for another one, so that a wrong path
// costs nothing.

// MLC-LLM's form of a folder: mlc-chat-config.json, and no config.json.
bool IsMlcFolder(const std::string& folder);

// Settings that a model folder gives to requests: generation_config.json and config.json, or
// mlc-chat-config.json.
struct ModelDefaults {
  GenerationConfig generation;         // temperature, top_p, top_k, min_p, penalties of the model
  std::vector<int32_t> eos_token_ids;  // end a sequence unless debug_config.ignore_eos
};

// Throws LoadError when a file is missing or damaged.
ModelDefaults ReadModelDefaults(const std::string& model_path);

}  // namespace mlc_native
