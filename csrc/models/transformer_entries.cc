// Compressed attention (kernels/compression.h) on the CPU's kernels: the entries of windows that
// end, which rows choose some of them, and what the heads give.
#include <algorithm>

#include "models/transformer_ops.h"
#include "support/check.h"

namespace mlc_native {

// ---- Sizes, and what a batch has ----

void Transformer::GroupHeads() {
  for (const CpuDecoderWeights::Layer& layer : weights_.layers) {
    auto& matrices = group_matrices_.emplace_back();
    for (int group = 0; group < config_.compression->out_groups; ++group) {
      matrices.push_back(layer.linear(LinearRole::kGroupOut, group).matrix);
    }
  }
}

// The weights have them as floats, whose range has been checked.
void Transformer::ReadTokenExperts() {
  if (std::ranges::none_of(config_.layers, &LayerConfig::has_token_experts)) return;
  const kernels::RouterRule& router = config_.experts->router;
  for (size_t i = 0; i < config_.layers.size(); ++i) {
    std::vector<int32_t>& experts = token_experts_.emplace_back();
    if (!config_.layers[i].has_token_experts) continue;
    const float* const stored = weights_.layers[i].vector(VectorRole::kTokenExperts);
    for (int64_t at = 0; at < config_.vocab_size * router.num_chosen; ++at) {
      MLC_CHECK(stored[at] >= 0 && stored[at] < static_cast<float>(router.num_experts)) << at;
      experts.push_back(static_cast<int32_t>(stored[at]));
    }
  }
}

kernels::EntryShape Transformer::ShapeOfEntries(bool chosen) const {
  const LayerConfig* of_layer = nullptr;
  for (const LayerConfig& layer : config_.layers) {
    if (layer.tokens_per_entry > 0 && layer.chooses_entries == chosen) of_layer = &layer;
  }
  if (of_layer == nullptr) return {};
  return {.max_positions = num_positions_,
          .num_tokens = of_layer->tokens_per_entry,
          .window = of_layer->window.size,
          .num_chosen = chosen ? config_.compression->index.num_chosen : 0,
          .format = kv_format_,
          .head_dim = config_.head_dim};
}

kernels::KeyChoiceShape Transformer::ShapeOfIndex() const {
  const KeyChoiceConfig& index = config_.compression->index;
  const int64_t step = std::max<int64_t>(sparse_windows_.shape.num_tokens, 1);
  return {.num_threads = pool_->num_threads(),
          .max_positions = num_positions_,
          .num_chosen = std::min(index.num_chosen, std::max<int64_t>(num_positions_ / step, 1)),
          .heads = index.num_heads,
          .head_dim = index.head_dim,
          .step = step,
          .format = kv_format_,
          .kv_head_dim = config_.head_dim};
}

size_t Transformer::EntryBytes() const {
  size_t bytes = 0;
  for (const EndingWindows* windows : {&sparse_windows_, &heavy_windows_}) {
    if (windows->shape.num_tokens == 0) continue;
    bytes = std::max(bytes, kernels::EntryWorkspaceBytes(windows->shape));
  }
  return bytes;
}

void Transformer::AllocateEntries(int64_t max_num_rows) {
  const auto rows = static_cast<size_t>(max_num_rows);
  sparse_windows_.shape = ShapeOfEntries(true);
  heavy_windows_.shape = ShapeOfEntries(false);
  choice_shape_ = ShapeOfIndex();
  for (EndingWindows* windows : {&sparse_windows_, &heavy_windows_}) {
    windows->ends.reserve(rows);
    windows->first_positions.reserve(rows);
    windows->slots.reserve(rows);
  }
  chosen_.resize(rows * static_cast<size_t>(choice_shape_.num_chosen));
  single_rows_.reserve(rows);
  last_ids_.reserve(rows);
}

void Transformer::PlaceEntryBlock(float* data, int64_t max_num_rows) {
  buffers_.values = {data, config_.values_size()};
  data = buffers_.attention.data + max_num_rows * buffers_.attention.width;
  const auto take = [&](int64_t width) {
    const Activations rows{data, width};
    data += max_num_rows * width;
    return rows;
  };
  const KeyChoiceConfig& index = config_.compression->index;
  buffers_.latents = take(config_.compression->q_rank + config_.kv_size());
  buffers_.entries = take(config_.head_dim);
  buffers_.index_entries = take(index.head_dim);
  buffers_.index_queries = take(index.queries_size());
  buffers_.index_weights = take(index.num_heads);
  buffers_.token_rows =
      take(config_.Widest([&](const LayerConfig& layer) { return config_.token_row_size(layer); }));
}

void Transformer::AddEndingWindows(const SequenceSlice& slice,
                                   const kernels::AttentionSequence& sequence) {
  for (EndingWindows* windows : {&sparse_windows_, &heavy_windows_}) {
    const int64_t size = windows->shape.num_tokens;
    if (size == 0) continue;
    const int64_t begin = slice.position, end = begin + slice.num_tokens;
    for (int64_t last = begin / size * size + size - 1; last < end; last += size) {
      windows->ends.push_back({sequence.block_table, last});
      windows->first_positions.push_back(static_cast<int32_t>(last - size + 1));
      windows->slots.push_back(slots_[static_cast<size_t>(slice.first_row + last - begin)]);
    }
  }
}

void Transformer::PlaceEntryRows(const ForwardBatch& batch) {
  for (EndingWindows* windows : {&sparse_windows_, &heavy_windows_}) {
    windows->ends.clear();
    windows->first_positions.clear();
    windows->slots.clear();
  }
  single_rows_.clear();
  choosing_rows_.clear();
  other_rows_.clear();
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    const kernels::AttentionSequence& sequence = sequences_[i];
    AddEndingWindows(batch.sequences[i], sequence);
    for (int64_t row = 0; row < sequence.num_rows; ++row) {
      const kernels::AttentionSequence one{.row_begin = sequence.row_begin + row,
                                           .num_rows = 1,
                                           .first_position = sequence.first_position + row,
                                           .block_table = sequence.block_table};
      single_rows_.push_back(one);
      const bool chooses = (one.first_position + 1) / choice_shape_.step > choice_shape_.num_chosen;
      (chooses ? choosing_rows_ : other_rows_).push_back(one);
    }
  }
}

// ---- A layer ----

kernels::RopeArgs Transformer::Ops::RopeOfEnds(size_t layer, const Activations& x, int64_t heads,
                                               int64_t dim) const {
  const auto rope = static_cast<size_t>(config_.layers[layer].rope);
  const int64_t rotated = config_.ropes[rope].rotary_dim;
  return {.x = x.data + dim - rotated,
          .ld = x.width,
          .m = num_rows_,
          .heads = heads,
          .head_dim = dim,
          .rotary_dim = rotated,
          .positions = positions(),
          .cos = model_.ropes_[rope].cos.data(),
          .sin = model_.ropes_[rope].sin.data(),
          .interleaved = true};
}

void Transformer::Ops::WriteCompressedKv(size_t layer) {
  const CpuDecoderWeights::Layer& w = model_.weights_.layers[layer];
  const Activations &qkv = buffers_.qkv, &latents = buffers_.latents;
  const int64_t q_rank = config_.compression->q_rank, dim = config_.head_dim;
  kernels::NormalizeArgs of_latents = Norm(latents, w.norm(NormRole::kQ), latents);
  of_latents.dim = q_rank;
  remembered_.Add(of_latents);
  RunLinear(LayerLinear{layer, LinearRole::kQueryUp}, latents, qkv);
  const Activations keys{.data = qkv.data + config_.q_size(), .width = qkv.width};
  RowSteps steps;
  steps.Add(kernels::MoveHeadsArgs{.from = latents.data + q_rank,
                                   .ld_from = latents.width,
                                   .to = keys.data,
                                   .ld_to = keys.width,
                                   .to_step = dim,
                                   .m = num_rows_,
                                   .heads = 1,
                                   .n = dim});
  kernels::NormalizeArgs of_queries = Norm(qkv, w.norm(NormRole::kQueryHeads), qkv);
  of_queries.groups = config_.num_heads;
  of_queries.dim = dim;
  steps.Add(of_queries);
  kernels::NormalizeArgs of_keys = Norm(keys, w.norm(NormRole::kK), keys);
  of_keys.dim = dim;
  steps.Add(of_keys);
  steps.Add(RopeOfEnds(layer, qkv, config_.num_heads + 1, dim));  // the key is behind the queries
  steps.Add(kernels::WriteKvStep{.kv = &model_.kv_.layer(layer),
                                 .rows = {.k = keys.data,
                                          .ldk = keys.width,
                                          .v = keys.data,
                                          .ldv = keys.width,
                                          .m = num_rows_,
                                          .slots = model_.slots_.data()}});
  kernels::RunRows(model_.cpu_, steps.span());
  if (config_.layers[layer].tokens_per_entry > 0) WriteEntries(layer);
}

// Of entries, or of those of the index.
struct Transformer::Ops::EntryParts {
  int64_t column;  // of what a token leaves
  int64_t channels;
  int64_t dim;
  VectorRole bias;
  NormRole norm;
  const kernels::KvPages& pages;
  const Activations& rows;
};

void Transformer::Ops::MakeEntries(size_t layer, const EntryParts& parts) {
  const CpuDecoderWeights::Layer& w = model_.weights_.layers[layer];
  const LayerConfig& of_layer = config_.layers[layer];
  const EndingWindows& windows = model_.WindowsOf(of_layer);
  const int64_t count = std::ssize(windows.ends);
  kernels::Compress(model_.cpu_, {.tokens = &model_.kv_.token_rows(layer),
                                  .numbers = parts.column,
                                  .weights = parts.column + parts.channels,
                                  .dim = parts.dim,
                                  .num_tokens = of_layer.tokens_per_entry,
                                  .overlaps = of_layer.chooses_entries,
                                  .bias = w.vector(parts.bias),
                                  .ends = windows.ends.data(),
                                  .num_ends = count,
                                  .out = parts.rows.data,
                                  .ldo = parts.rows.width});
  kernels::NormalizeArgs norm = Norm(parts.rows, w.norm(parts.norm), parts.rows);
  norm.dim = parts.dim;
  norm.m = count;
  kernels::RopeArgs rope = RopeOfEnds(layer, parts.rows, 1, parts.dim);
  rope.m = count;
  rope.positions = windows.first_positions.data();
  RowSteps steps;
  steps.Add(norm);
  steps.Add(rope);
  steps.Add(kernels::WriteKvStep{.kv = &parts.pages,
                                 .rows = {.k = parts.rows.data,
                                          .ldk = parts.rows.width,
                                          .v = parts.rows.data,
                                          .ldv = parts.rows.width,
                                          .m = count,
                                          .slots = windows.slots.data()}});
  kernels::RunRows(model_.cpu_, steps.span());
}

void Transformer::Ops::WriteEntries(size_t layer) {
  const LayerConfig& of_layer = config_.layers[layer];
  const Activations rows{.data = buffers_.token_rows.data,
                         .width = config_.token_row_size(of_layer)};
  RunLinear(LayerLinear{layer, LinearRole::kTokenRows}, *input_, rows);
  kernels::WriteTokenRows(
      model_.cpu_, model_.kv_.token_rows(layer),
      {.x = rows.data, .ldx = rows.width, .m = num_rows_, .slots = model_.slots_.data()});
  const int64_t channels = config_.entry_channels(of_layer);
  if (!model_.WindowsOf(of_layer).ends.empty()) {
    MakeEntries(layer, {.column = 0,
                        .channels = channels,
                        .dim = config_.head_dim,
                        .bias = VectorRole::kEntryBias,
                        .norm = NormRole::kEntries,
                        .pages = model_.kv_.entries(layer),
                        .rows = buffers_.entries});
    if (of_layer.chooses_entries) {
      MakeEntries(layer, {.column = 2 * channels,
                          .channels = config_.index_channels(),
                          .dim = config_.compression->index.head_dim,
                          .bias = VectorRole::kIndexEntryBias,
                          .norm = NormRole::kIndexEntries,
                          .pages = model_.kv_.index(layer),
                          .rows = buffers_.index_entries});
    }
  }
  if (of_layer.chooses_entries && !model_.choosing_rows_.empty()) ChooseEntries(layer);
}

void Transformer::Ops::ChooseEntries(size_t layer) {
  const CpuDecoderWeights::Layer& w = model_.weights_.layers[layer];
  const KeyChoiceConfig& index = config_.compression->index;
  RunLinear(w.linear(LinearRole::kIndexWeights), *input_, buffers_.index_weights);
  RunLinear(w.linear(LinearRole::kIndexQueries), buffers_.latents, buffers_.index_queries);
  remembered_.Add(RopeOfEnds(layer, buffers_.index_queries, index.num_heads, index.head_dim));
  RunRemembered();
  kernels::ChooseKeys(model_.cpu_, model_.choice_shape_, model_.kv_.index(layer),
                      {.q = buffers_.index_queries.data,
                       .ldq = buffers_.index_queries.width,
                       .weights = buffers_.index_weights.data,
                       .ld_weights = buffers_.index_weights.width,
                       .rows = model_.choosing_rows_,
                       .workspace = buffers_.choice_workspace,
                       .chosen = model_.chosen_.data()});
}

void Transformer::Ops::AttendToEntries(size_t layer, kernels::AttentionArgs args) {
  const LayerConfig& of_layer = config_.layers[layer];
  const kernels::KvPages& pages = model_.kv_.layer(layer);
  const auto attend = [&](std::span<const kernels::AttentionSequence> rows, const int32_t* chosen) {
    kernels::AttendToEntries(model_.cpu_, model_.WindowsOf(of_layer).shape, pages, args,
                             {.rows = rows,
                              .entries = &model_.kv_.entries(layer),
                              .chosen = chosen,
                              .workspace = buffers_.entry_workspace});
  };
  if (of_layer.tokens_per_entry == 0) {
    kernels::PagedAttention(model_.cpu_, pages, args);
  } else if (of_layer.chooses_entries) {
    attend(model_.other_rows_, nullptr);
    attend(model_.choosing_rows_, model_.chosen_.data());
  } else {
    attend(model_.single_rows_, nullptr);
  }
  // Values are rotated as keys are, which is undone by their distance from the row.
  kernels::RopeArgs undo =
      RopeOfEnds(layer, buffers_.attention, config_.num_heads, config_.head_dim);
  undo.backward = true;
  remembered_.Add(undo);
  RunRemembered();
}

void Transformer::Ops::MakeGroups(size_t layer) {
  const CompressionConfig& compression = *config_.compression;
  RunHeads(model_.group_matrices_[layer], {.x = buffers_.attention.data,
                                           .ldx = buffers_.attention.width,
                                           .x_step = config_.q_size() / compression.out_groups,
                                           .m = num_rows_,
                                           .y = buffers_.values.data,
                                           .ldy = buffers_.values.width,
                                           .y_step = compression.out_rank,
                                           .workspace = buffers_.linear_inputs.data});
}

}  // namespace mlc_native
