// Transformer::Forward, and the operations of a layer on the CPU's kernels.
#include <algorithm>
#include <cmath>

#include "models/batch_check.h"
#include "models/run_layers.h"
#include "models/transformer_ops.h"
#include "support/check.h"
#include "support/error.h"

namespace mlc_native {
namespace {

float Softplus(float x) { return std::max(x, 0.0f) + std::log1p(std::exp(-std::abs(x))); }

}  // namespace

LogitsView Transformer::Forward(const ForwardBatch& batch) {
  CheckBatch(batch, {.max_num_rows = max_num_rows_,
                     .max_num_logits = max_num_logits_,
                     .num_positions = num_positions_,
                     .num_streams = std::ssize(config_.layers) + 2,
                     .hidden_size = config_.hidden_size,
                     .draft_input_size = config_.draft_input_size()});
  MLC_CHECK(std::ranges::is_sorted(batch.logits_rows, std::ranges::less_equal()))
      << "logits rows are not ascending";
  if (weights_.memory.lost != nullptr && *weights_.memory.lost) {
    throw LoadError("weight_cache_dir",
                    "The file of the weights was cut short by another process before it could be "
                    "copied; load the model again");
  }
  PlacePositions(batch);
  PlaceRopes(batch);
  adapter_rows_.Place(batch.sequences, weights_.adapter_targets.get());
  if (config_.has_states()) CheckRecurrentSlots(batch);
  if (config_.key_choice) PlaceChoosingRows(batch);
  if (config_.compression) PlaceEntryRows(batch);
  ChooseLastRows(batch);
  Ops ops(*this, batch);
  RunLayers(weights_, ops);
  return ops.logits();
}

void Transformer::PlacePositions(const ForwardBatch& batch) {
  sequences_.clear();
  int64_t last_page = 0;
  for (const SequenceSlice& s : batch.sequences) {
    AddSequences(batch, s);
    for (int32_t j = 0; j < s.num_tokens; ++j) {
      const int64_t position = s.position + j;
      const size_t row = static_cast<size_t>(s.first_row) + static_cast<size_t>(j);
      const int64_t page = s.block_table[static_cast<size_t>(position / kKvPageSize)];
      positions_[row] = static_cast<int32_t>(position);
      if (!text_types_.empty()) text_types_[row] = config_.TextTypeOf(s.IsOfSecondText(position));
      slots_[row] = page * kKvPageSize + position % kKvPageSize;
      last_page = std::max(last_page, page);
    }
  }
  kv_.Expect(last_page);
}

void Transformer::Ops::Embed() {
  if (config_.draft_head) return JoinTokensAndStates();
  GatherEmbeddings(buffers_.residual);
  if (config_.layer_inputs) MakeLayerInputs();
  if (config_.residual_streams || config_.hyper_connections) SpreadStreams();
}

void Transformer::Ops::GatherEmbeddings(const Activations& out) {
  const kernels::GatherArgs args{.ids = batch_.token_ids.data(),
                                 .m = num_rows_,
                                 .scale = config_.EmbeddingScale(model_.weights_.dtype),
                                 .out = out.data,
                                 .ldo = out.width};
  const CpuDecoderWeights& weights = model_.weights_;
  if (weights.embeddings.data == nullptr) {
    kernels::GatherPackedRows(model_.cpu_, weights.packed_embeddings, args);
  } else {
    kernels::GatherRows(model_.cpu_, weights.embeddings, args);
  }
  PlaceInputRows(out);
  const auto add = [&](const kernels::RowTable& table, const int32_t* ids) {
    if (table.data == nullptr) return;
    kernels::GatherRows(
        model_.cpu_, table,
        {.ids = ids, .m = num_rows_, .out = out.data, .ldo = out.width, .adds = true});
  };
  add(weights.text_types, model_.text_types_.data());
  add(weights.positions, positions());
}

// ---- Norms ----

kernels::NormalizeArgs Transformer::Ops::Norm(const Activations& x, const float* weight,
                                              const Activations& y) const {
  return {.x = x.data,
          .ldx = x.width,
          .y = y.data,
          .ldy = y.width,
          .weight = weight,
          .weight_offset = config_.norm_weight_offset,
          .eps = config_.norm_eps,
          .m = num_rows_,
          .groups = 1,
          .dim = config_.hidden_size};
}

kernels::NormalizeArgs Transformer::Ops::Norm(const Activations& x,
                                              const NormWeights<const float*>& norm,
                                              const Activations& y) const {
  kernels::NormalizeArgs args = Norm(x, norm.weight, y);
  args.bias = norm.bias;
  args.subtract_mean = config_.norm_kind == NormKind::kLayer;
  return args;
}

kernels::NormalizeArgs Transformer::HeadNorm(const float* weight, const Activations& x,
                                             int64_t num_rows, const Heads& heads) const {
  const bool whole = config_.qk_norm == QkNorm::kWholeProjection;
  return {.x = x.data,
          .ldx = x.width,
          .y = x.data,
          .ldy = x.width,
          .weight = weight,
          .ld_weight = config_.qk_norm == QkNorm::kPerHeadOwnWeight ? heads.dim : 0,
          .weight_offset = config_.norm_weight_offset,
          .eps = config_.norm_eps,
          .m = num_rows,
          .groups = whole ? 1 : heads.count,
          .dim = whole ? heads.count * heads.dim : heads.dim,
          .subtract_mean = config_.norm_kind == NormKind::kLayer};
}

kernels::NormalizeArgs Transformer::Ops::HeadNorm(const float* weight, float* x, int64_t heads,
                                                  int64_t head_dim) const {
  return model_.HeadNorm(weight, {x, buffers_.qkv.width}, num_rows_, {heads, head_dim});
}

void Transformer::Ops::NormalizeWithin(size_t layer, NormRole role, const Activations& x) {
  const NormWeights<const float*>& norm = model_.weights_.layers[layer].norm(role);
  if (norm.weight == nullptr) return;
  kernels::NormalizeArgs args = Norm(x, norm, x);
  args.dim = config_.norm_within_size(config_.layers[layer], role);
  remembered_.Add(args);
}

void Transformer::Ops::Normalize(const NormWeights<const float*>& pre_norm) {
  if (pre_norm.weight == nullptr) {
    input_ = config_.attends_to_joined() ? &buffers_.joined : &buffers_.residual;
    return;
  }
  const Activations& out = pre_norm.gives_residual ? buffers_.residual : buffers_.hidden;
  kernels::NormalizeArgs norm = Norm(buffers_.residual, pre_norm, out);
  norm.eps = config_.residual_norm_eps;
  remembered_.Add(norm);
  input_ = &out;
}

void Transformer::Ops::AddAndNormalize(const NormWeights<const float*>& post_norm,
                                       const NormWeights<const float*>& pre_norm) {
  if (post_norm.weight != nullptr) {
    AddOutput(post_norm);
    return Normalize(pre_norm);
  }
  if (pre_norm.weight == nullptr) {
    AddAndKeepInput();
    return Normalize(pre_norm);
  }
  const Activations& out = pre_norm.gives_residual ? buffers_.residual : buffers_.hidden;
  kernels::NormalizeArgs norm = Norm(buffers_.output, pre_norm, out);
  norm.residual = buffers_.residual.data;
  norm.ld_residual = buffers_.residual.width;
  norm.eps = config_.residual_norm_eps;
  remembered_.Add(norm);
  input_ = &out;
}

void Transformer::Ops::AddOutput(const NormWeights<const float*>& norm) {
  if (norm.weight == nullptr) return AddAndKeepInput();
  kernels::NormalizeArgs add = Norm(buffers_.output, norm, buffers_.residual);
  add.accumulate = true;
  remembered_.Add(add);
}

void Transformer::Ops::ScaleResidual(size_t layer) {
  remembered_.Add(
      kernels::ScaleArgs{.x = buffers_.residual.data,
                         .ld = buffers_.residual.width,
                         .m = num_rows_,
                         .n = config_.hidden_size,
                         .scales = model_.weights_.layers[layer].vector(VectorRole::kLayerScale)});
}

void Transformer::Ops::AddAndKeepInput() {
  remembered_.Add(kernels::AddArgs{.x = buffers_.output.data,
                                   .ldx = buffers_.output.width,
                                   .sum = buffers_.residual.data,
                                   .ld_sum = buffers_.residual.width,
                                   .m = num_rows_,
                                   .n = config_.hidden_size});
}

// ---- Activations, and the head ----

void Transformer::Ops::ActivateRows(const Activations& x, int64_t ffn, int64_t num_rows) {
  kernels::ActivateArgs args{.activation = config_.activation,
                             .gated = !config_.arch->plain_ffn,
                             .x = x.data,
                             .ldx = x.width,
                             .out = x.data,
                             .ldo = x.width,
                             .m = num_rows,
                             .ffn = ffn};
  if (config_.experts->swiglu_limit > 0) {
    args.activation = config_.experts->limits_silu ? kernels::Activation::kClampedSilu
                                                   : kernels::Activation::kClampedSwiGlu;
    args.sharpness = config_.experts->swiglu_sharpness;
    args.limit = config_.experts->swiglu_limit;
  }
  remembered_.Add(args);
}

void Transformer::Ops::Activate(size_t layer) {
  kernels::ActivateArgs args{.activation = config_.activation,
                             .gated = !config_.arch->plain_ffn,
                             .x = buffers_.ffn.data,
                             .ldx = buffers_.ffn.width,
                             .out = buffers_.ffn.data,
                             .ldo = buffers_.ffn.width,
                             .m = num_rows_,
                             .ffn = config_.ffn_size_of(config_.layers[layer])};
  if (const std::optional<float>& cut = config_.layers[layer].gate_cut) {
    remembered_.Add(kernels::CutArgs{
        .x = args.out, .ld = args.ldo, .deviations = *cut, .m = args.m, .n = args.ffn});
  }
  if (config_.activation == kernels::Activation::kXielu) {
    const float* alphas = model_.weights_.layers[layer].vector(VectorRole::kActivation);
    args.alpha_p = Softplus(alphas[0]);
    args.alpha_n = 0.5f + Softplus(alphas[1]);
  }
  remembered_.Add(args);
}

void Transformer::Ops::Head() {
  RunLinear(model_.weights_.head, *input_, buffers_.logits);
  num_logits_ = num_rows_;
  if (config_.final_soft_cap > 0) {
    const Activations& logits = buffers_.logits;
    kernels::SoftCap(model_.cpu_, {logits.data, logits.width, num_rows_, logits.width},
                     config_.final_soft_cap);
  }
}

// ---- Attention ----

void Transformer::Ops::AddHeadNorms(size_t layer, RowSteps* steps) const {
  if (config_.qk_norm == QkNorm::kNone || config_.latent) return;
  const auto& w = model_.weights_.layers[layer];
  const LayerConfig& sizes = config_.layers[layer];
  const int64_t head_dim = config_.head_dim_of(sizes);
  float* q = buffers_.qkv.data;
  if (w.norm(NormRole::kQ).weight == nullptr) return;
  steps->Add(HeadNorm(w.norm(NormRole::kQ).weight, q, config_.heads_of(sizes), head_dim));
  if (!sizes.has_own_kv()) return;
  const int64_t kv_heads = config_.kv_heads_of(sizes);
  float* const k = q + config_.q_size(sizes);
  if (const float* const of_values = w.norm(NormRole::kV).weight; of_values != nullptr) {
    kernels::NormalizeArgs norm =
        HeadNorm(of_values, k + config_.kv_size(sizes), kv_heads, head_dim);
    if (sizes.keys_are_values) norm.x = k;
    steps->Add(norm);
  }
  steps->Add(HeadNorm(w.norm(NormRole::kK).weight, k, kv_heads, head_dim));
}

void Transformer::Ops::AddRope(size_t layer, RowSteps* steps) const {
  const LayerConfig& sizes = config_.layers[layer];
  if (sizes.rope == LayerConfig::kNoRope) return;
  const auto rope = static_cast<size_t>(sizes.rope);
  const int64_t kv_heads = sizes.has_own_kv() ? config_.kv_heads_of(sizes) : 0;
  steps->Add(kernels::RopeArgs{.x = buffers_.qkv.data,
                               .ld = buffers_.qkv.width,
                               .m = num_rows_,
                               .heads = config_.heads_of(sizes) + kv_heads,  // side by side
                               .head_dim = config_.head_dim_of(sizes),
                               .rotary_dim = config_.ropes[rope].rotary_dim,
                               .positions = rope_positions(),
                               .cos = ropes()[rope].cos.data(),
                               .sin = ropes()[rope].sin.data(),
                               .interleaved = config_.arch->interleaved_rope});
}

Transformer::Activations Transformer::Ops::GatedQkv(size_t layer) const {
  const Activations& qkv = buffers_.qkv;
  return {qkv.data - config_.attention_gates_size(config_.layers[layer]), qkv.width};
}

void Transformer::Ops::GateAttention(size_t layer) {
  const Activations gates = GatedQkv(layer);
  remembered_.Add(kernels::GateArgs{.gate = gates.data,
                                    .ld_gate = gates.width,
                                    .x = buffers_.attention.data,
                                    .ldx = buffers_.attention.width,
                                    .m = num_rows_,
                                    .n = config_.q_size(config_.layers[layer]),
                                    .per_gate = config_.elements_per_gate(),
                                    .softplus = config_.arch->softplus_gates});
}

void Transformer::Ops::RotateAndWriteKv(size_t layer) {
  if (config_.compression) return WriteCompressedKv(layer);
  const Activations& qkv = buffers_.qkv;
  const LayerConfig& sizes = config_.layers[layer];
  float* k = qkv.data + config_.q_size(sizes);
  RowSteps steps;
  if (config_.latent) MakeHeads(layer, &steps);
  const bool rope_first = config_.arch->rope_before_qk_norm;
  if (!rope_first) AddHeadNorms(layer, &steps);
  AddRope(layer, &steps);
  if (config_.key_choice) AddKeysToValues(&steps);
  if (rope_first) AddHeadNorms(layer, &steps);
  if (config_.scales_queries(sizes)) {
    steps.Add(kernels::ScaleArgs{.x = qkv.data,
                                 .ld = qkv.width,
                                 .m = num_rows_,
                                 .n = config_.q_size(sizes),
                                 .positions = positions(),
                                 .scales = model_.query_scales_.data()});
  }
  if (!model_.balances_.empty()) {
    const std::vector<float>& balance = model_.balances_[layer];
    steps.Add(kernels::ScaleArgs{
        .x = qkv.data,
        .ld = qkv.width,
        .m = num_rows_,
        .n = config_.q_size(sizes) + (sizes.has_own_kv() ? config_.kv_size(sizes) : 0),
        .scales = balance.data(),
        .by_column = true});
  }
  if (sizes.has_own_kv()) {
    steps.Add(kernels::WriteKvStep{.kv = &model_.kv_.layer(layer),
                                   .rows = {.k = k,
                                            .ldk = qkv.width,
                                            .v = k + config_.kv_size(sizes),
                                            .ldv = qkv.width,
                                            .m = num_rows_,
                                            .slots = model_.slots_.data()}});
  }
  kernels::RunRows(model_.cpu_, steps.span());
}

void Transformer::Ops::Attend(size_t layer) {
  std::span<const kernels::AttentionSequence> sequences =
      has_last_rows_ ? std::span(model_.last_sequences_) : std::span(model_.sequences_);
  if (config_.key_choice) sequences = model_.other_rows_;
  const kernels::AttentionArgs args{
      .q = buffers_.qkv.data,
      .ldq = buffers_.qkv.width,
      .out = buffers_.attention.data,
      .ldo = buffers_.attention.width,
      .q_heads = config_.heads_of(config_.layers[layer]),
      .scale = config_.attention_scale,
      .soft_cap = config_.attention_soft_cap,
      .window = config_.layers[layer].window,
      .bias = model_.distance_bias(),
      .vectors = model_.distance_vectors(layer),
      .sinks = model_.weights_.layers[layer].vector(VectorRole::kSinks),
      .value_columns = config_.latent ? config_.latent->kv_rank : 0,
      .sequences = sequences.data(),
      .num_sequences = std::ssize(sequences),
      .workspace = buffers_.attention_workspace};
  if (config_.compression) return AttendToEntries(layer, args);
  kernels::PagedAttention(model_.cpu_, model_.kv_.layer(layer), args);
  if (!HasChosenKeys()) return;
  kernels::AttendToChosen(model_.cpu_, model_.choice_shape_, model_.kv_.layer(layer), args,
                          {.rows = model_.choosing_rows_,
                           .chosen = model_.chosen_.data(),
                           .workspace = buffers_.choice_workspace});
}

}  // namespace mlc_native
