#include "models/transformer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <utility>

#include "models/batch_check.h"
#include "support/check.h"
#include "support/half.h"

namespace mlc_native {
namespace {

// Long enough to amortize reading the weights, short enough that decoding rows which share the step
// do not wait long.
constexpr int64_t kPrefillChunk = 512;

float RoundTo(DType dtype, float value) {
  float stored = 0;
  StoreElement(dtype, &stored, 0, value);
  return LoadElement(dtype, &stored, 0);
}

// Floats per row of what attention and the feed-forward block work on, one after the other.
int64_t BlockWidth(const ModelConfig& config) {
  return std::max(config.qkv_size() + config.q_size(), 2 * config.ffn_size);
}

// Floats of the workspace of a linear, per row.
int64_t LinearInputWidth(const ModelConfig& config) {
  const int64_t k = std::max({config.hidden_size, config.q_size(), config.ffn_size});
  return static_cast<int64_t>(kernels::LinearWorkspaceBytes(1, k) / sizeof(float));
}

}  // namespace

Transformer::Transformer(ModelConfig config, DecoderWeights weights, kernels::KvFormat kv_format,
                         const kernels::CpuKernels& isa, std::unique_ptr<ThreadPool> pool)
    : config_(std::move(config)),
      weights_(std::move(weights)),
      kv_format_(kv_format),
      pool_(std::move(pool)),
      cpu_{&isa, pool_.get()} {
  if (config_.arch->scales_embeddings) {
    embedding_scale_ = RoundTo(
        weights_.dtype, static_cast<float>(std::sqrt(static_cast<double>(config_.hidden_size))));
  }
  DescribeMetadata();
}

void Transformer::DescribeMetadata() {
  metadata_.vocab_size = config_.vocab_size;
  metadata_.context_window_size = config_.max_positions;
  metadata_.preferred_prefill_chunk_size = kPrefillChunk;
  metadata_.weight_bytes = static_cast<int64_t>(weights_.memory.size);
  metadata_.mapped_weight_bytes = weights_.memory.mapped ? metadata_.weight_bytes : 0;
  metadata_.kv_bytes_per_token = KvStorage::BytesPerToken(config_, kv_format_);
  const int64_t widths = 2 * config_.hidden_size + BlockWidth(config_) + LinearInputWidth(config_);
  metadata_.workspace_bytes_per_token =
      widths * static_cast<int64_t>(sizeof(float)) +
      static_cast<int64_t>(sizeof(int32_t) + sizeof(int64_t) + sizeof(kernels::AttentionSequence));
  metadata_.workspace_bytes_per_sequence = config_.vocab_size * static_cast<int64_t>(sizeof(float));
}

void Transformer::Allocate(int64_t num_pages, int64_t max_num_rows, int64_t max_num_logits) {
  MLC_CHECK(num_pages > 0 && max_num_rows > 0 && max_num_logits > 0)
      << num_pages << " pages, " << max_num_rows << " rows, " << max_num_logits << " logits rows";
  kv_ = KvStorage(config_, kv_format_, num_pages);
  num_positions_ = std::min(config_.max_positions, num_pages * kKvPageSize);
  ropes_.clear();
  for (const RopeConfig& rope : config_.ropes) {
    ropes_.push_back(MakeRopeTable(rope, num_positions_));
  }

  Activations block;
  struct Wanted {
    Activations* activations;
    int64_t rows;
    int64_t width;
  };
  const Wanted wanted[] = {
      {&residual_, max_num_rows, config_.hidden_size},
      {&hidden_, max_num_rows, config_.hidden_size},
      {&block, max_num_rows, BlockWidth(config_)},
      {&linear_inputs_, std::max(max_num_rows, max_num_logits), LinearInputWidth(config_)},
      {&logits_, max_num_logits, config_.vocab_size},
  };
  size_t bytes = kernels::AttentionWorkspaceBytes(pool_->num_threads(), config_.num_heads,
                                                  config_.num_kv_heads, config_.head_dim);
  const size_t attention_bytes = kernels::AlignUp(bytes);
  bytes = attention_bytes;
  for (const Wanted& w : wanted)
    bytes += kernels::AlignUp(static_cast<size_t>(w.rows * w.width) * sizeof(float));
  workspace_ = TensorStorage(bytes, "prefill_chunk_size");
  std::byte* data = workspace_.data();
  attention_workspace_ = data;
  data += attention_bytes;
  for (const Wanted& w : wanted) {
    *w.activations = {reinterpret_cast<float*>(data), w.width};
    data += kernels::AlignUp(static_cast<size_t>(w.rows * w.width) * sizeof(float));
  }
  // In the same memory, so that a long chunk's activations stay in the last-level cache.
  ffn_ = {block.data, 2 * config_.ffn_size};
  qkv_ = {block.data, config_.qkv_size()};
  attention_ = {block.data + max_num_rows * qkv_.width, config_.q_size()};
  max_num_rows_ = max_num_rows;
  max_num_logits_ = max_num_logits;
  positions_.resize(static_cast<size_t>(max_num_rows));
  slots_.resize(static_cast<size_t>(max_num_rows));
  sequences_.resize(static_cast<size_t>(max_num_rows));
}

void Transformer::CopyPages(std::span<const PageCopy> copies) { kv_.CopyPages(copies); }

// ---- Forward ----

LogitsView Transformer::Forward(const ForwardBatch& batch) {
  CheckBatch(batch, {.max_num_rows = max_num_rows_,
                     .max_num_logits = max_num_logits_,
                     .num_positions = num_positions_});
  MLC_CHECK(std::ranges::is_sorted(batch.logits_rows, std::ranges::less_equal()))
      << "logits rows are not ascending";
  num_rows_ = static_cast<int64_t>(batch.token_ids.size());
  PlacePositions(batch);
  Embed(batch);
  const size_t last = weights_.layers.size() - 1;
  for (size_t layer = 0; layer <= last; ++layer) {
    Attention(layer, static_cast<int64_t>(batch.sequences.size()));
    // Past the last keys and values, only rows whose logits are wanted matter.
    if (layer == last) {
      if (batch.logits_rows.empty()) return {logits_.data, 0, config_.vocab_size};
      KeepRows(batch.logits_rows);
    }
    Project(weights_.layers[layer], Matrix::kOut, attention_, hidden_, {});
    FeedForward(layer);
  }
  return Head();
}

void Transformer::PlacePositions(const ForwardBatch& batch) {
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    const SequenceSlice& s = batch.sequences[i];
    sequences_[i] = {.row_begin = s.first_row,
                     .num_rows = s.num_tokens,
                     .first_position = s.position,
                     .block_table = s.block_table.data()};
    for (int32_t j = 0; j < s.num_tokens; ++j) {
      const int64_t position = s.position + j;
      const auto row = static_cast<size_t>(s.first_row + j);
      const int64_t page = s.block_table[static_cast<size_t>(position / kKvPageSize)];
      positions_[row] = static_cast<int32_t>(position);
      slots_[row] = page * kKvPageSize + position % kKvPageSize;
    }
  }
}

void Transformer::Embed(const ForwardBatch& batch) {
  const kernels::GatherArgs args{.ids = batch.token_ids.data(),
                                 .m = num_rows_,
                                 .scale = embedding_scale_,
                                 .out = residual_.data,
                                 .ldo = residual_.width};
  if (weights_.embeddings.data == nullptr) {
    kernels::GatherPackedRows(cpu_, weights_.head, args);
  } else {
    kernels::GatherRows(cpu_, weights_.embeddings, args);
  }
}

void Transformer::Project(const LayerWeights& layer, Matrix matrix, const Activations& x,
                          const Activations& y, const Steps& before) const {
  kernels::Linear(cpu_, layer.matrix(matrix),
                  {.x = x.data,
                   .ldx = x.width,
                   .m = num_rows_,
                   .bias = layer.bias(matrix),
                   .y = y.data,
                   .ldy = y.width,
                   .workspace = linear_inputs_.data},
                  before.span());
}

kernels::RmsNormArgs Transformer::Norm(const Activations& x, const float* weight,
                                       const Activations& y) const {
  return {.x = x.data,
          .ldx = x.width,
          .y = y.data,
          .ldy = y.width,
          .weight = weight,
          .weight_offset = config_.norm_weight_offset,
          .eps = config_.rms_norm_eps,
          .m = num_rows_,
          .groups = 1,
          .dim = config_.hidden_size};
}

kernels::RmsNormArgs Transformer::HeadNorm(const float* weight, float* x, int64_t heads) const {
  const Activations rows{.data = x, .width = qkv_.width};
  kernels::RmsNormArgs norm = Norm(rows, weight, rows);
  const bool whole = config_.arch->qk_norm == QkNorm::kWholeProjection;
  norm.groups = whole ? 1 : heads;
  norm.dim = whole ? heads * config_.head_dim : config_.head_dim;
  return norm;
}

void Transformer::Join(const float* post_norm, const float* pre_norm, Steps* steps) const {
  if (post_norm == nullptr) {
    MLC_CHECK(pre_norm != nullptr) << "neither a norm after the block nor one before the next";
    kernels::RmsNormArgs norm = Norm(hidden_, pre_norm, hidden_);
    norm.residual = residual_.data;
    norm.ld_residual = residual_.width;
    return steps->Add(norm);
  }
  kernels::RmsNormArgs norm = Norm(hidden_, post_norm, residual_);
  norm.accumulate = true;
  steps->Add(norm);
  if (pre_norm != nullptr) steps->Add(Norm(residual_, pre_norm, hidden_));
}

// attention_ = softmax(q k^T) v of the layer's input, whose keys and values go to their pages.
void Transformer::Attention(size_t layer, int64_t num_sequences) {
  const LayerWeights& w = weights_.layers[layer];
  const float* pre_norm = w.vector(Vector::kPreAttentionNorm);
  Steps before;
  if (layer > 0) {
    Join(weights_.layers[layer - 1].vector(Vector::kPostFfnNorm), pre_norm, &before);
  } else if (pre_norm != nullptr) {
    before.Add(Norm(residual_, pre_norm, hidden_));
  }
  Project(w, Matrix::kQkv, InputAfter(pre_norm), qkv_, before);
  RotateAndWriteKv(layer);
  kernels::PagedAttention(cpu_, kv_.layer(layer),
                          {.q = qkv_.data,
                           .ldq = qkv_.width,
                           .out = attention_.data,
                           .ldo = attention_.width,
                           .q_heads = config_.num_heads,
                           .scale = config_.attention_scale,
                           .soft_cap = config_.attention_soft_cap,
                           .window = config_.layers[layer].window,
                           .sequences = sequences_.data(),
                           .num_sequences = num_sequences,
                           .workspace = attention_workspace_});
}

void Transformer::RotateAndWriteKv(size_t layer) {
  const LayerWeights& w = weights_.layers[layer];
  const auto rope = static_cast<size_t>(config_.layers[layer].rope);
  float* k = qkv_.data + config_.q_size();
  Steps steps;
  if (config_.arch->qk_norm != QkNorm::kNone) {
    steps.Add(HeadNorm(w.vector(Vector::kQNorm), qkv_.data, config_.num_heads));
    steps.Add(HeadNorm(w.vector(Vector::kKNorm), k, config_.num_kv_heads));
  }
  steps.Add(kernels::RopeArgs{.x = qkv_.data,
                              .ld = qkv_.width,
                              .m = num_rows_,
                              .heads = config_.num_heads + config_.num_kv_heads,  // side by side
                              .head_dim = config_.head_dim,
                              .rotary_dim = config_.ropes[rope].rotary_dim,
                              .positions = positions_.data(),
                              .cos = ropes_[rope].cos.data(),
                              .sin = ropes_[rope].sin.data()});
  steps.Add(kernels::WriteKvStep{.kv = &kv_.layer(layer),
                                 .rows = {.k = k,
                                          .ldk = qkv_.width,
                                          .v = k + config_.kv_size(),
                                          .ldv = qkv_.width,
                                          .m = num_rows_,
                                          .slots = slots_.data()}});
  kernels::RunRows(cpu_, steps.span());
}

void Transformer::FeedForward(size_t layer) {
  const LayerWeights& w = weights_.layers[layer];
  const float* pre_norm = w.vector(Vector::kPreFfnNorm);
  Steps join, activate;
  Join(w.vector(Vector::kPostAttentionNorm), pre_norm, &join);
  Project(w, Matrix::kGateUp, InputAfter(pre_norm), ffn_, join);
  activate.Add(kernels::GatedActivationArgs{.activation = config_.activation,
                                            .x = ffn_.data,
                                            .ldx = ffn_.width,
                                            .out = ffn_.data,
                                            .ldo = ffn_.width,
                                            .m = num_rows_,
                                            .ffn = config_.ffn_size});
  Project(w, Matrix::kDown, ffn_, hidden_, activate);
}

// Moves these rows of the residual and of attention's output to the front and forgets the others.
void Transformer::KeepRows(std::span<const int32_t> rows) {
  for (const Activations& a : {residual_, attention_}) {
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto to = static_cast<int64_t>(i);
      if (rows[i] == to) continue;
      std::memcpy(a.data + to * a.width, a.data + rows[i] * a.width,
                  static_cast<size_t>(a.width) * sizeof(float));
    }
  }
  num_rows_ = static_cast<int64_t>(rows.size());
}

LogitsView Transformer::Head() {
  Steps join;
  Join(weights_.layers.back().vector(Vector::kPostFfnNorm), weights_.final_norm, &join);
  kernels::Linear(cpu_, weights_.head,
                  {.x = hidden_.data,
                   .ldx = hidden_.width,
                   .m = num_rows_,
                   .y = logits_.data,
                   .ldy = logits_.width,
                   .workspace = linear_inputs_.data},
                  join.span());
  if (config_.final_soft_cap > 0) {
    kernels::SoftCap(cpu_, {logits_.data, logits_.width, num_rows_, logits_.width},
                     config_.final_soft_cap);
  }
  return {.data = logits_.data, .num_rows = num_rows_, .vocab_size = config_.vocab_size};
}

}  // namespace mlc_native
