#include "torch_ops/moe.h"

#include "torch_ops/arguments.h"

namespace mlc_native::ops {
namespace {

kernels::RouterScore ParseScore(std::string_view score) {
  if (score == "softmax") return kernels::RouterScore::kSoftmax;
  if (score == "sigmoid") return kernels::RouterScore::kSigmoid;
  CheckValue(score == "sparse_mixer", "score must be one of softmax, sigmoid, sparse_mixer, got '",
             score, "'");
  return kernels::RouterScore::kSparseMixer;
}

kernels::RouterRule ReadRule(const MoeArguments& a) {
  const kernels::RouterRule rule{.score = ParseScore(a.score),
                                 .num_experts = a.router_logits.size(1),
                                 .num_chosen = a.num_chosen,
                                 .num_groups = a.num_groups,
                                 .num_chosen_groups = a.num_chosen_groups,
                                 .renormalize = a.renormalize,
                                 .smallest_sum = static_cast<float>(a.smallest_sum),
                                 .scale = static_cast<float>(a.scale),
                                 .jitter = static_cast<float>(a.jitter)};
  CheckValue(rule.num_experts >= 1 && rule.num_experts <= kernels::kMaxExperts,
             "router_logits must have 1 to ", kernels::kMaxExperts, " columns, got shape ",
             a.router_logits.sizes());
  CheckValue(rule.num_groups >= 1 && rule.num_experts % rule.num_groups == 0,
             "num_groups must divide the number of experts, which is ", rule.num_experts, ", got ",
             rule.num_groups);
  CheckValue(rule.num_chosen_groups >= 1 && rule.num_chosen_groups <= rule.num_groups,
             "num_chosen_groups must be in [1, ", rule.num_groups, "], got ",
             rule.num_chosen_groups);
  CheckValue(rule.IsValid(), "num_chosen must be in [1, ",
             rule.num_experts / rule.num_groups * rule.num_chosen_groups, "], got ",
             rule.num_chosen);
  CheckValue(rule.score != kernels::RouterScore::kSparseMixer || !a.correction,
             "correction must not be given with sparse_mixer");
  return rule;
}

kernels::Activation ReadActivation(const MoeArguments& a) {
  const kernels::Activation activation = ParseActivation(a.activation);
  if (a.limit == 0) return activation;
  CheckValue(a.limit > 0, "limit must not be negative, got ", a.limit);
  CheckValue(activation == kernels::Activation::kSilu, "activation must be 'silu' with a limit");
  return kernels::Activation::kClampedSwiGlu;
}

MoeBatch ReadBatch(const MoeArguments& a) {
  CheckActivations("x", a.x);
  Check("x", a.x, a.x, {}, {kAny, kAny});
  const int64_t m = a.x.size(0), k = a.x.size(1);
  Check("router_logits", a.router_logits, a.x, {ScalarType::Float}, {m, kAny});
  MoeBatch batch{.tensors = a,
                 .format = ParseFormat(a.format),
                 .rule = ReadRule(a),
                 .activation = ReadActivation(a),
                 .m = m,
                 .k = k};
  const int64_t experts = batch.rule.num_experts;
  Check("gate_up", a.gate_up, a.x, {ScalarType::Byte}, {experts, kAny, kAny});
  CheckValue(a.gate_up.size(1) > 0 && a.gate_up.size(1) % 2 == 0,
             "gate_up must have an even number of rows, got shape ", a.gate_up.sizes());
  batch.ffn = a.gate_up.size(1) / 2;
  Check("down", a.down, a.x, {ScalarType::Byte}, {experts, k, kAny});
  if (a.correction) Check("correction", *a.correction, a.x, {ScalarType::Float}, {experts});
  if (a.gate_up_bias) {
    Check("gate_up_bias", *a.gate_up_bias, a.x, {a.x.scalar_type()}, {experts, 2 * batch.ffn});
  }
  if (a.down_bias) Check("down_bias", *a.down_bias, a.x, {a.x.scalar_type()}, {experts, k});
  return batch;
}

}  // namespace

Tensor RunMoe(const MoeArguments& arguments, MoeFunction function) {
  const MoeBatch batch = ReadBatch(arguments);
  Tensor out = Empty(arguments.x.sizes(), arguments.x, arguments.x.scalar_type());
  if (function != nullptr && batch.m > 0) function(batch, out);
  return out;
}

}  // namespace mlc_native::ops
