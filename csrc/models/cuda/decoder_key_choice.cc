// CudaDecoder: a choice of keys, as launches of the CUDA kernels: what the index computes of the
// rows, and which keys they attend to.
#include "kernels/cuda/experts.h"
#include "kernels/cuda/key_choice.h"
#include "models/cuda/decoder_ops.h"

namespace mlc_native {

using namespace kernels::cuda;  // NOLINT: the vocabulary of this file

void CudaDecoder::Ops::ChooseKeys(size_t layer) {
  const KeyChoiceConfig& choice = *config_.key_choice;
  const auto& w = weights_.layers[layer];
  LaunchLinear(LinearArgs(w.linear(LinearRole::kIndexKeys), input_, buffers_.index_keys));
  GemvArgs queries = LinearArgs(w.linear(LinearRole::kIndexQueries), buffers_.latents,
                                buffers_.index_queries);
  queries.ldx = LatentRow(config_);
  LaunchLinear(queries);
  const CudaMatrix& weights = w.linear(LinearRole::kIndexWeights).matrix;
  RouterLogits({.dtype = weights_.dtype,
                .weight = static_cast<const float*>(weights.data),
                .n = weights.n,
                .k = weights.k,
                .x = input_,
                .ldx = weights.k,
                .m = num_rows_,
                .logits = buffers_.index_weights,
                .ld = weights.n},
               stream_);
  const RopeOfLayer rope = RopeOf(layer);
  const Norm& norm = w.norm(NormRole::kIndexKeys);
  const KvPages& index = decoder_.indices_[layer];
  WriteIndex(index,
             {.dtype = weights_.dtype,
              .queries = buffers_.index_queries,
              .heads = choice.num_heads,
              .keys = buffers_.index_keys,
              .norm_weight = norm.weight,
              .norm_bias = norm.bias,
              .eps = kIndexNormEps,
              .m = num_rows_,
              .rotary_dim = rope.rotary_dim,
              .positions = rows_.positions,
              .slots = rows_.slots,
              .cos = rope.tables.cos,
              .sin = rope.tables.sin,
              .interleaved = config_.arch->key_choice.interleaved_rope},
             stream_);
  kernels::cuda::ChooseKeys(index,
                            {.dtype = weights_.dtype,
                             .queries = buffers_.index_queries,
                             .heads = choice.num_heads,
                             .weights = buffers_.index_weights,
                             .lengths = rows_.lengths,
                             .tables = rows_.tables,
                             .block_tables = batch_.block_tables,
                             .ld_block_tables = batch_.ld_block_tables,
                             .m = num_rows_,
                             .max_length = decoder_.limits_.max_length,
                             .num_chosen = choice.num_chosen,
                             .scores = buffers_.key_scores,
                             .chosen = buffers_.chosen,
                             .counts = buffers_.num_chosen},
                            stream_);
}

}  // namespace mlc_native
