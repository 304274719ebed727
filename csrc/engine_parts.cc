#include "engine_parts.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include "checkpoint/model_defaults.h"
#include "config/device.h"
#include "config/speculation_checks.h"
#include "engine_classifier.h"
#include "mlc_native/detail/page.h"
#include "model_files/model_files.h"
#include "models/draft_head.h"
#include "models/draft_loader.h"
#include "support/error.h"
#include "support/json.h"
#include "support/machine_info.h"

namespace mlc_native {
namespace {

void CheckSupported(const EngineConfig& config) {
  if (config.kv_cache_page_size != kKvPageSize) {
    throw InvalidConfig("kv_cache_page_size",
                        OutOfRangeMessage("kv_cache_page_size", config.kv_cache_page_size, "16"));
  }
}

ModelSource SourceOf(const EngineConfig& config, const std::string& device) {
  return {.path = config.model,
          .model_lib = config.model_lib,
          .device = device,
          .dtype = config.dtype,
          .quantization = config.quantization,
          .kv_cache_dtype = config.kv_cache_dtype,
          .num_threads = *config.num_threads,
          .cpu_idle_mode = config.cpu_idle_mode,
          .weight_cache_dir = config.weight_cache_dir,
          .weight_cache_bytes = config.weight_cache_bytes,
          .longest_sequence = LongestSequence(config),
          .deterministic = config.deterministic,
          .strict_weights = config.strict_weights,
          .tensor_parallel_shards = config.tensor_parallel_shards.value_or(1)};
}

// A guess is a token id, so both models must mean the same by it.
void CheckSameTokens(const std::string& path, const TokenTable* table,
                     const std::vector<std::string>& visible) {
  const std::string file = TokenizerJson(path);
  if (table == nullptr || file.empty()) return;
  const auto draft = TokenTable::FromTokenizerJson(file, visible);
  const auto shown = [](const TokenTable& of, int32_t id) {
    const std::string_view bytes = of.bytes(id);
    if (bytes.empty()) return std::string("not a token");
    return JsonExcerpt(JsonValue(std::string(bytes)));
  };
  for (int32_t id = 0; id < std::max(table->size(), draft->size()); ++id) {
    if (table->bytes(id) == draft->bytes(id) && table->is_special(id) == draft->is_special(id)) {
      continue;
    }
    throw InvalidConfig("additional_models", "the draft model " + path +
                                                 " has another tokenizer than the model: token " +
                                                 std::to_string(id) + " is " + shown(*draft, id) +
                                                 " there and " + shown(*table, id) + " here");
  }
}

// The mode that "auto" stands for.
SpeculativeMode ChosenMode(const EngineConfig& config) {
  if (config.speculative_mode != SpeculativeMode::kAuto) return config.speculative_mode;
  if (!config.additional_models.empty()) {
    return DraftHeadIn(config.additional_models[0]).value_or(SpeculativeMode::kSmallDraft);
  }
  if (!config.model_lib.empty()) return SpeculativeMode::kNGram;
  return OwnDraftHeadIn(config.model).value_or(SpeculativeMode::kNGram);
}

// Returns the draft model or the draft head of the mode; null if it has none. The first of several
// GPUs computes it alone.
std::unique_ptr<Model> LoadDraftModel(const EngineConfig& config, ModelSource source,
                                      const EngineParts& parts) {
  const SpeculativeMode mode = config.speculative_mode;
  const bool has_head = HasDraftHead(mode);
  if (!has_head && mode != SpeculativeMode::kSmallDraft) return nullptr;
  source.tensor_parallel_shards = 1;
  if (!config.additional_models.empty()) {
    source.path = config.additional_models[0];
    CheckSameTokens(source.path, parts.token_table.get(), config.visible_special_tokens);
  }
  if (!has_head) return LoadModel(source);
  if (const auto found = DraftHeadIn(source.path); found && *found != mode) {
    throw InvalidConfig("speculative_mode", std::string("\"speculative_mode\" is \"") +
                                                NameOf(mode) + "\", but the head in " +
                                                source.path + " is for \"" + NameOf(*found) + '"');
  }
  source.target = parts.model.get();
  return LoadModel(source);
}

std::string DescribeLoaded(const EngineConfig& config, const std::string& device) {
  return "loaded " + config.model + " on " + device + ": at most " +
         std::to_string(*config.max_num_sequence) + " sequences with " +
         std::to_string(*config.max_total_sequence_length) + " tokens together, " +
         std::to_string(*config.prefill_chunk_size) + " tokens per step";
}

// What both models need together, for the sizes of the caches.
ModelMetadata Together(ModelMetadata model, Model* draft_model) {
  const ModelMetadata& draft = draft_model->metadata();
  if (draft.draft_head) {  // the StateMemory of the HeadDrafter
    const int64_t bytes = std::ssize(draft.draft_head->target_streams) * model.hidden_size *
                          static_cast<int64_t>(sizeof(float));
    model.workspace_bytes_per_token += DraftHead::StepsInFlight(*draft_model) * bytes;
    model.workspace_bytes_per_sequence += DraftHead::kBulk * bytes;
  }
  model.weight_bytes += draft.weight_bytes;
  model.mapped_weight_bytes += draft.mapped_weight_bytes;
  model.expert_weight_bytes += draft.expert_weight_bytes;
  model.kv_bytes_per_token += draft.kv_bytes_per_token;
  model.recurrent_bytes_per_slot += draft.recurrent_bytes_per_slot;
  model.workspace_bytes_per_token += draft.workspace_bytes_per_token;
  model.workspace_bytes_per_sequence += draft.workspace_bytes_per_sequence;
  if (draft.free_memory_bytes) {  // loaded last; another GPU may have less
    model.free_memory_bytes = std::min(*draft.free_memory_bytes,
                                       model.free_memory_bytes.value_or(*draft.free_memory_bytes));
  }
  return model;
}

}  // namespace

int64_t NumPages(const EngineConfig& config) {
  return (*config.max_total_sequence_length + config.kv_cache_page_size - 1) /
         config.kv_cache_page_size;
}

int64_t NumSlots(const Model& model, const EngineConfig& config) {
  if (model.metadata().recurrent_bytes_per_slot == 0) return 0;
  return NumRecurrentSlots(*config.max_num_sequence);
}

EngineParts Allocated(EngineParts loaded) {
  const int64_t chunk = *loaded.config.prefill_chunk_size;
  if (const int64_t num_slots = NumSlots(*loaded.model, loaded.config); num_slots > 0) {
    loaded.model->AllocateRecurrent(num_slots);
  }
  loaded.model->Allocate(NumPages(loaded.config), chunk,
                         MaxLogitsRows(*loaded.config.max_num_sequence, chunk));
  return loaded;
}

std::string TokenizerJson(const std::string& model_path) {
  const std::filesystem::path path = std::filesystem::path(model_path) / "tokenizer.json";
  return !model_path.empty() && HasModelFile(path.string()) ? path.string() : "";
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

EngineParts LoadParts(const EngineConfig& config, const EngineOptions& options) {
  CheckSupported(config);
  CheckAdditionalModels(config);
  const std::string resolved_device = ResolveDevice(options.device, config.model_lib);
  EngineConfig with_threads = config;
  if (!config.num_threads) with_threads.num_threads = ComputeCpus();
  with_threads.speculative_mode = ChosenMode(config);
  EngineParts parts;
  parts.defaults = ReadModelDefaults(config.model);
  if (config.sampling_defaults == "openai") parts.defaults.generation = {};
  const std::string tokenizer = TokenizerJson(config.model);
  if (!tokenizer.empty()) {
    parts.token_table = TokenTable::FromTokenizerJson(tokenizer, config.visible_special_tokens);
  }
  ModelSource source = SourceOf(with_threads, resolved_device);
  source.progress = options.load_progress;
  source.log = options.log;
  parts.model = LoadModel(source);
  LoadClassifier(config, parts.token_table.get(), &parts.defaults.embedding);
  CheckPooledLayers(parts.defaults.embedding, parts.model->metadata());
  ModelMetadata needs = parts.model->metadata();
  parts.draft_model = LoadDraftModel(with_threads, std::move(source), parts);
  if (parts.draft_model != nullptr) {
    needs = Together(std::move(needs), parts.draft_model.get());
  }
  parts.config = ResolveEngineConfig(with_threads, needs, AvailableMemoryBytes());
  CheckResolved(parts.config);
  options.log.Write(LogLevel::kInfo, DescribeLoaded(parts.config, resolved_device));
  parts.length_reason = ExplainLongestSequence(with_threads, parts.config, parts.model->metadata());
  return parts;
}

}  // namespace mlc_native
