// The mode rules: from what a model costs and how much memory is free to the sizes of an engine.
#include <algorithm>
#include <charconv>
#include <limits>
#include <string>

#include "mlc_native/config.h"
#include "mlc_native/detail/page.h"
#include "support/error.h"

namespace mlc_native {
namespace {

constexpr double kDefaultMemoryUtilization = 0.85;
// The host has other programs, and a cache that nothing limits fills up in time.
constexpr double kAutoHostMemoryUtilization = 0.5;
// The room that mode "auto" plans for a sequence among others: longer ones are rare, and share.
constexpr int64_t kAutoTokensPerSequence = 32768;
constexpr int64_t kLocalMaxNumSequence = 4;
constexpr int64_t kLocalMaxTotalTokens = 8192;
constexpr int64_t kServerQueuePerSequence = 16;
constexpr int64_t kMaxPinTokens = 2048;
constexpr int64_t kMinScoredRows = 64;
// The share of the memory that the states of recurrent layers take at most, unless the number of
// sequences is given.
constexpr double kMaxShareOfStates = 0.25;
constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
// Tokens of a KV cache, so that positions and page ids fit into 32 bits.
constexpr int64_t kMaxCapacity = (int64_t{1} << 31) - kKvPageSize;

int64_t RoundDownToPage(int64_t tokens) { return tokens / kKvPageSize * kKvPageSize; }

int64_t RoundUpToPage(int64_t tokens) {
  return RoundDownToPage(std::min(tokens, kMaxCapacity) + kKvPageSize - 1);
}

std::string Megabytes(double bytes) {
  char digits[512];
  const auto end =
      std::to_chars(digits, digits + sizeof(digits), bytes / (1 << 20), std::chars_format::fixed, 1)
          .ptr;
  return std::string(digits, end) + " MB";
}

// Bytes that the engine may use, and for what.
struct MemoryBudget {
  const char* of = "";  // whose memory
  double free = 0;
  double usable = 0;     // free * utilization
  double workspace = 0;  // activations of a prefill chunk, logits, states of recurrent layers
  double kv_per_token = 0;

  int64_t CapacityTokens() const {
    const double left = usable - workspace;
    if (left <= 0) return 0;
    if (kv_per_token <= 0) return kMaxCapacity;
    return static_cast<int64_t>(std::min(left / kv_per_token, static_cast<double>(kMaxCapacity)));
  }
};

// What a map leaves of the free memory. It needs room for what every step reads. The system can
// drop experts and read them again, so they take at most half of what is left then.
int64_t FreeBesideMap(int64_t free_host_bytes, const ModelMetadata& model) {
  const int64_t experts = std::min(model.expert_weight_bytes, model.mapped_weight_bytes);
  const int64_t left = free_host_bytes - (model.mapped_weight_bytes - experts);
  return left - std::min(experts, left / 2);
}

MemoryBudget MakeBudget(const EngineConfig& config, const ModelMetadata& model,
                        int64_t free_host_bytes) {
  MemoryBudget budget;
  budget.of = model.free_memory_bytes ? "GPU memory" : "memory";
  budget.free = static_cast<double>(std::max<int64_t>(
      model.free_memory_bytes.value_or(FreeBesideMap(free_host_bytes, model)), 0));
  budget.usable = budget.free * *config.gpu_memory_utilization;
  // The inferred chunk is never larger than this.
  const int64_t chunk = config.prefill_chunk_size.value_or(
      std::max(model.preferred_prefill_chunk_size, *config.max_num_sequence));
  budget.workspace =
      static_cast<double>(chunk) * static_cast<double>(model.workspace_bytes_per_token) +
      static_cast<double>(MaxLogitsRows(*config.max_num_sequence, chunk)) *
          static_cast<double>(model.workspace_bytes_per_sequence) +
      static_cast<double>(NumRecurrentSlots(*config.max_num_sequence)) *
          static_cast<double>(model.recurrent_bytes_per_slot);
  budget.kv_per_token = static_cast<double>(model.kv_bytes_per_token);
  return budget;
}

[[noreturn]] void ThrowInsufficientMemory(const EngineConfig& config, const ModelMetadata& model,
                                          const MemoryBudget& budget) {
  throw InvalidConfig(
      "gpu_memory_utilization",
      std::string("Insufficient ") + budget.of + " error: The available " + budget.of + " is " +
          Megabytes(budget.usable) + " (gpu_memory_utilization of the " + Megabytes(budget.free) +
          " that are free after loading " + Megabytes(static_cast<double>(model.weight_bytes)) +
          " of model weights), which is less than the sum of temporary buffer size (" +
          Megabytes(budget.workspace) + ") and one page of the KV cache (" +
          Megabytes(budget.kv_per_token * kKvPageSize) +
          ").\n1. You can set a larger \"gpu_memory_utilization\" value, up to 1.\n"
          "2. If the model weight size is too large, please choose a smaller model or \"dtype\".\n"
          "3. If the temporary buffer size is too large, please use a smaller "
          "\"prefill_chunk_size\" (now " +
          (config.prefill_chunk_size ? std::to_string(*config.prefill_chunk_size) : "inferred") +
          ") or \"max_num_sequence\" (now " + std::to_string(*config.max_num_sequence) +
          ") in the engine config.");
}

// The most sequences whose states fit.
int64_t MaxSequencesOfStates(const EngineConfig& config, const ModelMetadata& model,
                             int64_t free_host_bytes) {
  if (model.recurrent_bytes_per_slot == 0) return kUnlimited;
  const auto free =
      static_cast<double>(model.free_memory_bytes.value_or(FreeBesideMap(free_host_bytes, model)));
  const double slots = free * *config.gpu_memory_utilization * kMaxShareOfStates /
                       static_cast<double>(model.recurrent_bytes_per_slot);
  const auto per_sequence = static_cast<double>(NumRecurrentSlots(1) - NumRecurrentSlots(0));
  const double count = (slots - static_cast<double>(NumRecurrentSlots(0))) / per_sequence;
  return std::max<int64_t>(1, static_cast<int64_t>(count));
}

int64_t InferMaxNumSequence(const EngineConfig& config, const ModelMetadata& model,
                            int64_t free_host_bytes) {
  int64_t inferred = std::min(std::max<int64_t>(model.max_batch_size, 1),
                              MaxSequencesOfStates(config, model, free_host_bytes));
  if (config.mode == EngineMode::kLocal) inferred = std::min(inferred, kLocalMaxNumSequence);
  if (config.mode == EngineMode::kInteractive) inferred = 1;
  return std::min(inferred, config.prefill_chunk_size.value_or(kUnlimited));
}

// What pinned prompts may take alongside the longest sequence in modes whose cache would otherwise
// hold just that one; a server has the room of its other sequences.
int64_t PinTokens(const EngineConfig& config, int64_t longest) {
  if (config.prefix_cache_mode == PrefixCacheMode::kDisable) return 0;
  return RoundUpToPage(std::min(longest / 4, kMaxPinTokens));
}

// The length of a cache for `count` sequences of `longest` tokens and `pins` more.
int64_t CacheTokens(int64_t longest, int64_t count, int64_t pins, int64_t capacity) {
  if (longest > (kMaxCapacity - pins) / count) return capacity;
  return std::min(RoundUpToPage(longest * count) + pins, capacity);
}

// The length of the cache in each mode.
int64_t InferTotalTokens(const EngineConfig& config, int64_t longest, int64_t pins,
                         int64_t capacity) {
  const int64_t count = *config.max_num_sequence;
  const int64_t alone = CacheTokens(longest, 1, pins, capacity);
  switch (config.mode) {
    case EngineMode::kServer:
      return CacheTokens(longest, count, 0, capacity);
    case EngineMode::kAuto:
      return std::max(alone,
                      CacheTokens(std::min(longest, kAutoTokensPerSequence), count, 0, capacity));
    case EngineMode::kLocal:
    case EngineMode::kInteractive:
      break;
  }
  return alone;
}

// Infers max_total_sequence_length, and max_single_sequence_length from `max_single`: the user's
// value or the context window, kUnlimited without either.
void InferLengths(int64_t max_single, bool single_is_given, int64_t capacity,
                  EngineConfig* config) {
  const bool is_local = config->mode == EngineMode::kLocal;
  int64_t longest = is_local ? std::min(max_single, kLocalMaxTotalTokens) : max_single;
  const int64_t pins = PinTokens(*config, longest);
  const int64_t total = InferTotalTokens(*config, longest, pins, capacity);
  if (!single_is_given) {
    // When memory is short, an eighth of it stays for pins; a server has other sequences' room.
    const bool keeps_pins = config->mode != EngineMode::kServer;
    const int64_t kept = keeps_pins ? std::min(pins, RoundDownToPage(total / 8)) : 0;
    longest = std::min(longest, total - kept);
  }
  config->max_total_sequence_length = total;
  config->max_single_sequence_length = longest;
}

// Whole prompts leave with their step, of which few are in flight.
int64_t UsefulTokens(const EngineConfig& config, const ModelMetadata& model, int64_t capacity) {
  if (!model.whole_prompts) return capacity;
  constexpr int64_t kSteps = 4;
  const int64_t chunk = config.prefill_chunk_size.value_or(model.preferred_prefill_chunk_size);
  return std::min(capacity, RoundUpToPage(kSteps * chunk));
}

std::string Tokens(int64_t count) { return std::to_string(count) + " tokens"; }

// What fits into memory, in words.
std::string FittingTokens(int64_t capacity, const MemoryBudget& budget) {
  return "at most " + Tokens(capacity) + ", which is what fits into " +
         Megabytes(budget.usable - budget.workspace) + " at " +
         std::to_string(static_cast<int64_t>(budget.kv_per_token)) +
         " bytes per token (gpu_memory_utilization of " + Megabytes(budget.free) + " free " +
         budget.of + " less " + Megabytes(budget.workspace) + " of temporary buffers)";
}

// A length that the model, the mode or the memory cannot give is refused rather than cut.
void CheckSingleTokens(const EngineConfig& config, int64_t context, int64_t capacity,
                       const MemoryBudget& budget) {
  if (!config.max_single_sequence_length) return;
  const int64_t given = *config.max_single_sequence_length;
  const auto check = [given](int64_t limit, const std::string& allowed) {
    if (given <= limit) return;
    throw InvalidConfig("max_single_sequence_length",
                        OutOfRangeMessage("max_single_sequence_length", given, allowed));
  };
  check(context, "at most " + Tokens(context) + ", the context of the model");
  if (config.max_total_sequence_length) return;
  if (config.mode == EngineMode::kLocal) {
    check(kLocalMaxTotalTokens, "at most " + Tokens(kLocalMaxTotalTokens) +
                                    " in mode \"local\" (mode \"auto\" has no such limit, nor has "
                                    "a \"max_total_sequence_length\" that is given)");
  }
  check(capacity, FittingTokens(capacity, budget));
}

int64_t CheckedTotalTokens(int64_t given, int64_t capacity, const MemoryBudget& budget) {
  if (given > capacity) {
    throw InvalidConfig(
        "max_total_sequence_length",
        OutOfRangeMessage("max_total_sequence_length", given, FittingTokens(capacity, budget)));
  }
  return RoundUpToPage(given);  // capacity is whole pages, so this fits
}

int64_t InferPrefillChunkSize(const EngineConfig& config, const ModelMetadata& model) {
  int64_t chunk = std::max<int64_t>(model.preferred_prefill_chunk_size, 1);
  if (config.mode != EngineMode::kServer) {
    chunk =
        std::min({chunk, *config.max_total_sequence_length, *config.max_single_sequence_length});
  }
  return std::max(chunk, *config.max_num_sequence);
}

}  // namespace

int64_t MaxScoredRows(int64_t prefill_chunk_size) {
  return std::min(prefill_chunk_size, std::max(kMinScoredRows, prefill_chunk_size / 16));
}

int64_t MaxPooledRows(int64_t prefill_chunk_size) {
  constexpr int64_t kMostRows = 512;  // as good as more: the weights are read once for all of them
  return std::min(prefill_chunk_size, kMostRows);
}

EngineConfig ResolveEngineConfig(const EngineConfig& config, const ModelMetadata& model,
                                 int64_t free_host_bytes) {
  EngineConfig resolved = config;
  if (model.whole_prompts) resolved.prefix_cache_mode = PrefixCacheMode::kDisable;
  const bool shares_host = config.mode == EngineMode::kAuto && !model.free_memory_bytes;
  resolved.gpu_memory_utilization = config.gpu_memory_utilization.value_or(
      shares_host ? kAutoHostMemoryUtilization : kDefaultMemoryUtilization);
  if (!config.max_num_sequence) {
    resolved.max_num_sequence = InferMaxNumSequence(resolved, model, free_host_bytes);
  }
  if (resolved.prefill_chunk_size.value_or(kUnlimited) < *resolved.max_num_sequence) {
    throw InvalidConfig("prefill_chunk_size",
                        OutOfRangeMessage("prefill_chunk_size", *resolved.prefill_chunk_size,
                                          "at least \"max_num_sequence\" (" +
                                              std::to_string(*resolved.max_num_sequence) + ')'));
  }

  const MemoryBudget budget = MakeBudget(resolved, model, free_host_bytes);
  const int64_t capacity = RoundDownToPage(budget.CapacityTokens());
  if (capacity == 0) ThrowInsufficientMemory(resolved, model, budget);

  const int64_t context = model.context_window_size > 0 ? model.context_window_size : kUnlimited;
  CheckSingleTokens(config, context, capacity, budget);
  const int64_t max_single = config.max_single_sequence_length.value_or(context);
  if (config.max_total_sequence_length) {
    resolved.max_total_sequence_length =
        CheckedTotalTokens(*config.max_total_sequence_length, capacity, budget);
    resolved.max_single_sequence_length = std::min(max_single, *resolved.max_total_sequence_length);
  } else {
    InferLengths(max_single, config.max_single_sequence_length.has_value(),
                 UsefulTokens(resolved, model, capacity), &resolved);
  }
  if (!config.prefill_chunk_size) {
    resolved.prefill_chunk_size = InferPrefillChunkSize(resolved, model);
  }
  if (model.whole_prompts) {
    resolved.max_single_sequence_length =
        std::min(*resolved.max_single_sequence_length, *resolved.prefill_chunk_size);
  }
  if (!config.prefix_cache_max_num_recycling_seqs) {
    // The pages that the cache holds are reclaimed on demand, so a limit would only forget earlier.
    resolved.prefix_cache_max_num_recycling_seqs = -1;
  }
  if (!config.max_queue_length) {
    resolved.max_queue_length = config.mode == EngineMode::kServer
                                    ? kServerQueuePerSequence * *resolved.max_num_sequence
                                    : -1;
  }
  if (model.dtype) resolved.dtype = DTypeName(*model.dtype);
  if (model.kv_cache_dtype != KvCacheDType::kAuto) resolved.kv_cache_dtype = model.kv_cache_dtype;
  resolved.attention_sink_size = config.attention_sink_size.value_or(0);
  resolved.max_history_size = 0;
  return resolved;
}

int64_t LongestSequence(const EngineConfig& config) {
  const int64_t by_mode = config.mode == EngineMode::kLocal ? kLocalMaxTotalTokens : kUnlimited;
  return std::min(config.max_single_sequence_length.value_or(kUnlimited),
                  config.max_total_sequence_length.value_or(by_mode));
}

std::string ExplainLongestSequence(const EngineConfig& given, const EngineConfig& resolved,
                                   const ModelMetadata& model) {
  const int64_t longest = *resolved.max_single_sequence_length;
  if (longest == model.context_window_size) return "the context of the model";
  const std::string mode = std::string("mode \"") + NameOf(resolved.mode) + "\"";
  if (given.max_single_sequence_length == longest) {
    return "\"max_single_sequence_length\" of the engine; the model's context is " +
           (model.context_window_size > 0 ? Tokens(model.context_window_size) : "not limited");
  }
  if (model.whole_prompts && longest == resolved.prefill_chunk_size) {
    return "\"prefill_chunk_size\" of the engine, since the model attends in both directions";
  }
  if (given.max_total_sequence_length) {
    return "\"max_total_sequence_length\" of the engine, in " + mode;
  }
  if (resolved.mode == EngineMode::kLocal && longest == kLocalMaxTotalTokens) {
    return "the limit of " + mode + "; mode \"auto\" or a \"max_total_sequence_length\" lifts it";
  }
  return "what fits into memory in " + mode +
         "; a larger \"gpu_memory_utilization\" or another \"kv_cache_dtype\" lifts it";
}

}  // namespace mlc_native
