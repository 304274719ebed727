// The mixture of experts on CUDA.
#include "kernels/cuda/experts.h"
#include "torch_ops/cuda.h"
#include "torch_ops/moe.h"

namespace mlc_native::ops {
namespace {

namespace cuda = kernels::cuda;

// The memory of a batch's choices.
struct ChoiceTensors {
  explicit ChoiceTensors(const MoeBatch& batch)
      : experts(Empty({batch.num_choices()}, batch.tensors.x, ScalarType::Int)),
        weights(Empty({batch.num_choices()}, batch.tensors.x, ScalarType::Float)),
        places(Empty({batch.num_choices()}, batch.tensors.x, ScalarType::Int)),
        rows(Empty({batch.num_choices()}, batch.tensors.x, ScalarType::Int)),
        groups(DeviceBytes(static_cast<size_t>(cuda::MaxExpertGroups(batch.rule, batch.m)) *
                               sizeof(cuda::ExpertGroup),
                           batch.tensors.x)) {}

  cuda::ExpertChoices choices() const {
    return {.experts = experts.mutable_data_ptr<int32_t>(),
            .weights = weights.mutable_data_ptr<float>(),
            .places = places.mutable_data_ptr<int32_t>(),
            .rows = rows.mutable_data_ptr<int32_t>(),
            .groups = static_cast<cuda::ExpertGroup*>(groups.mutable_data_ptr())};
  }

  Tensor experts, weights, places, rows, groups;
};

// The arguments that the products of gate_up and down share.
cuda::GroupedGemvArgs ProductArgs(const MoeBatch& batch, const Tensor& packed, int64_t k,
                                  const std::optional<Rows>& bias, const ChoiceTensors& choices) {
  const int64_t n = packed.size(1);
  return {.first = {.format = batch.format,
                    .dtype = DTypeOf(batch.tensors.x),
                    .weight = packed.const_data_ptr(),
                    .n = n,
                    .k = k,
                    .ldx = k,
                    .m = batch.m,
                    .bias = bias ? bias->data() : nullptr,
                    .ldy = n},
          .weight_stride = n * packed.size(2),
          .bias_stride = bias ? n * static_cast<int64_t>(batch.tensors.x.element_size()) : 0,
          .groups = choices.choices().groups,
          .num_groups = cuda::MaxExpertGroups(batch.rule, batch.m)};
}

std::optional<Rows> DenseIfAny(const OptionalTensor& x) {
  return x ? std::optional(Dense(*x)) : std::nullopt;
}

void CheckSizes(const MoeBatch& batch) {
  const MoeArguments& a = batch.tensors;
  CheckRowSize("x", batch.k);
  CheckRowSize("gate_up", batch.ffn);
  CheckWeightType(a.x, a.format);
  CheckPacked("gate_up", a.gate_up, a.format, batch.k);
  CheckPacked("down", a.down, a.format, batch.ffn);
}

void RunExperts(const MoeBatch& batch, const Tensor& out) {
  CheckSizes(batch);
  const MoeArguments& a = batch.tensors;
  const Rows x = Dense(a.x), logits = Dense(a.router_logits);
  const Tensor correction = torch::stable::contiguous(a.correction ? *a.correction : a.x);
  const std::optional<Rows> gate_up_bias = DenseIfAny(a.gate_up_bias);
  const std::optional<Rows> down_bias = DenseIfAny(a.down_bias);
  const ChoiceTensors choices(batch);
  const int64_t rows = batch.num_choices();
  const Tensor ffn = Empty({rows, 2 * batch.ffn}, a.x, a.x.scalar_type());
  const Tensor activated = Empty({rows, batch.ffn}, a.x, a.x.scalar_type());
  const Tensor outputs = Empty({rows, batch.k}, a.x, a.x.scalar_type());
  cuda::GroupedGemvArgs gate_up = ProductArgs(batch, a.gate_up, batch.k, gate_up_bias, choices);
  gate_up.first.x = x.data();
  gate_up.first.y = ffn.mutable_data_ptr();
  gate_up.rows = choices.choices().rows;
  cuda::GroupedGemvArgs down = ProductArgs(batch, a.down, batch.ffn, down_bias, choices);
  down.first.x = activated.const_data_ptr();
  down.first.y = outputs.mutable_data_ptr();
  OnDevice(a.x, [&](cuda::Stream stream) {
    cuda::Route(batch.rule,
                {.logits = logits.data<float>(),
                 .ld = logits.ld(),
                 .m = batch.m,
                 .correction = a.correction ? correction.const_data_ptr<float>() : nullptr},
                choices.choices(), stream);
    cuda::GroupedGemv(gate_up, stream);
    cuda::Activate({.dtype = DTypeOf(a.x),
                    .rule = {.activation = batch.activation,
                             .sharpness = static_cast<float>(a.sharpness),
                             .limit = static_cast<float>(a.limit)},
                    .x = ffn.const_data_ptr(),
                    .out = activated.mutable_data_ptr(),
                    .m = rows,
                    .ffn = batch.ffn},
                   stream);
    cuda::GroupedGemv(down, stream);
    cuda::Mix({.dtype = DTypeOf(a.x),
               .x = outputs.const_data_ptr(),
               .places = choices.choices().places,
               .weights = choices.choices().weights,
               .num_chosen = batch.rule.num_chosen,
               .out = out.mutable_data_ptr(),
               .m = batch.m,
               .n = batch.k},
              stream);
  });
}

}  // namespace
}  // namespace mlc_native::ops

MLC_NATIVE_OPS_IMPL(MLC_NATIVE_OPS_CUDA_KEY, m) {
  m.impl("moe", TORCH_BOX(&mlc_native::ops::Moe<&mlc_native::ops::RunExperts>));
}
