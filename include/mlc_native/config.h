// Settings of a generation, of the engine and of a model folder. Plain values; any thread.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "mlc_native/detail/dtype.h"
#include "mlc_native/detail/embedding_config.h"
#include "mlc_native/detail/engine_config.h"
#include "mlc_native/detail/export.h"
#include "mlc_native/detail/generation_config.h"

namespace mlc_native {

// What a loaded model is, for reports. No setting follows from it.
struct ModelDescription {
  int64_t num_parameters = 0;                 // 0: unknown
  std::string weight_format{};                // "bfloat16", "q4 and q8 with bfloat16"
  std::string kv_format{};                    // of keys and values
  std::string compute{};                      // "2 threads, avx512_bf16"
  std::vector<std::string> unused_tensors{};  // of the checkpoint, by name
};

// Rows of logits of one step: one for each sequence, and those of scored prompt tokens
// (GenerationConfig::prompt_logprobs). Each row costs the memory of a vocabulary.
//
// A step computes at most max_scored_rows of a scored prompt, a part of prefill_chunk_size that
// still amortizes reading the weights.
int64_t MaxScoredRows(int64_t prefill_chunk_size);
// Rows that a step pools for means (Pooling::kMean). Each costs the memory of a hidden state.
int64_t MaxPooledRows(int64_t prefill_chunk_size);
inline int64_t MaxLogitsRows(int64_t max_num_sequence, int64_t prefill_chunk_size) {
  return max_num_sequence + MaxScoredRows(prefill_chunk_size);
}

// What a draft head reads and what its tokens mean (DraftInput in model.h).
struct DraftHeadInfo {
  std::vector<int32_t> target_streams{};  // of the target's hidden states, in this order
  int32_t own_stream = 0;                 // of its own hidden states, for the token after a draft
  // The target's token of each token of the head, in [0, vocabulary of the target). Empty: the same
  // ids.
  std::vector<int32_t> target_ids{};
  // Guesses of a draft at most.
  int64_t max_length = std::numeric_limits<int64_t>::max();
};

// Slots for the states of recurrent layers (ModelMetadata::recurrent_bytes_per_slot): four for each
// sequence and a waiting prompt, of which prefixes have those that are not in use, and some that
// can be pinned.
inline int64_t NumRecurrentSlots(int64_t max_num_sequence) { return 4 * max_num_sequence + 12; }

// What a model costs and allows; given by the model, input of the inference.
struct ModelMetadata {
  int64_t vocab_size = 0;
  std::optional<DType> dtype{};                       // of the weights that are floats
  KvCacheDType kv_cache_dtype = KvCacheDType::kAuto;  // kAuto: unknown, of a plug-in
  int64_t context_window_size = 0;                    // tokens; 0 when unlimited
  int64_t max_batch_size = 128;                       // rows of one decode step
  int64_t preferred_prefill_chunk_size = 2048;        // tokens
  int64_t num_shards = 1;           // GPUs that compute it (ModelSource::tensor_parallel_shards)
  int64_t weight_bytes = 0;         // already resident when memory is inferred
  int64_t mapped_weight_bytes = 0;  // of them, those that the system counts as free
  int64_t expert_weight_bytes = 0;  // of those, what steps read only where it is chosen
  int64_t kv_bytes_per_token = 0;   // all layers, K and V
  // Of the states of recurrent layers, which a sequence has in place of keys and values; 0: there
  // are no such layers.
  int64_t recurrent_bytes_per_slot = 0;
  int64_t workspace_bytes_per_token = 0;     // per token of a prefill chunk
  int64_t workspace_bytes_per_sequence = 0;  // per row of logits
  // Hidden states that the model gives (HiddenStates in model.h); hidden_size 0: it gives none.
  int64_t num_layers = 0;
  int64_t hidden_size = 0;
  int64_t input_size = 0;      // numbers of a row of InputRows (model.h); 0: it takes tokens only
  bool row_positions = false;  // SequenceSlice::rope_positions may differ from those of texts
  // The rows of one EmbeddingData see each other, so that they are computed in one step: the most
  // that there may be. nullopt: they see what is in front of them, as tokens do.
  std::optional<int64_t> max_whole_rows{};
  std::optional<DraftHeadInfo> draft_head{};  // of a model that is one
  // Rows see all rows of their prompt, also those behind them. So a prompt is computed in one step,
  // nothing of it is cached, and nothing follows it.
  bool whole_prompts = false;
  bool generates = true;  // false: it embeds texts only
  // Of the device, after the weights; nullopt: the model lives in the memory of the host.
  std::optional<int64_t> free_memory_bytes{};
  // In a step of at most this many rows, the logits of a slice of one row, and of each row of a
  // slice with rows_alone, have the same bits in any batch. Larger steps have no draft tokens.
  int64_t max_equal_rows = std::numeric_limits<int64_t>::max();
  ModelDescription description{};
};

// Completes the optional fields by the mode's rules, on free instead of total memory, and checks
// what the user gave against what fits. The memory is the model's device's, or what the host has
// free after the weights were loaded. Throws InvalidConfig. Pure.
MLC_NATIVE_API EngineConfig ResolveEngineConfig(const EngineConfig& config,
                                                const ModelMetadata& model,
                                                int64_t free_host_bytes);

// The longest sequence that the settings allow, before the model is known.
int64_t LongestSequence(const EngineConfig& config);

// Why no sequence is longer than in the resolved config, and which setting would change it; for
// messages. `given`: the config before it was resolved.
std::string ExplainLongestSequence(const EngineConfig& given, const EngineConfig& resolved,
                                   const ModelMetadata& model);

// Settings that a model folder gives to requests: generation_config.json and config.json, or
// mlc-chat-config.json.
struct ModelDefaults {
  GenerationConfig generation;         // sampling and lengths, see ReadModelDefaults
  std::vector<int32_t> eos_token_ids;  // end a sequence unless debug_config.ignore_eos
  EmbeddingDefaults embedding{};
};

}  // namespace mlc_native
