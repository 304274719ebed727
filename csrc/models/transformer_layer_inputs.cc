// Inputs of the layers on the CPU's kernels: what each layer gets of a row's token besides the
// residual (LayerInputConfig).
#include "models/transformer_ops.h"

namespace mlc_native {

// From the tokens, and from their embeddings, which are in the residual. The mean of both is taken
// by the scales of the look-up and of the norm's weight.
void Transformer::Ops::MakeLayerInputs() {
  const CpuDecoderWeights& weights = model_.weights_;
  const Activations& inputs = buffers_.layer_inputs;
  const Activations& projected = buffers_.projected_inputs;
  kernels::GatherRows(model_.cpu_, weights.layer_embeddings,
                      {.ids = batch_.token_ids.data(),
                       .m = num_rows_,
                       .scale = config_.LayerInputScale(weights.dtype),
                       .out = inputs.data,
                       .ldo = inputs.width,
                       .is_short = config_.layer_inputs->is_short});
  RunLinear(weights.layer_inputs.projection, buffers_.residual, projected);
  kernels::NormalizeArgs norm = Norm(projected, weights.layer_inputs.norm, inputs);
  norm.eps = config_.layer_inputs->norm_eps;
  norm.groups = std::ssize(config_.layers);
  norm.dim = config_.layer_inputs->size;
  norm.accumulate = true;
  remembered_.Add(norm);
}

// The gate of a row, and beside it what it is multiplied with.
void Transformer::Ops::ActivateLayerInput(size_t layer) {
  const int64_t size = config_.layer_inputs->size;
  const Activations& inputs = buffers_.layer_inputs;
  const Activations& gate = buffers_.layer_gate;
  remembered_.Add(kernels::MoveHeadsArgs{.from = inputs.data + static_cast<int64_t>(layer) * size,
                                         .ld_from = inputs.width,
                                         .to = gate.data + size,
                                         .ld_to = gate.width,
                                         .to_step = size,
                                         .m = num_rows_,
                                         .heads = 1,
                                         .n = size});
  remembered_.Add(kernels::ActivateArgs{.activation = config_.activation,
                                        .x = gate.data,
                                        .ldx = gate.width,
                                        .out = gate.data,
                                        .ldo = gate.width,
                                        .m = num_rows_,
                                        .ffn = size});
}

}  // namespace mlc_native
