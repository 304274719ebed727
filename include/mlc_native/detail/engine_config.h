// EngineConfig: how an engine is set up: what the caller gave and, after ResolveEngineConfig, what
// is in effect. Plain values with defaults; any thread. Optional fields are those that may be left
// to the mode rules.
//
// A field is declared twice in this file, as a member and in VisitEngineFields, and nowhere else:
// checks, JSON, Python's EngineConfig and the flags of the command line derive from that. A wrong
// value is an InvalidConfig that names the field, the value and the range.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mlc_native/detail/export.h"
#include "mlc_native/detail/field.h"
#include "mlc_native/detail/weight_quantization.h"

namespace mlc_native {

enum class EngineMode { kAuto, kLocal, kInteractive, kServer };
template <>
MLC_NATIVE_HIDDEN inline constexpr auto kEnumNames<EngineMode> =
    std::to_array<EnumName<EngineMode>>({{"auto", EngineMode::kAuto},
                                         {"local", EngineMode::kLocal},
                                         {"interactive", EngineMode::kInteractive},
                                         {"server", EngineMode::kServer}});

enum class PrefillMode { kChunked, kHybrid };
template <>
MLC_NATIVE_HIDDEN inline constexpr auto kEnumNames<PrefillMode> =
    std::to_array<EnumName<PrefillMode>>(
        {{"chunked", PrefillMode::kChunked}, {"hybrid", PrefillMode::kHybrid}});

// Keys and values. kAuto: the type of the weights that are floats.
enum class KvCacheDType { kAuto, kBFloat16, kFloat16, kFloat32, kInt8, kFloat8 };
template <>
MLC_NATIVE_HIDDEN inline constexpr auto kEnumNames<KvCacheDType> =
    std::to_array<EnumName<KvCacheDType>>({{"auto", KvCacheDType::kAuto},
                                           {"bfloat16", KvCacheDType::kBFloat16},
                                           {"float16", KvCacheDType::kFloat16},
                                           {"float32", KvCacheDType::kFloat32},
                                           {"int8", KvCacheDType::kInt8},
                                           {"float8", KvCacheDType::kFloat8}});

// What the threads of a model do after a loop of a forward: look out for the next one for some tens
// of microseconds and then sleep, or sleep at once.
enum class CpuIdleMode { kSpin, kPark };
template <>
MLC_NATIVE_HIDDEN inline constexpr auto kEnumNames<CpuIdleMode> =
    std::to_array<EnumName<CpuIdleMode>>(
        {{"spin", CpuIdleMode::kSpin}, {"park", CpuIdleMode::kPark}});

enum class PrefixCacheMode { kDisable, kRadix };
template <>
MLC_NATIVE_HIDDEN inline constexpr auto kEnumNames<PrefixCacheMode> =
    std::to_array<EnumName<PrefixCacheMode>>(
        {{"disable", PrefixCacheMode::kDisable}, {"radix", PrefixCacheMode::kRadix}});

enum class SpeculativeMode {
  kDisable,
  kNGram,
  kSuffix,
  kSmallDraft,
  kEagle3,
  kEagle,
  kMtp,
  kMedusa,
  kAuto
};
template <>
MLC_NATIVE_HIDDEN inline constexpr auto kEnumNames<SpeculativeMode> =
    std::to_array<EnumName<SpeculativeMode>>({{"disable", SpeculativeMode::kDisable},
                                              {"ngram", SpeculativeMode::kNGram},
                                              {"suffix", SpeculativeMode::kSuffix},
                                              {"small_draft", SpeculativeMode::kSmallDraft},
                                              {"eagle3", SpeculativeMode::kEagle3},
                                              {"eagle", SpeculativeMode::kEagle},
                                              {"mtp", SpeculativeMode::kMtp},
                                              {"medusa", SpeculativeMode::kMedusa},
                                              {"auto", SpeculativeMode::kAuto}});

struct MLC_NATIVE_API EngineConfig {
  std::string model;
  std::string model_lib;
  std::vector<std::string> additional_models;
  std::vector<std::string> adapters;
  EngineMode mode = EngineMode::kAuto;

  std::string dtype = "auto";
  WeightQuantization quantization;
  std::string weight_cache_dir;
  std::optional<int64_t> weight_cache_bytes;
  bool strict_weights = false;
  KvCacheDType kv_cache_dtype = KvCacheDType::kAuto;
  bool deterministic = false;
  std::optional<int64_t> num_threads;
  CpuIdleMode cpu_idle_mode = CpuIdleMode::kSpin;

  std::optional<double> gpu_memory_utilization;
  int64_t kv_cache_page_size = 16;
  std::optional<int64_t> max_num_sequence;
  std::optional<int64_t> max_total_sequence_length;
  std::optional<int64_t> max_single_sequence_length;
  std::optional<int64_t> prefill_chunk_size;
  std::optional<int64_t> sliding_window_size;
  std::optional<int64_t> attention_sink_size;
  std::optional<int64_t> max_history_size;

  std::optional<int64_t> max_queue_length;
  std::optional<double> queue_timeout_s;
  std::optional<double> timeout_s;

  SpeculativeMode speculative_mode = SpeculativeMode::kDisable;
  int64_t spec_draft_length = 0;
  int64_t prompt_lookup_min = 2;
  int64_t prompt_lookup_max = 5;
  int64_t suffix_cache_bytes = 67108864;  // 64 MiB
  int64_t spec_tree_width = 1;
  PrefixCacheMode prefix_cache_mode = PrefixCacheMode::kRadix;
  std::optional<int64_t> prefix_cache_max_num_recycling_seqs;
  PrefillMode prefill_mode = PrefillMode::kHybrid;

  double grammar_compile_timeout_s = 10;
  int64_t max_grammar_queue_length = 64;
  double grammar_step_budget_s = 0.005;
  double grammar_time_limit_s = 10;
  int64_t grammar_state_bytes = 2147483648;  // 2 GiB
  int64_t grammar_cache_bytes = 268435456;   // 256 MiB
  std::string sampling_defaults = "model";
  std::optional<std::string> chat_template;
  std::optional<std::string> mmproj;
  std::string tool_call_parser = "auto";
  std::string reasoning_parser = "auto";
  std::vector<std::string> visible_special_tokens;
  bool trust_tokenizer_regexes = false;
  std::vector<std::string> classifier_from_token;

  int64_t max_messages = 4096;
  int64_t max_tools = 128;
  int64_t max_logit_bias = 1024;
  int64_t max_stop_strs = 64;
  int64_t max_stop_str_bytes = 1024;
  int64_t max_stop_token_ids = 1024;
  int64_t max_request_id_bytes = 256;
  int64_t max_json_depth = 64;
  int64_t max_pinned_prefixes = 64;

  // Settings of MLC-LLM's compiler, accepted with the values that have a meaning here.
  std::optional<int64_t> tensor_parallel_shards;
  std::optional<int64_t> pipeline_parallel_stages;
  std::optional<std::string> opt;
  std::optional<std::string> kv_state_kind;

  bool verbose = true;

  // Throws InvalidConfig naming the field: wrong type, unknown field, out of range.
  static EngineConfig FromJSONString(const std::string& json);
  std::string AsJSONString() const;
};

inline constexpr double kMaxSize = std::numeric_limits<int32_t>::max();

template <typename Visitor>
void VisitModelFields(Visitor&& visit) {
  static constexpr const char* kDTypes[] = {"auto", "float32", "bfloat16", "float16"};
  visit(Field{"model",
              "model folder, demo model or hub id; the constructor argument of the "
              "engine."},
        &EngineConfig::model);
  visit(Field{"model_lib",
              "plug-in library that creates the model; None is the decoder of the "
              "device."},
        &EngineConfig::model_lib);
  visit(Field{"additional_models",
              "the draft model or draft head of a `speculative_mode`: one folder, with the "
              "tokenizer of the model. It is loaded with the settings of the model, and the KV "
              "cache has room for both."},
        &EngineConfig::additional_models);
  visit(
      Field{"adapters",
            "adapters (LoRA) that are loaded with the model, each as \"NAME=FOLDER\", a folder of "
            "PEFT; requests choose one by its name."},
      &EngineConfig::adapters);
  visit(
      Field{"mode",
            "\"auto\" (as many sequences as fit into memory), or MLC-LLM's \"local\" (at most 4 "
            "sequences and 8192 tokens), \"interactive\" (one sequence) and \"server\" (as many as "
            "fit, with a limited queue)."},
      &EngineConfig::mode);
  visit(Field{"dtype",
              "\"auto\" (the checkpoint's), \"float32\", \"bfloat16\" or \"float16\".",
              {},
              kDTypes},
        &EngineConfig::dtype);
  visit(
      Field{
          "quantization",
          "of the matrices. None: as the checkpoint has them; \"q8\", \"q6\", \"q4\": quantized to "
          "that many bits as they are loaded, unless the checkpoint has fewer (with \"q4\", the "
          "first layer and the output head (tied: the embeddings) to 8 bits); \"q4.8\": to 4, 6 "
          "or 8 bits, so that the mean with the scales is at most 4.8 bits per weight, or any "
          "other number from 4.5 to 8.25 with a point (on CUDA to 4 or 8 bits, without "
          "\"q6\"); \"off\": all are of `dtype`."},
      &EngineConfig::quantization);
  visit(Field{"weight_cache_dir",
              "folder where packed weights are kept, so that the next start maps them; None keeps "
              "none. What is in it may be deleted at any time."},
        &EngineConfig::weight_cache_dir);
  visit(Field{"weight_cache_bytes",
              "size of all files of packed weights in `weight_cache_dir`; those that were used "
              "longest ago are deleted before one is written. None: no limit.",
              Between(1, static_cast<double>(int64_t{1} << 53))},
        &EngineConfig::weight_cache_bytes);
  visit(
      Field{"strict_weights",
            "refuse a checkpoint with tensors that the model does not use, instead of naming them "
            "in a warning."},
      &EngineConfig::strict_weights);
  visit(Field{"kv_cache_dtype",
              "of the keys and values in the KV cache: \"auto\" (the type of the weights that are "
              "floats), \"bfloat16\", \"float16\", \"float32\", \"int8\" (a scale per token and "
              "head; on the CPU only) or \"float8\" (e4m3; on GPUs only)."},
        &EngineConfig::kv_cache_dtype);
  visit(
      Field{"deterministic",
            "on GPUs: whether prompts, too, are computed by kernels that add in a fixed order, so "
            "that an answer does not depend on how its prompt is cut into chunks, nor on what is "
            "computed alongside. False, the default: long chunks of prompts may use cuBLASLt, "
            "which is faster; tokens that are generated never do. On the CPU it is always so."},
      &EngineConfig::deterministic);
  visit(Field{"num_threads",
              "CPU threads of the model; default: one per core that the process may use, without "
              "the slow ones where cores differ, and not more than the quota of its cgroup.",
              Between(1, 1024)},
        &EngineConfig::num_threads);
  visit(Field{"cpu_idle_mode",
              "what CPU threads do between the loops of a step: \"spin\" (look out for the next "
              "loop for 40 microseconds before they sleep) or \"park\" (sleep at once: for threads "
              "that share their cores with others). Without a step, both sleep."},
        &EngineConfig::cpu_idle_mode);
}

template <typename Visitor>
void VisitSizeFields(Visitor&& visit) {
  visit(Field{"gpu_memory_utilization",
              "(0, 1], share of the memory of the device that is free after the weights are "
              "loaded; default 0.85, and 0.5 on the CPU in mode \"auto\".",
              PositiveUpTo(1)},
        &EngineConfig::gpu_memory_utilization);
  visit(Field{"kv_cache_page_size", "tokens per page of the KV cache; only 16.", Between(16, 16)},
        &EngineConfig::kv_cache_page_size);
  visit(Field{"max_num_sequence", "sequences that run at the same time.", Between(1, kMaxSize)},
        &EngineConfig::max_num_sequence);
  visit(Field{"max_total_sequence_length", "tokens in the KV cache.", Between(1, kMaxSize)},
        &EngineConfig::max_total_sequence_length);
  visit(
      Field{"max_single_sequence_length",
            "tokens of one sequence, prompt and answer; at most the model's context. A model with "
            "longrope uses its long factors if this exceeds its original context.",
            Between(1, kMaxSize)},
      &EngineConfig::max_single_sequence_length);
  visit(Field{"prefill_chunk_size", "tokens in one forward.", Between(1, kMaxSize)},
        &EngineConfig::prefill_chunk_size);
  visit(Field{"sliding_window_size", "only None: the window of the model's config.json is used.",
              Between(-1, kMaxSize)},
        &EngineConfig::sliding_window_size);
  visit(Field{"attention_sink_size",
              "only 0: no keys are dropped behind the first tokens of a sequence.",
              Between(0, kMaxSize)},
        &EngineConfig::attention_sink_size);
  visit(Field{"max_history_size",
              "only 0: the states of recurrent layers follow from max_num_sequence.",
              Between(0, kMaxSize)},
        &EngineConfig::max_history_size);
}

template <typename Visitor>
void VisitQueueFields(Visitor&& visit) {
  visit(Field{"max_queue_length",
              "requests that may wait for their start, or -1 for any number; beyond it a request "
              "is refused with QueueFull. Default: 16 * max_num_sequence in mode \"server\", -1 in "
              "the others.",
              Between(-1, kMaxSize)},
        &EngineConfig::max_queue_length);
  visit(Field{"queue_timeout_s",
              "seconds a request may wait for its start, if it does not say itself.",
              PositiveUpTo(kMaxTimeoutSeconds)},
        &EngineConfig::queue_timeout_s);
  visit(Field{"timeout_s", "seconds a request may take in all, if it does not say itself.",
              PositiveUpTo(kMaxTimeoutSeconds)},
        &EngineConfig::timeout_s);
}

template <typename Visitor>
void VisitStepFields(Visitor&& visit) {
  visit(
      Field{
          "speculative_mode",
          "how the next tokens of an answer are guessed, so that one step yields several: "
          "\"disable\" (only requests with a `prediction`), \"ngram\" (what followed the same "
          "tokens before, in the prompt or in the answer), \"suffix\" (also in earlier answers of "
          "the engine, of requests with the same `cache_salt`), \"small_draft\" (a smaller "
          "model, which `additional_models` names), \"eagle3\", \"eagle\" (EAGLE-1), \"mtp\" or "
          "\"medusa\" (a head that reads hidden states of the model, in the folder that "
          "`additional_models` names; an MTP head may also be in the model's own). \"auto\" takes "
          "what that folder holds, or the model's own MTP head, or else \"ngram\". Guesses never "
          "change an answer."},
      &EngineConfig::speculative_mode);
  visit(Field{"spec_draft_length",
              "guesses per sequence and step, [1, 10]; 0: as many as pay, by how often they are "
              "right and by the measured times of steps.",
              Between(0, 10)},
        &EngineConfig::spec_draft_length);
  visit(Field{"prompt_lookup_min",
              "tokens that have to be the same for \"ngram\", \"suffix\" and `prediction` to go on "
              "from there.",
              Between(1, 64)},
        &EngineConfig::prompt_lookup_min);
  visit(Field{"prompt_lookup_max",
              "tokens that are compared at most to choose among several such places; \"suffix\" "
              "compares 24.",
              Between(1, 64)},
        &EngineConfig::prompt_lookup_max);
  visit(Field{"suffix_cache_bytes",
              "memory for earlier answers in `speculative_mode` \"suffix\", 16 bytes a token; the "
              "oldest are dropped first.",
              Between(4096, static_cast<double>(int64_t{1} << 35))},
        &EngineConfig::suffix_cache_bytes);
  visit(Field{"spec_tree_width", "branches of a draft; only 1 with a `speculative_mode`.",
              Between(1, 1024)},
        &EngineConfig::spec_tree_width);
  visit(Field{"prefix_cache_mode", "\"radix\" or \"disable\"."}, &EngineConfig::prefix_cache_mode);
  visit(Field{"prefix_cache_max_num_recycling_seqs",
              "finished sequences kept for reuse, the ones used last; 0 keeps none, -1 (the "
              "default) as many as fit, since what the cache holds is given up as soon as a "
              "request needs the room.",
              Between(-1, kMaxSize)},
        &EngineConfig::prefix_cache_max_num_recycling_seqs);
  visit(Field{"prefill_mode", "\"hybrid\" (decoding goes on alongside a prefill) or \"chunked\"."},
        &EngineConfig::prefill_mode);
}

template <typename Visitor>
void VisitTextFields(Visitor&& visit) {
  static constexpr const char* kDefaults[] = {"model", "openai"};
  visit(Field{"grammar_compile_timeout_s",
              "for the grammar of one response_format, with the time that it waits for its turn, "
              "(0, 3600] seconds.",
              PositiveUpTo(3600)},
        &EngineConfig::grammar_compile_timeout_s);
  visit(Field{"max_grammar_queue_length",
              "requests that may wait for their grammars to compile, with those that compile, "
              "[1, 200]; beyond it a request whose grammar is not in the cache is refused with "
              "QueueFull.",
              Between(1, 200)},
        &EngineConfig::max_grammar_queue_length);
  visit(
      Field{"grammar_step_budget_s",
            "CPU time that the grammar of an answer may take per token, (0, 3600] seconds, in "
            "steps of 20 ms or more, and less in proportion in shorter ones. If it takes more, the "
            "answer sits out steps, which then do not wait for it.",
            PositiveUpTo(3600)},
      &EngineConfig::grammar_step_budget_s);
  visit(Field{"grammar_time_limit_s",
              "CPU time that the grammar of a request may take in all while it is answered, "
              "(0, 3600] seconds; beyond it the request ends with an error.",
              PositiveUpTo(3600)},
        &EngineConfig::grammar_time_limit_s);
  visit(Field{"grammar_state_bytes",
              "memory that matchers of grammars that take long may have, as it follows from their "
              "CPU time; beyond it the request with most of it ends with an error.",
              Between(1 << 20, static_cast<double>(int64_t{1} << 50))},
        &EngineConfig::grammar_state_bytes);
  visit(Field{"grammar_cache_bytes", "compiled grammars that are kept for reuse; 0 keeps none.",
              Between(0, static_cast<double>(int64_t{1} << 50))},
        &EngineConfig::grammar_cache_bytes);
  visit(Field{"sampling_defaults",
              "what applies where a request says nothing, as in SGLang: \"model\" (its "
              "generation_config.json) or \"openai\" (temperature 1 and no limits).",
              {},
              kDefaults},
        &EngineConfig::sampling_defaults);
  visit(Field{"chat_template",
              "a Jinja template, or the path of a file with one, that renders chats instead of the "
              "model's. For the Python engines and the C API."},
        &EngineConfig::chat_template);
  visit(Field{"mmproj",
              "the GGUF file that reads images for a model of a GGUF file, or \"none\". By default "
              "the one beside the model that has mmproj in its name. For the Python engines."},
        &EngineConfig::mmproj);
  visit(Field{"tool_call_parser",
              "how answers write calls of tools: a format of docs/tools.md, \"auto\" (that of the "
              "chat template) or \"none\" (calls stay in the content). For the Python engines."},
        &EngineConfig::tool_call_parser);
  visit(Field{"reasoning_parser",
              "how answers mark reasoning: a format of docs/tools.md, \"auto\" (that of the chat "
              "template) or \"none\" (it stays in the content). For the Python engines."},
        &EngineConfig::reasoning_parser);
  visit(
      Field{"visible_special_tokens",
            "special tokens of the tokenizer that add their text to answers and to grammars. The "
            "Python engines add those that mark calls and reasoning in the formats of the model."},
      &EngineConfig::visible_special_tokens);
  visit(Field{"trust_tokenizer_regexes",
              "load a tokenizer.json whose regular expressions may take a time that grows faster "
              "than the text. False refuses it. For the Python engines."},
        &EngineConfig::trust_tokenizer_regexes);
  visit(Field{"classifier_from_token",
              "tokens whose logits behind a text classify it, for a reranker that is a model that "
              "generates: one, or what stands for no and for yes, as [\"no\", \"yes\"] of "
              "Qwen3-Reranker. By default as the model folder says."},
        &EngineConfig::classifier_from_token);
}

// What one request may have. The Python engines and the C API check it, except for the pins.
template <typename Visitor>
void VisitRequestCaps(Visitor&& visit) {
  visit(Field{"max_messages", "messages of a chat.", Between(1, kMaxSize)},
        &EngineConfig::max_messages);
  visit(Field{"max_tools", "tools of a chat.", Between(0, kMaxSize)}, &EngineConfig::max_tools);
  visit(Field{"max_logit_bias", "tokens in `logit_bias`; at most the vocabulary.",
              Between(0, kMaxSize)},
        &EngineConfig::max_logit_bias);
  visit(Field{"max_stop_strs", "texts in `stop`, [0, 1024].", Between(0, 1024)},
        &EngineConfig::max_stop_strs);
  visit(Field{"max_stop_str_bytes", "bytes of a text in `stop`, [1, 65536].", Between(1, 65536)},
        &EngineConfig::max_stop_str_bytes);
  visit(Field{"max_stop_token_ids", "tokens in `stop_token_ids`.", Between(0, kMaxSize)},
        &EngineConfig::max_stop_token_ids);
  visit(Field{"max_request_id_bytes", "bytes of a `request_id`.", Between(1, kMaxSize)},
        &EngineConfig::max_request_id_bytes);
  visit(Field{"max_json_depth",
              "lists and objects within each other, in a field of a request and in the arguments "
              "of a call in its history, [1, 128].",
              Between(1, 128)},
        &EngineConfig::max_json_depth);
  visit(Field{"max_pinned_prefixes",
              "prompts that are pinned at the same time. A request that would pin another one is "
              "served without a pin.",
              Between(0, kMaxSize)},
        &EngineConfig::max_pinned_prefixes);
}

template <typename Visitor>
void VisitCompilerFields(Visitor&& visit) {
  static constexpr const char* kLevels[] = {"O0", "O1", "O2", "O3"};
  static constexpr const char* kKinds[] = {"kv_cache"};
  visit(Field{"tensor_parallel_shards",
              "GPUs that compute the model together, \"device\" and those behind it, [1, 64]. "
              "More than one need NCCL, and numbers of heads that can be divided; the CPU takes "
              "only 1.",
              Between(1, 64)},
        &EngineConfig::tensor_parallel_shards);
  visit(Field{"pipeline_parallel_stages", "only 1: layers are not divided among devices.",
              Between(1, 1)},
        &EngineConfig::pipeline_parallel_stages);
  visit(Field{"opt",
              "\"O0\", \"O1\", \"O2\" or \"O3\" of MLC-LLM's compiler; there is nothing to "
              "compile here, and all mean the same.",
              {},
              kLevels},
        &EngineConfig::opt);
  visit(Field{"kv_state_kind", "only \"kv_cache\".", {}, kKinds}, &EngineConfig::kv_state_kind);
}

// Calls visit(Field, member) for each field of an EngineConfig.
template <typename Visitor>
void VisitEngineFields(Visitor&& visit) {
  VisitModelFields(visit);
  VisitSizeFields(visit);
  VisitQueueFields(visit);
  VisitStepFields(visit);
  VisitTextFields(visit);
  VisitRequestCaps(visit);
  VisitCompilerFields(visit);
  visit(Field{"verbose",
              "show the progress of loads, downloads and builds of a CUDA library on a terminal, "
              "and one line about what was loaded; that line is also logged."},
        &EngineConfig::verbose);
}

}  // namespace mlc_native
