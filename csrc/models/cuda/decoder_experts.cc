// The experts of a layer: which kernels on which memory.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "models/cuda/decoder_ops.h"
#include "support/check.h"

namespace mlc_native {

void CudaDecoder::Ops::LaunchFloatLinear(size_t layer, LinearRole role, float* y) const {
  const Linear& linear = weights_.layers[layer].linear(role);
  LayerProduct product{layer, role, LinearArgs(linear, input_, y)};
  product.args.float_output = true;
  const kernels::cuda::GemvArgs& args = product.args;
  kernels::cuda::RouterLogits({.dtype = weights_.dtype,
                               .weight = static_cast<const float*>(args.weight),
                               .n = args.n,
                               .k = args.k,
                               .x = args.x,
                               .ldx = args.ldx,
                               .m = args.m,
                               .bias = args.bias,
                               .logits = y,
                               .ld = args.ldy},
                              stream_);
  AddAdapters(product);
}

void CudaDecoder::Ops::ChooseExperts(size_t layer) {
  const void* correction = weights_.layers[layer].vector(VectorRole::kCorrection);
  const void* scales = weights_.layers[layer].vector(VectorRole::kExpertScales);
  kernels::cuda::Route(config_.experts->router,
                       {.logits = buffers_.router,
                        .ld = config_.experts->router_rows(),
                        .m = num_rows_,
                        .lengths = rows_.lengths,
                        .correction = static_cast<const float*>(correction),
                        .scales = static_cast<const float*>(scales)},
                       buffers_.choices, stream_);
}

kernels::cuda::GroupedGemvArgs CudaDecoder::Ops::ExpertArgs(size_t layer, LinearRole role,
                                                            const void* x, const int32_t* rows,
                                                            void* y) const {
  const Linear& first = weights_.layers[layer].linear(role);
  const ExpertStrides strides = StridesOf(weights_.layers[layer], role);
  return {.first = LinearArgs(first, x, y),
          .weight_stride = strides.matrix,
          .bias_stride = strides.bias,
          .groups = buffers_.choices.groups,
          .num_groups = kernels::cuda::MaxExpertGroups(config_.experts->router, num_rows_),
          .rows = rows};
}

void CudaDecoder::Ops::DeferExperts(size_t layer) {
  const auto role = LinearRole::kExpertGateUp;
  if (!config_.experts->scales_inputs) {
    const void* x = config_.experts->latent_size > 0 ? buffers_.expert_latents : input_;
    deferred_experts_ = ExpertArgs(layer, role, x, buffers_.choices.rows, buffers_.expert_ffn);
    return;
  }
  kernels::cuda::Spread({.dtype = weights_.dtype,
                         .x = input_,
                         .places = buffers_.choices.places,
                         .weights = buffers_.choices.weights,
                         .num_chosen = config_.experts->router.num_chosen,
                         .out = buffers_.expert_inputs,
                         .m = num_rows_,
                         .n = config_.hidden_size},
                        stream_);
  deferred_experts_ = ExpertArgs(layer, role, buffers_.expert_inputs, nullptr, buffers_.expert_ffn);
}

void CudaDecoder::Ops::ActivateShared() {
  ActivateDeferred(ExpertActivation(), nullptr, config_.experts->shared_ffn_size,
                   buffers_.activated);
}

// The products of experts are the same kernel for any number of rows, which can activate.
void CudaDecoder::Ops::ActivateExperts() {
  MLC_CHECK(deferred_experts_);
  kernels::cuda::GroupedGemvArgs linears = *std::exchange(deferred_experts_, std::nullopt);
  const int64_t ffn = config_.experts->ffn_size;
  const bool activates = weights_.dtype != DType::kFloat32;
  if (activates) {
    linears.first.activates = true;
    linears.first.activation = ExpertActivation();
    linears.first.y = buffers_.expert_activated;
    linears.first.ldy = ffn;
  }
  kernels::cuda::GroupedGemv(linears, stream_);
  if (activates) return;
  kernels::cuda::Activate({.dtype = weights_.dtype,
                           .rule = ExpertActivation(),
                           .x = linears.first.y,
                           .out = buffers_.expert_activated,
                           .m = num_rows_ * config_.experts->router.num_chosen,
                           .ffn = ffn},
                          stream_);
}

kernels::cuda::ActivationRule CudaDecoder::Ops::ExpertActivation() const {
  const ExpertConfig& experts = *config_.experts;
  if (experts.swiglu_limit <= 0) {
    return {.activation = config_.activation, .gated = !config_.arch->plain_ffn};
  }
  return {.activation = kernels::Activation::kClampedSwiGlu,
          .sharpness = experts.swiglu_sharpness,
          .limit = experts.swiglu_limit};
}

kernels::cuda::MixArgs CudaDecoder::Ops::MixOfChosen() const {
  return {.dtype = weights_.dtype,
          .x = buffers_.expert_output,
          .places = buffers_.choices.places,
          .weights = config_.experts->scales_inputs ? nullptr : buffers_.choices.weights,
          .num_chosen = config_.experts->router.num_chosen,
          .out = buffers_.output,
          .m = num_rows_,
          .n = config_.hidden_size};
}

void CudaDecoder::Ops::MixNormalizedExperts(size_t layer) {
  const auto& weights = weights_.layers[layer];
  kernels::cuda::Mix(MixOfChosen(), stream_);
  SumOverPeers(buffers_.output);
  SumOverPeers(buffers_.shared);
  const int64_t hidden = config_.hidden_size;
  NormalizeColumns(buffers_.output, hidden, weights.norm(NormRole::kPostExperts).weight, 0, hidden);
  NormalizeColumns(buffers_.shared, hidden, weights.norm(NormRole::kPostShared).weight, 0, hidden);
  kernels::cuda::AddParts({.dtype = weights_.dtype,
                           .parts = buffers_.shared,
                           .num_parts = 2,
                           .sum = buffers_.output,
                           .count = num_rows_ * hidden},
                          stream_);
}

// Each device has all of both projections. The second one reads what all have given, so that the
// devices need no sum behind it.
void CudaDecoder::Ops::MixLatents() {
  kernels::cuda::MixArgs args = MixOfChosen();
  args.out = buffers_.expert_latents;
  args.n = config_.experts->latent_size;
  kernels::cuda::Mix(args, stream_);
  SumOverPeers(buffers_.expert_latents, config_.experts->latent_size);
}

void CudaDecoder::Ops::AddShared() {
  if (config_.experts->shared_ffn_size == 0) return;
  SumOverPeers(buffers_.shared);
  kernels::cuda::AddParts({.dtype = weights_.dtype,
                           .parts = buffers_.shared,
                           .num_parts = 2,
                           .sum = buffers_.output,
                           .count = num_rows_ * config_.hidden_size},
                          stream_);
}

void CudaDecoder::Ops::MixExperts() {
  const ExpertConfig& experts = *config_.experts;
  kernels::cuda::MixArgs args = MixOfChosen();
  if (experts.shared_ffn_size > 0) args.shared = buffers_.shared;
  args.shared_scale = experts.shared_scale;
  if (experts.shared_gate) {
    args.shared_gate = buffers_.router + experts.router.num_experts;
    args.ld_gate = experts.router_rows();
  }
  kernels::cuda::Mix(args, stream_);
  SumOverPeers(buffers_.output);
}

CudaDecoder::ExpertStrides CudaDecoder::StridesOf(const CudaDecoderWeights::Layer& layer,
                                                  LinearRole role) {
  if (layer.num_experts(role) < 2) return {};
  const auto distance = [](const void* from, const void* to) {
    return static_cast<const std::byte*>(to) - static_cast<const std::byte*>(from);
  };
  const auto& first = layer.linear(role);
  const auto& second = layer.linear(role, 1);
  return {.matrix = distance(first.matrix.data, second.matrix.data),
          .bias = distance(first.bias, second.bias)};
}

void CudaDecoder::CheckExperts() const {
  for (const auto& layer : weights_.layers) {
    for (const LinearRole role : {LinearRole::kExpertGateUp, LinearRole::kExpertDown,
                                  LinearRole::kHeadKeyUp, LinearRole::kHeadValueUp}) {
      const ExpertStrides strides = StridesOf(layer, role);
      for (int expert = 0; expert < layer.num_experts(role); ++expert) {
        const auto& first = layer.linear(role);
        const auto& linear = layer.linear(role, expert);
        const auto is_there = [&](const void* at, const void* base, ptrdiff_t stride) {
          return at == (base == nullptr ? nullptr
                                        : static_cast<const std::byte*>(base) + expert * stride);
        };
        MLC_CHECK(linear.matrix.format == first.matrix.format &&
                  is_there(linear.matrix.data, first.matrix.data, strides.matrix) &&
                  is_there(linear.bias, first.bias, strides.bias))
            << "expert or head " << expert;
      }
    }
  }
}

}  // namespace mlc_native
