// Reads the arguments of the op `moe` for all devices. Any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/experts.h"
#include "torch_ops/outputs.h"

namespace mlc_native::ops {

// The arguments of the op, as in its schema.
struct MoeArguments {
  const Tensor& x;
  const Tensor& router_logits;
  const Tensor& gate_up;
  const Tensor& down;
  std::string_view format;
  int64_t num_chosen;
  std::string_view score;
  const OptionalTensor& correction;
  int64_t num_groups;
  int64_t num_chosen_groups;
  bool renormalize;
  double smallest_sum;
  double scale;
  double jitter;
  const OptionalTensor& gate_up_bias;
  const OptionalTensor& down_bias;
  std::string_view activation;
  double limit;
  double sharpness;
};

// What they mean.
struct MoeBatch {
  const MoeArguments& tensors;
  kernels::WeightFormat format = kernels::WeightFormat::kFloat32;
  kernels::RouterRule rule{};
  kernels::Activation activation = kernels::Activation::kSilu;
  int64_t m = 0;
  int64_t k = 0;
  int64_t ffn = 0;

  int64_t num_choices() const { return m * rule.num_chosen; }
};

// Writes out [m, k].
using MoeFunction = void (*)(const MoeBatch& batch, const Tensor& out);

// Checks the arguments and calls `function`; null computes nothing.
Tensor RunMoe(const MoeArguments& arguments, MoeFunction function);

// Runs the op `moe` on the device of `function`.
template <MoeFunction function>
Tensor Moe(const Tensor& x, const Tensor& router_logits, const Tensor& gate_up, const Tensor& down,
           std::string_view format, int64_t num_chosen, std::string_view score,
           const OptionalTensor& correction, int64_t num_groups, int64_t num_chosen_groups,
           bool renormalize, double smallest_sum, double scale, double jitter,
           const OptionalTensor& gate_up_bias, const OptionalTensor& down_bias,
           std::string_view activation, double limit, double sharpness) {
  return RunMoe({x, router_logits, gate_up, down, format, num_chosen, score, correction, num_groups,
                 num_chosen_groups, renormalize, smallest_sum, scale, jitter, gate_up_bias,
                 down_bias, activation, limit, sharpness},
                function);
}

}  // namespace mlc_native::ops
