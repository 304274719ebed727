#include "models/transformer.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "models/resolved_formats.h"
#include "support/check.h"

namespace mlc_native {
namespace {

// Long enough to amortize reading the weights, short enough that decoding rows which share the step
// do not wait long.
constexpr int64_t kPrefillChunk = 512;

int64_t QkvWidth(const ModelConfig& config) {
  return config.Widest([&](const LayerConfig& layer) { return config.qkv_size(layer); });
}

// Of the gates in front of them.
int64_t GatesWidth(const ModelConfig& config) {
  return config.Widest(
      [&](const LayerConfig& layer) { return config.attention_gates_size(layer); });
}

// Of the queries, and of what attention gives.
int64_t QueryWidth(const ModelConfig& config) {
  return config.Widest([&](const LayerConfig& layer) { return config.q_size(layer); });
}

int64_t FfnWidth(const ModelConfig& config) {
  return config.Widest(
      [&](const LayerConfig& layer) { return config.linear_rows(layer, LinearRole::kGateUp); });
}

// Of what kOut and kDown read.
int64_t OutputInputWidth(const ModelConfig& config) {
  return config.Widest([&](const LayerConfig& layer) {
    return std::max(config.values_size(layer), config.ffn_size_of(layer));
  });
}

// Floats per row of what the experts work on: the shared one, and then the chosen ones.
int64_t ExpertWidth(const ModelConfig& config) {
  if (!config.experts) return 0;
  const ExpertConfig& experts = *config.experts;
  const int64_t chosen =
      experts.router.num_chosen * std::max(2 * experts.ffn_size, config.expert_input_size());
  const int64_t shared = 2 * experts.shared_ffn_size;
  return std::max(chosen, shared) + (shared > 0 ? config.hidden_size : 0) + experts.latent_size;
}

// Floats per row of what latent or compressed attention makes q, k and v of.
int64_t LatentWidth(const ModelConfig& config) {
  if (config.compression) return config.compression->q_rank + config.kv_size();
  if (!config.latent) return 0;
  return config.latent_size() + (config.latent->q_rank > 0 ? config.query_up_size() : 0);
}

// Floats per row of what an index scores keys with.
int64_t IndexWidth(const ModelConfig& config) {
  if (!config.key_choice) return 0;
  const KeyChoiceConfig& choice = *config.key_choice;
  return choice.queries_size() + choice.head_dim + choice.num_heads;
}

// Floats per row of what compressed attention makes entries of, and finds them with.
int64_t EntryWidth(const ModelConfig& config) {
  if (!config.compression) return 0;
  const KeyChoiceConfig& index = config.compression->index;
  const int64_t of_tokens =
      config.Widest([&](const LayerConfig& layer) { return config.token_row_size(layer); });
  return of_tokens + config.head_dim + index.head_dim + index.queries_size() + index.num_heads;
}

// Floats per row of the gates of linear attention, or of the keys and queries of Mamba-2; of
// Mamba-1, with what its steps come from.
int64_t DeltaGatesWidth(const ModelConfig& config) {
  if (config.scan) return config.scan->step_inputs_size();
  return config.mamba ? 2 * config.mamba->keys_size()
                      : config.linear_rows({}, LinearRole::kDeltaGates);
}

// Floats per row of decays of channels, or of the steps of Mamba-1.
int64_t DeltaDecaysWidth(const ModelConfig& config) {
  if (config.scan) return config.scan->channels;
  return config.delta && config.delta->decays_channels() ? config.delta->decays_size() : 0;
}

// Floats per row of output gates that are not among the inputs, or of what the convolution of
// Mamba-1 gives.
int64_t DeltaOutGatesWidth(const ModelConfig& config) {
  if (config.scan) return config.scan->channels;
  return config.delta && config.delta->decays_channels() ? config.delta->values_size() : 0;
}

// Floats per row of what a layer with a state works on.
int64_t DeltaWidth(const ModelConfig& config) {
  if (!config.has_states()) return 0;
  return config.recurrent_inputs_size() + DeltaGatesWidth(config) + DeltaDecaysWidth(config) +
         DeltaOutGatesWidth(config) + config.recurrent_outputs_size();
}

// Floats per row of all residual streams, where there are several.
int64_t StreamsWidth(const ModelConfig& config) {
  if (config.hyper_connections) {
    const int64_t count = config.hyper_connections->count;
    return count * config.hidden_size + kernels::KeptFloats(count);
  }
  return config.residual_streams ? config.residual_streams->count * config.hidden_size : 0;
}

// Of the parts that all but the first become.
int64_t StreamPartsWidth(const ModelConfig& config) {
  return config.residual_streams ? StreamsWidth(config) - config.hidden_size : 0;
}

int64_t LaurelWidth(const ModelConfig& config) {
  return config.laurel_rank > 0 ? config.hidden_size : 0;
}

// Floats per row of what attention and the feed-forward block work on, one after the other.
int64_t BlockWidth(const ModelConfig& config) {
  const int64_t attention = GatesWidth(config) + QkvWidth(config) + QueryWidth(config) +
                            LatentWidth(config) + IndexWidth(config) + EntryWidth(config);
  const int64_t gate = config.layer_inputs ? 2 * config.layer_inputs->size : 0;
  const int64_t beside = config.arch->attends_beside_mamba ? attention : 0;
  return std::max({attention, OutputInputWidth(config), beside + DeltaWidth(config),
                   FfnWidth(config), ExpertWidth(config), gate, config.layer_inputs_size(),
                   config.laurel_rank, StreamPartsWidth(config)});
}

int64_t RouterWidth(const ModelConfig& config) {
  return config.experts ? config.experts->router_rows() : 0;
}

// Floats per row of outputs of blocks that are not in the memory of their inputs.
int64_t OutputWidth(const ModelConfig& config) {
  return config.parallel_blocks ? config.hidden_size : 0;
}

// Floats per row of the tokens and hidden states that a draft head joins.
int64_t JoinedWidth(const ModelConfig& config) {
  return config.draft_head ? 2 * config.hidden_size : 0;
}

// Floats per row of logits of the hidden states that a draft head keeps.
int64_t OwnStateWidth(const ModelConfig& config) {
  return config.draft_head ? config.hidden_size : 0;
}

// Floats of the workspace of a linear, per row.
int64_t LinearInputWidth(const ModelConfig& config) {
  const auto width = [](int64_t k) {
    return static_cast<int64_t>(kernels::LinearInputBytes(1, k) / sizeof(float));
  };
  int64_t of_latents = 0;
  if (config.latent) {
    const LatentConfig& latent = *config.latent;
    of_latents = std::max(width(latent.q_rank),
                          config.num_heads * width(std::max(latent.plain_dim, latent.kv_rank)));
  }
  if (config.compression) {
    const CompressionConfig& compression = *config.compression;
    of_latents = std::max(width(compression.q_rank),
                          compression.out_groups * width(config.q_size() / compression.out_groups));
  }
  const int64_t widest =
      std::max({config.hidden_size, OutputInputWidth(config), config.recurrent_outputs_size(),
                JoinedWidth(config), config.draft_input_size(),
                config.layer_inputs ? config.layer_inputs->size : 0, config.laurel_rank,
                config.delta ? config.delta->gate_rank : 0, config.scan ? config.scan->rank : 0});
  const int64_t dense = std::max(width(widest), of_latents);
  if (!config.experts) return dense;
  const ExpertConfig& experts = *config.experts;
  return std::max(
      {dense, width(experts.shared_ffn_size), width(experts.latent_size),
       experts.router.num_chosen * width(std::max(config.expert_input_size(), experts.ffn_size))});
}

}  // namespace

Transformer::Transformer(ModelConfig config, CpuDecoderWeights weights, kernels::KvFormat kv_format,
                         const kernels::CpuKernels& isa, std::unique_ptr<ThreadPool> pool)
    : config_(std::move(config)),
      weights_(std::move(weights)),
      last_writer_(config_.last_writer()),
      head_parts_(HeadPartsOf(config_)),
      kv_format_(kv_format),
      pool_(std::move(pool)),
      cpu_{&isa, pool_.get()} {
  for (size_t i = 0; config_.latent && i < weights_.layers.size(); ++i) {
    const CpuDecoderWeights::Layer& layer = weights_.layers[i];
    HeadMatrices& matrices = head_matrices_.emplace_back();
    if (!config_.layers[i].attends()) continue;
    for (int head = 0; head < config_.num_heads; ++head) {
      matrices.keys.push_back(layer.linear(LinearRole::kHeadKeyUp, head).matrix);
      matrices.values.push_back(layer.linear(LinearRole::kHeadValueUp, head).matrix);
    }
  }
  MakeDistances();
  if (config_.compression) GroupHeads();
  ReadTokenExperts();
  DescribeMetadata();
}

void Transformer::StartKernelProfile() {
  profile_ = std::make_unique<kernels::KernelProfile>(pool_->num_threads());
  cpu_.profile = profile_.get();
}

std::string Transformer::StopKernelProfile() {
  cpu_.profile = nullptr;
  const auto profile = std::move(profile_);
  return profile == nullptr ? "{}" : profile->Json();
}

void Transformer::DescribeMetadata() {
  metadata_.vocab_size = config_.vocab_size;
  metadata_.dtype = weights_.dtype;
  metadata_.kv_cache_dtype = KvCacheDTypeOf(kv_format_);
  metadata_.context_window_size = config_.max_positions;
  if (config_.sight != RowSight::kAll) metadata_.preferred_prefill_chunk_size = kPrefillChunk;
  const auto stored = static_cast<int64_t>(weights_.memory.size);
  metadata_.weight_bytes = stored + static_cast<int64_t>(distance_vectors_.size());
  metadata_.mapped_weight_bytes = weights_.memory.mapped ? stored : 0;
  if (weights_.memory.mapped) metadata_.expert_weight_bytes = BytesOfExperts();
  metadata_.kv_bytes_per_token = KvStorage::BytesPerToken(config_, kv_format_);
  metadata_.recurrent_bytes_per_slot = RecurrentStorage::BytesPerSlot(config_);
  metadata_.description = weights_.description;
  metadata_.description.kv_format = kernels::KvFormatName(kv_format_);
  const int threads = pool_->num_threads();
  metadata_.description.compute = std::to_string(threads) +
                                  (threads == 1 ? " thread, " : " threads, ") +
                                  std::string(kernels::IsaName(*cpu_.isa));
  metadata_.num_layers = std::ssize(config_.layers);
  metadata_.hidden_size = config_.hidden_size;
  metadata_.input_size = config_.draft_head ? 0 : config_.input_size();
  metadata_.max_whole_rows = config_.max_whole_rows();
  metadata_.row_positions = !config_.draft_head && config_.has_row_positions();
  metadata_.whole_prompts = config_.sight == RowSight::kAll;
  metadata_.generates = config_.has_head && !metadata_.whole_prompts;
  if (config_.draft_head) metadata_.draft_head = config_.draft_head->info;
  const int64_t widths = 2 * config_.hidden_size + OutputWidth(config_) + BlockWidth(config_) +
                         LinearInputWidth(config_) + RouterWidth(config_) + JoinedWidth(config_) +
                         config_.draft_input_size() + config_.layer_inputs_size() +
                         StreamsWidth(config_) + LaurelWidth(config_);
  const size_t lists = last_writer_ + 1 < config_.layers.size() ? 2 : 1;  // of rows
  metadata_.workspace_bytes_per_token =
      widths * static_cast<int64_t>(sizeof(float)) +
      static_cast<int64_t>(lists * (sizeof(int32_t) + sizeof(kernels::AttentionSequence)) +
                           sizeof(int64_t));
  if (config_.key_choice) {
    metadata_.workspace_bytes_per_token +=
        config_.key_choice->num_chosen * static_cast<int64_t>(sizeof(int32_t));
  }
  if (config_.compression) {
    metadata_.workspace_bytes_per_token +=
        (config_.compression->index.num_chosen + 1) * static_cast<int64_t>(sizeof(int32_t)) +
        static_cast<int64_t>(sizeof(kernels::AttentionSequence));
  }
  metadata_.workspace_bytes_per_sequence =
      (config_.vocab_size + OwnStateWidth(config_)) * static_cast<int64_t>(sizeof(float));
}

int64_t Transformer::BytesOfExperts() const {
  size_t bytes = 0;
  for (const CpuDecoderWeights::Layer& layer : weights_.layers) {
    for (const LinearRole role : kLinearRoles) {
      if (!IsOfExperts(role)) continue;
      for (int expert = 0; expert < layer.num_experts(role); ++expert) {
        const kernels::PackedLinear& w = layer.linear(role, expert).matrix;
        bytes += kernels::PackedLinearBytes(*cpu_.isa, w.format, w.n, w.k);
      }
    }
  }
  return static_cast<int64_t>(bytes);
}

void Transformer::Allocate(int64_t num_pages, int64_t max_num_rows, int64_t max_num_logits) {
  MLC_CHECK(num_pages > 0 && max_num_rows > 0 && max_num_logits > 0)
      << num_pages << " pages, " << max_num_rows << " rows, " << max_num_logits << " logits rows";
  kv_ = KvStorage(config_, kv_format_, num_pages, cpu_.pool->num_nodes());
  BalanceKeys();
  num_positions_ = std::min(config_.max_positions, num_pages * kKvPageSize);
  ropes_.clear();
  for (const RopeConfig& rope : config_.ropes) {
    ropes_.push_back(MakeRopeTable(rope, num_positions_));
  }
  query_scales_ = config_.QueryScales(num_positions_);

  Activations block;
  struct Wanted {
    Activations* activations;
    int64_t rows;
    int64_t width;
  };
  const Wanted wanted[] = {
      {&buffers_.residual, max_num_rows, config_.hidden_size},
      {&buffers_.hidden, max_num_rows, config_.hidden_size},
      {&buffers_.output, max_num_rows, OutputWidth(config_)},
      {&block, max_num_rows, BlockWidth(config_)},
      {&buffers_.router, max_num_rows, RouterWidth(config_)},
      {&buffers_.layer_inputs, max_num_rows, config_.layer_inputs_size()},
      {&buffers_.streams, max_num_rows, StreamsWidth(config_)},
      {&buffers_.laurel, max_num_rows, LaurelWidth(config_)},
      {&buffers_.joined, max_num_rows, JoinedWidth(config_)},
      {&buffers_.states, max_num_rows, config_.draft_input_size()},
      {&buffers_.linear_inputs, std::max(max_num_rows, max_num_logits), LinearInputWidth(config_)},
      {&buffers_.own_states, max_num_logits, OwnStateWidth(config_)},
      {&buffers_.logits, max_num_logits, config_.vocab_size},
  };
  const auto attention_bytes = static_cast<size_t>(config_.Widest([&](const LayerConfig& layer) {
    return static_cast<int64_t>(kernels::AlignUp(
        kernels::AttentionWorkspaceBytes(pool_->num_threads(), config_.heads_of(layer),
                                         config_.kv_heads_of(layer), config_.head_dim_of(layer))));
  }));
  size_t delta_bytes = 0;
  if (config_.delta || config_.mamba) {
    const kernels::DeltaShape shape = config_.mamba ? RecurrentStorage::ShapeOf(*config_.mamba)
                                                    : RecurrentStorage::ShapeOf(*config_.delta);
    delta_bytes = kernels::AlignUp(kernels::DeltaWorkspaceBytes(pool_->num_threads(), shape));
  }
  if (config_.scan) {
    const kernels::ScanShape shape = RecurrentStorage::ShapeOf(*config_.scan);
    delta_bytes = kernels::AlignUp(kernels::ScanWorkspaceBytes(pool_->num_threads(), shape));
  }
  size_t choice_bytes = 0;
  if (ChoosesKeys()) {
    choice_shape_ = ChoiceShape();
    choice_bytes = kernels::KeyChoiceWorkspaceBytes(choice_shape_);
    chosen_.resize(static_cast<size_t>(max_num_rows * config_.key_choice->num_chosen));
  }
  if (config_.compression) {
    AllocateEntries(max_num_rows);
    choice_bytes = kernels::KeyChoiceWorkspaceBytes(ShapeOfIndex());
  }
  const size_t entry_bytes = config_.compression ? EntryBytes() : 0;
  size_t bytes =
      attention_bytes + delta_bytes + choice_bytes + entry_bytes + kernels::kLinearReadsBehind;
  for (const Wanted& w : wanted)
    bytes += kernels::AlignUp(static_cast<size_t>(w.rows * w.width) * sizeof(float));
  workspace_ = TensorStorage(bytes, "prefill_chunk_size");
  std::byte* data = workspace_.data();
  buffers_.attention_workspace = data;
  data += attention_bytes;
  buffers_.delta_workspace = data;
  data += delta_bytes;
  buffers_.choice_workspace = data;
  data += choice_bytes;
  buffers_.entry_workspace = data;
  data += entry_bytes;
  for (const Wanted& w : wanted) {
    *w.activations = {reinterpret_cast<float*>(data), w.width};
    data += kernels::AlignUp(static_cast<size_t>(w.rows * w.width) * sizeof(float));
  }
  if (!config_.parallel_blocks) buffers_.output = buffers_.hidden;
  PlaceBlock(block.data, max_num_rows);
  max_num_rows_ = max_num_rows;
  max_num_logits_ = max_num_logits;
  positions_.resize(static_cast<size_t>(max_num_rows));
  if (config_.num_text_types > 0) text_types_.resize(static_cast<size_t>(max_num_rows));
  slots_.resize(static_cast<size_t>(max_num_rows));
  sequences_.reserve(static_cast<size_t>(max_num_rows));
  if (config_.has_states()) {
    delta_sequences_.resize(static_cast<size_t>(max_num_rows));
    delta_writes_.reserve(static_cast<size_t>(max_num_rows));
  }
  if (config_.key_choice || config_.compression) {
    choosing_rows_.reserve(static_cast<size_t>(max_num_rows));
    other_rows_.reserve(static_cast<size_t>(max_num_rows));
  }
  AllocateAdapterRows(max_num_rows);
  last_rows_.reserve(static_cast<size_t>(max_num_rows));
  if (last_writer_ + 1 == config_.layers.size()) return;
  last_positions_.reserve(static_cast<size_t>(max_num_rows));
  last_sequences_.reserve(static_cast<size_t>(max_num_rows));
}

kernels::KeyChoiceShape Transformer::ChoiceShape() const {
  const KeyChoiceConfig& choice = *config_.key_choice;
  return {.num_threads = pool_->num_threads(),
          .max_positions = num_positions_,
          .num_chosen = choice.num_chosen,
          .heads = choice.num_heads,
          .head_dim = choice.head_dim,
          .format = kv_format_,
          .kv_head_dim = config_.head_dim,
          .rope_dim = config_.latent->rope_dim};
}

// In the same memory, so that a long chunk's activations stay in the last-level cache.
void Transformer::PlaceBlock(float* data, int64_t max_num_rows) {
  buffers_.ffn = {data, FfnWidth(config_)};
  const int64_t gates = GatesWidth(config_);
  const int64_t width = gates + QkvWidth(config_);
  buffers_.gated_qkv = {data, width};
  buffers_.qkv = {data + gates, width};
  buffers_.attention = {data + max_num_rows * width, QueryWidth(config_)};
  buffers_.projected_inputs = {data, config_.layer_inputs_size()};
  buffers_.layer_gate = {data, config_.layer_inputs ? 2 * config_.layer_inputs->size : 0};
  buffers_.stream_parts = {data, StreamPartsWidth(config_)};
  buffers_.laurel_rank = {data, config_.laurel_rank};
  if (config_.has_states()) {
    float* delta = data;  // behind what attention has in the same layers
    if (config_.arch->attends_beside_mamba) delta += max_num_rows * (width + QueryWidth(config_));
    PlaceStateRows(delta, max_num_rows);
  }
  if (config_.latent) {
    float* const latents = buffers_.attention.data + max_num_rows * buffers_.attention.width;
    buffers_.latents = {latents, config_.latent_size()};
    buffers_.queries = {latents + max_num_rows * config_.latent_size(), config_.query_up_size()};
    buffers_.values = {data, config_.values_size()};
    if (config_.key_choice) PlaceIndex(latents + max_num_rows * LatentWidth(config_), max_num_rows);
  }
  if (config_.compression) PlaceEntryBlock(data, max_num_rows);
  if (!config_.experts) return;
  const ExpertConfig& experts = *config_.experts;
  buffers_.shared = {data, config_.hidden_size};
  if (experts.shared_ffn_size > 0) data += max_num_rows * config_.hidden_size;
  buffers_.expert_latents = {data, experts.latent_size};
  data += max_num_rows * experts.latent_size;
  buffers_.shared_ffn = {data, 2 * experts.shared_ffn_size};
  buffers_.expert_ffn = {data, 2 * experts.ffn_size};
  buffers_.expert_output = {data, config_.expert_input_size()};
  choices_.Resize(max_num_rows, experts.router);
}

void Transformer::PlaceIndex(float* data, int64_t max_num_rows) {
  const KeyChoiceConfig& choice = *config_.key_choice;
  buffers_.index_queries = {data, choice.queries_size()};
  data += max_num_rows * choice.queries_size();
  buffers_.index_keys = {data, choice.head_dim};
  data += max_num_rows * choice.head_dim;
  buffers_.index_weights = {data, choice.num_heads};
}

void Transformer::PlaceStateRows(float* data, int64_t max_num_rows) {
  const auto take = [&](int64_t width) {
    const Activations rows{data, width};
    data += max_num_rows * width;
    return rows;
  };
  buffers_.delta_inputs = take(config_.recurrent_inputs_size());
  buffers_.delta_gates = take(DeltaGatesWidth(config_));
  buffers_.delta_decays = take(DeltaDecaysWidth(config_));
  buffers_.delta_out_gates = take(DeltaOutGatesWidth(config_));
  buffers_.delta_output = take(config_.recurrent_outputs_size());
  if (!config_.delta || config_.delta->decays_channels()) return;
  buffers_.delta_out_gates = {buffers_.delta_inputs.data + config_.delta->conv_size(),
                              buffers_.delta_inputs.width};
}

void Transformer::AllocateRecurrent(int64_t num_slots) {
  recurrent_ = RecurrentStorage(config_, num_slots);
}

void Transformer::CopyPages(std::span<const PageCopy> copies) { kv_.CopyPages(copies); }

}  // namespace mlc_native
