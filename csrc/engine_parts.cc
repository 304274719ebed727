#include "engine_parts.h"

#include <filesystem>
#include <utility>

#include "config/device.h"
#include "config/model_defaults.h"
#include "mlc_native/detail/page.h"
#include "support/error.h"
#include "support/machine_info.h"

namespace mlc_native {
namespace {

void CheckSupported(const EngineConfig& config) {
  if (!IsSupported(config.speculative_mode)) {
    throw InvalidConfig(
        "speculative_mode",
        "\"speculative_mode\" other than \"disable\" and \"ngram\" is not supported "
        "yet");
  }
  if (config.kv_cache_page_size != kKvPageSize) {
    throw InvalidConfig("kv_cache_page_size",
                        OutOfRangeMessage("kv_cache_page_size", config.kv_cache_page_size, "16"));
  }
}

void CheckSupportedBy(const Model& model, const EngineConfig& config) {
  if (config.speculative_mode == SpeculativeMode::kDisable) return;
  if (!model.metadata().rows_depend_on_step) return;
  throw InvalidConfig("speculative_mode", std::string("\"speculative_mode\" must be \"disable\" on "
                                                      "this device, got \"") +
                                              NameOf(config.speculative_mode) +
                                              "\": draft tokens might change answers there");
}

}  // namespace

int64_t NumPages(const EngineConfig& config) {
  return (*config.max_total_sequence_length + config.kv_cache_page_size - 1) /
         config.kv_cache_page_size;
}

std::string TokenizerJson(const std::string& model_path) {
  const std::filesystem::path path = std::filesystem::path(model_path) / "tokenizer.json";
  return !model_path.empty() && std::filesystem::exists(path) ? path.string() : "";
}

void CheckResolved(const EngineConfig& config) {
  CheckSupported(config);
  const auto check = [](const char* field, const std::optional<int64_t>& value, int64_t minimum) {
    if (value.value_or(0) >= minimum) return;
    throw InvalidConfig(
        field, OutOfRangeMessage(field, value.value_or(0), "at least " + std::to_string(minimum)));
  };
  check("max_num_sequence", config.max_num_sequence, 1);
  check("max_total_sequence_length", config.max_total_sequence_length, 1);
  check("max_single_sequence_length", config.max_single_sequence_length, 1);
  // Decode computes at least one row for every running sequence in one forward.
  check("prefill_chunk_size", config.prefill_chunk_size, *config.max_num_sequence);
}

EngineParts LoadParts(const EngineConfig& config, const std::string& device,
                      const LoadProgress& progress) {
  CheckSupported(config);
  const std::string resolved_device = ResolveDevice(device, config.model_lib);
  EngineConfig with_threads = config;
  if (!config.num_threads) with_threads.num_threads = AvailableCpus();
  EngineParts parts;
  parts.defaults = ReadModelDefaults(config.model);
  if (config.sampling_defaults == "openai") parts.defaults.generation = {};
  const std::string tokenizer = TokenizerJson(config.model);
  if (!tokenizer.empty()) {
    parts.token_table = TokenTable::FromTokenizerJson(tokenizer, config.visible_special_tokens);
  }
  parts.model = LoadModel({.path = config.model,
                           .model_lib = config.model_lib,
                           .device = resolved_device,
                           .dtype = config.dtype,
                           .quantization = config.quantization,
                           .kv_cache_dtype = config.kv_cache_dtype,
                           .num_threads = *with_threads.num_threads,
                           .progress = progress,
                           .weight_cache_dir = config.weight_cache_dir,
                           .longest_sequence = LongestSequence(config),
                           .strict_weights = config.strict_weights});
  CheckSupportedBy(*parts.model, config);
  parts.config = ResolveEngineConfig(with_threads, parts.model->metadata(), AvailableMemoryBytes());
  CheckResolved(parts.config);
  parts.length_reason = ExplainLongestSequence(with_threads, parts.config, parts.model->metadata());
  return parts;
}

}  // namespace mlc_native
