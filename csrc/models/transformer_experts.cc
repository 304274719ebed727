// The experts of a layer on the CPU's kernels.
#include <cstddef>
#include <span>
#include <vector>

#include "models/transformer_ops.h"

namespace mlc_native {

void Transformer::Ops::ChooseExperts(size_t layer) {
  const std::vector<int32_t>* const table =
      config_.layers[layer].has_token_experts ? &model_.token_experts_[layer] : nullptr;
  kernels::Route(model_.cpu_, config_.experts->router,
                 {.logits = buffers_.router.data,
                  .ld = buffers_.router.width,
                  .m = num_rows_,
                  .correction = model_.weights_.layers[layer].vector(VectorRole::kCorrection),
                  .scales = model_.weights_.layers[layer].vector(VectorRole::kExpertScales),
                  .table = table == nullptr ? nullptr : table->data(),
                  .ids = has_last_rows_ ? model_.last_ids_.data() : batch_.token_ids.data()},
                 &choices_);
}

// Checks those blocks of the chosen experts that have not been used before.
void Transformer::Ops::CheckExperts() {
  BlockChecks* checks = model_.weights_.memory.checks;
  if (checks == nullptr || checks->is_done()) return;
  std::vector<std::span<const std::byte>> parts;
  for (const kernels::LinearGroup& group : choices_.groups) {
    const kernels::PackedLinear& w = *group.weight;
    parts.push_back({static_cast<const std::byte*>(w.data),
                     kernels::PackedLinearBytes(*model_.cpu_.isa, w.format, w.n, w.k)});
    if (group.bias == nullptr) continue;
    parts.push_back(std::as_bytes(std::span(group.bias, static_cast<size_t>(w.n))));
  }
  checks->Require(parts, *model_.cpu_.pool);
}

void Transformer::Ops::SpreadInput() {
  remembered_.Add(kernels::SpreadArgs{.x = input_->data,
                                      .ldx = input_->width,
                                      .places = choices_.places.data(),
                                      .weights = choices_.weights.data(),
                                      .num_chosen = config_.experts->router.num_chosen,
                                      .out = buffers_.expert_output.data,
                                      .ldo = buffers_.expert_output.width,
                                      .m = num_rows_,
                                      .n = config_.hidden_size});
  RunRemembered();
}

void Transformer::Ops::RunExperts(size_t layer, LinearRole role, const Activations& x,
                                  const int32_t* rows, const Activations& y) {
  for (kernels::LinearGroup& group : choices_.groups) {
    const Linear& linear = model_.weights_.layers[layer].linear(role, group.expert);
    group.weight = &linear.matrix;
    group.bias = linear.bias;
  }
  CheckExperts();
  if (rows != nullptr) RunRemembered();
  for (const kernels::LinearGroup& group : choices_.groups) {
    Observe(*group.weight, {.x = rows == nullptr ? x.data + group.begin * x.width : x.data,
                            .ldx = x.width,
                            .rows = rows == nullptr ? nullptr : rows + group.begin,
                            .m = group.end - group.begin});
  }
  kernels::GroupedLinear(model_.cpu_,
                         {.groups = choices_.groups,
                          .x = x.data,
                          .ldx = x.width,
                          .rows = rows,
                          .y = y.data,
                          .ldy = y.width,
                          .workspace = buffers_.linear_inputs.data},
                         remembered_.span());
  remembered_.Clear();
}

void Transformer::Ops::ActivateShared() {
  ActivateRows(buffers_.shared_ffn, config_.experts->shared_ffn_size, num_rows_);
}

void Transformer::Ops::ActivateExperts() {
  ActivateRows(buffers_.expert_ffn, config_.experts->ffn_size,
               num_rows_ * config_.experts->router.num_chosen);
}

kernels::MixArgs Transformer::Ops::MixOfChosen(const Activations& out) const {
  return {.x = buffers_.expert_output.data,
          .ldx = buffers_.expert_output.width,
          .places = choices_.places.data(),
          .weights = config_.experts->scales_inputs ? nullptr : choices_.weights.data(),
          .num_chosen = config_.experts->router.num_chosen,
          .out = out.data,
          .ldo = out.width,
          .m = num_rows_,
          .n = config_.expert_input_size()};
}

void Transformer::Ops::MixLatents() { remembered_.Add(MixOfChosen(buffers_.expert_latents)); }

void Transformer::Ops::AddShared() {
  if (config_.experts->shared_ffn_size == 0) return;
  remembered_.Add(kernels::AddArgs{.x = buffers_.shared.data,
                                   .ldx = buffers_.shared.width,
                                   .sum = buffers_.output.data,
                                   .ld_sum = buffers_.output.width,
                                   .m = num_rows_,
                                   .n = config_.hidden_size});
}

void Transformer::Ops::MixNormalizedExperts(size_t layer) {
  const CpuDecoderWeights::Layer& weights = model_.weights_.layers[layer];
  remembered_.Add(MixOfChosen(buffers_.output));
  remembered_.Add(Norm(buffers_.output, weights.norm(NormRole::kPostExperts), buffers_.output));
  kernels::NormalizeArgs shared =
      Norm(buffers_.shared, weights.norm(NormRole::kPostShared), buffers_.output);
  shared.accumulate = true;
  remembered_.Add(shared);
}

void Transformer::Ops::MixExperts() {
  const ExpertConfig& experts = *config_.experts;
  kernels::MixArgs mix = MixOfChosen(buffers_.output);
  if (experts.shared_ffn_size > 0) {
    mix.shared = buffers_.shared.data;
    mix.ld_shared = buffers_.shared.width;
    mix.shared_scale = experts.shared_scale;
  }
  if (experts.shared_gate) {
    mix.shared_gate = buffers_.router.data + experts.router.num_experts;
    mix.ld_gate = buffers_.router.width;
  }
  remembered_.Add(mix);
}

}  // namespace mlc_native
