// A choice of keys on the CPU's kernels: what the index computes of the rows, and which rows have
// more keys than they attend to.
#include <algorithm>

#include "models/transformer_ops.h"

namespace mlc_native {

// Rows with few keys come first in each sequence.
void Transformer::PlaceChoosingRows(const ForwardBatch& batch) {
  choosing_rows_.clear();
  other_rows_.clear();
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    const kernels::AttentionSequence& sequence = sequences_[i];
    const int64_t num_others = std::clamp<int64_t>(
        config_.key_choice->num_chosen - sequence.first_position, 0, sequence.num_rows);
    if (num_others > 0) other_rows_.emplace_back(sequence).num_rows = num_others;
    for (int64_t row = num_others; row < sequence.num_rows; ++row) {
      choosing_rows_.push_back({.row_begin = sequence.row_begin + row,
                                .num_rows = 1,
                                .first_position = sequence.first_position + row,
                                .block_table = sequence.block_table});
    }
  }
}

// Keys are written even where nothing is chosen: later rows read them.
void Transformer::Ops::ChooseKeys(size_t layer) {
  const KeyChoiceConfig& choice = *config_.key_choice;
  if (!model_.ChoosesKeys()) return;
  const auto& w = model_.weights_.layers[layer];
  RunLinear(w.linear(LinearRole::kIndexKeys), *input_, buffers_.index_keys);
  kernels::NormalizeArgs norm =
      Norm(buffers_.index_keys, w.norm(NormRole::kIndexKeys), buffers_.index_keys);
  norm.subtract_mean = true;
  norm.weight_offset = 0;
  norm.eps = kIndexNormEps;
  norm.dim = choice.head_dim;
  const auto rope = static_cast<size_t>(config_.layers[layer].rope);
  kernels::RopeArgs rotate{.x = buffers_.index_keys.data,
                           .ld = buffers_.index_keys.width,
                           .m = num_rows_,
                           .heads = 1,
                           .head_dim = choice.head_dim,
                           .rotary_dim = config_.ropes[rope].rotary_dim,
                           .positions = positions(),
                           .cos = model_.ropes_[rope].cos.data(),
                           .sin = model_.ropes_[rope].sin.data(),
                           .interleaved = config_.arch->key_choice.interleaved_rope};
  RowSteps steps;
  steps.Add(norm);
  steps.Add(rotate);
  steps.Add(kernels::WriteKvStep{.kv = &model_.kv_.index(layer),
                                 .rows = {.k = buffers_.index_keys.data,
                                          .ldk = buffers_.index_keys.width,
                                          .v = buffers_.index_keys.data,
                                          .ldv = buffers_.index_keys.width,
                                          .m = num_rows_,
                                          .slots = model_.slots_.data()}});
  kernels::RunRows(model_.cpu_, steps.span());
  if (!HasChosenKeys()) return;
  RunLinear(w.linear(LinearRole::kIndexWeights), *input_, buffers_.index_weights);
  RunLinear(w.linear(LinearRole::kIndexQueries), buffers_.latents, buffers_.index_queries);
  rotate.x = buffers_.index_queries.data;
  rotate.ld = buffers_.index_queries.width;
  rotate.heads = choice.num_heads;
  remembered_.Add(rotate);
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

}  // namespace mlc_native
