// Inputs of the layers: what each layer gets of a row's token besides the residual
// (LayerInputConfig), as launches of the CUDA kernels.
#include "models/cuda/decoder_ops.h"

namespace mlc_native {

using namespace kernels::cuda;  // NOLINT: the vocabulary of this file

// From the tokens, and from their embeddings, which are in the residual. The mean of both is taken
// by the scales of the look-up and of the norm's weight.
void CudaDecoder::Ops::MakeLayerInputs() {
  const LayerInputConfig& inputs = *config_.layer_inputs;
  const int64_t width = config_.layer_inputs_size();
  kernels::cuda::Embed({.dtype = weights_.dtype,
                        .table = weights_.layer_embeddings,
                        .k = width,
                        .ids = batch_.token_ids,
                        .sampled = batch_.sampled,
                        .m = num_rows_,
                        .scale = config_.LayerInputScale(weights_.dtype),
                        .num_rows = inputs.is_short ? inputs.vocab_size : 0,
                        .out = buffers_.layer_inputs},
                       stream_);
  LaunchAddNorm({}, {}, input_);
  LaunchLinear(LinearArgs(weights_.layer_inputs.projection, input_, buffers_.ffn));
  AddNorm({.dtype = weights_.dtype,
           .residual = buffers_.layer_inputs,
           .x = buffers_.ffn,
           .post_weight = weights_.layer_inputs.norm,
           .weight_offset = config_.norm_weight_offset,
           .eps = inputs.norm_eps,
           .m = num_rows_ * (width / inputs.size),
           .dim = inputs.size},
          stream_);
}

// Of the residual, in the decoder's type.
void CudaDecoder::Ops::LaunchLayerInputGate(size_t layer) {
  constexpr auto kRole = LinearRole::kLayerInputGate;
  LaunchAddNorm(TakeAdded(), {}, input_);
  LaunchLinear(LayerProduct{
      layer, kRole, LinearArgs(weights_.layers[layer].linear(kRole), input_, buffers_.ffn)});
}

void CudaDecoder::Ops::ActivateLayerInput(size_t layer) {
  const int64_t size = config_.layer_inputs->size;
  GateInputs({.dtype = weights_.dtype,
              .activation = config_.activation,
              .gate = buffers_.ffn,
              .inputs = buffers_.layer_inputs + static_cast<int64_t>(layer) * size,
              .ld = config_.layer_inputs_size(),
              .rows = has_kept_rows() ? batch_.logits_rows : nullptr,
              .m = num_rows_,
              .n = size},
             stream_);
}

}  // namespace mlc_native
