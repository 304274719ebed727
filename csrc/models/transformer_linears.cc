// The linears of a forward: what each reads and writes, the operations in front of it, and what
// adapters add to it.
#include "models/transformer_ops.h"
#include "support/check.h"

namespace mlc_native {

void Transformer::Ops::RunRemembered() {
  kernels::RunRows(model_.cpu_, remembered_.span());
  remembered_.Clear();
}

void Transformer::Ops::Observe(const kernels::PackedLinear& weight,
                               const kernels::InputRows& inputs) {
  if (model_.observer_ == nullptr) return;
  RunRemembered();
  model_.observer_->BeforeLinear(weight, inputs);
}

void Transformer::Ops::RunLinear(const Linear& linear, const Activations& x, const Activations& y) {
  Observe(linear.matrix, {.x = x.data, .ldx = x.width, .m = num_rows_});
  kernels::Linear(model_.cpu_, linear.matrix,
                  {.x = x.data,
                   .ldx = x.width,
                   .m = num_rows_,
                   .bias = linear.bias,
                   .y = y.data,
                   .ldy = y.width,
                   .workspace = buffers_.linear_inputs.data},
                  remembered_.span());
  remembered_.Clear();
}

void Transformer::Ops::RunLinear(const LayerLinear& of, const Activations& x,
                                 const Activations& y) {
  RunLinear(model_.weights_.layers[of.layer].linear(of.role), x, y);
  if (model_.adapter_rows_.empty()) return;
  model_.adapter_rows_.Add(model_.cpu_, {.layer = of.layer,
                                         .role = of.role,
                                         .x = x.data,
                                         .ldx = x.width,
                                         .y = y.data,
                                         .ldy = y.width});
}

void Transformer::Ops::Project(size_t layer, LinearRole role) {
  const LayerLinear linear{layer, role};
  switch (role) {
    case LinearRole::kQkv:
      return RunLinear(linear, *input_,
                       config_.latent || config_.compression ? buffers_.latents : GatedQkv(layer));
    case LinearRole::kOut:
      if (config_.latent) MakeValues(layer);
      if (config_.compression) MakeGroups(layer);
      if (config_.gates_attention()) GateAttention(layer);
      NormalizeWithin(layer, NormRole::kAttentionOut, buffers_.attention);
      return RunLinear(linear,
                       config_.latent || config_.compression ? buffers_.values : buffers_.attention,
                       buffers_.output);
    case LinearRole::kGateUp:
      return RunLinear(linear, *input_, buffers_.ffn);
    case LinearRole::kDown:
      NormalizeWithin(layer, NormRole::kFfnDown, buffers_.ffn);
      return RunLinear(linear, buffers_.ffn, buffers_.output);
    case LinearRole::kDeltaInputs:
      return RunLinear(linear, *input_, buffers_.delta_inputs);
    case LinearRole::kDeltaGates:
      return RunLinear(linear, *input_, buffers_.delta_gates);
    case LinearRole::kDeltaDecays:
      return RunLinear(linear, DeltaRank(0), buffers_.delta_decays);
    case LinearRole::kDeltaOutGates:
      return RunLinear(linear, DeltaRank(1), buffers_.delta_out_gates);
    case LinearRole::kScanInputs:
      return RunLinear(linear, buffers_.delta_out_gates, buffers_.delta_gates);
    case LinearRole::kScanSteps:
      AddScanNorms(layer);
      return RunLinear(linear, buffers_.delta_gates, buffers_.delta_decays);
    case LinearRole::kDeltaOut:
      return RunLinear(linear, buffers_.delta_output, buffers_.output);
    case LinearRole::kRouter:
      return RunLinear(linear, *input_, buffers_.router);
    case LinearRole::kSharedGateUp:
      return RunLinear(linear, *input_, buffers_.shared_ffn);
    case LinearRole::kSharedDown:
      return RunLinear(linear, buffers_.shared_ffn, buffers_.shared);
    case LinearRole::kExpertsIn:
      return RunLinear(linear, *input_, buffers_.expert_latents);
    case LinearRole::kExpertsOut:
      return RunLinear(linear, buffers_.expert_latents, buffers_.output);
    case LinearRole::kExpertGateUp:
      if (config_.experts->scales_inputs) {
        SpreadInput();
        return RunExperts(layer, role, buffers_.expert_output, nullptr, buffers_.expert_ffn);
      }
      return RunExperts(layer, role,
                        config_.experts->latent_size > 0 ? buffers_.expert_latents : *input_,
                        choices_.rows.data(), buffers_.expert_ffn);
    case LinearRole::kExpertDown:
      return RunExperts(layer, role, buffers_.expert_ffn, nullptr, buffers_.expert_output);
    case LinearRole::kLayerInputGate:
      return RunLinear(linear, buffers_.residual, buffers_.layer_gate);
    case LinearRole::kLayerInputUp:
      return RunLinear(linear, buffers_.layer_gate, buffers_.output);
    case LinearRole::kLaurelDown:
      return RunLinear(linear, *input_, buffers_.laurel_rank);
    case LinearRole::kLaurelUp:
      return RunLinear(linear, buffers_.laurel_rank, buffers_.laurel);
    case LinearRole::kQueryUp:
    case LinearRole::kHeadKeyUp:
    case LinearRole::kHeadValueUp:
    case LinearRole::kIndexQueries:
    case LinearRole::kIndexKeys:
    case LinearRole::kIndexWeights:
      break;  // run by MakeHeads, MakeValues and ChooseKeys
    case LinearRole::kTokenRows:
    case LinearRole::kGroupOut:
      break;  // run by WriteEntries and MakeGroups
  }
  MLC_CHECK(false) << static_cast<int>(role);
}

}  // namespace mlc_native
