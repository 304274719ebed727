// The mixture of experts on the CPU.
#include <vector>

#include "torch_ops/cpu.h"
#include "torch_ops/library.h"
#include "torch_ops/moe.h"

namespace mlc_native::ops {
namespace {

using kernels::Cpu;

// The matrices [n, k] of all experts.
std::vector<kernels::PackedLinear> PackedExperts(const char* name, const Tensor& packed,
                                                 const MoeBatch& batch, int64_t k) {
  const kernels::CpuKernels& isa = kernels::SelectCpuKernels();
  const int64_t n = packed.size(1);
  const int64_t row_bytes = PackedRowBytes(isa, batch.format, n, k, true);
  CheckValue(packed.is_contiguous() && packed.size(2) == row_bytes, name,
             " must be what pack_weight made of [", packed.size(0), ", ", n, ", ", k, "] in ",
             batch.tensors.format, " here, got ", packed.sizes());
  std::vector<kernels::PackedLinear> linears;
  for (int64_t expert = 0; expert < packed.size(0); ++expert) {
    linears.push_back(kernels::MakePackedLinear(
        isa, batch.format, n, k, static_cast<char*>(packed.data_ptr()) + expert * n * row_bytes));
  }
  return linears;
}

// The matrices and biases of a linear of each expert.
struct ExpertLinears {
  ExpertLinears(const char* name, const Tensor& packed, const char* bias_name,
                const OptionalTensor& bias, const MoeBatch& batch, int64_t k)
      : linears(PackedExperts(name, packed, batch, k)) {
    if (bias) biases = Floats(bias_name, *bias);
  }

  void AddTo(kernels::ExpertChoices* choices) const {
    for (kernels::LinearGroup& group : choices->groups) {
      group.weight = &linears[static_cast<size_t>(group.expert)];
      group.bias = biases ? biases->data<float>() + group.expert * biases->ld() : nullptr;
    }
  }

  std::vector<kernels::PackedLinear> linears;
  std::optional<Rows> biases;
};

kernels::RouteArgs MakeRouteArgs(const Rows& logits, const std::optional<Rows>& correction) {
  return {.logits = logits.data<float>(),
          .ld = logits.ld(),
          .m = logits.m(),
          .correction = FloatsOf(correction)};
}

void RunExperts(const MoeBatch& batch, const Tensor& out) {
  const MoeArguments& a = batch.tensors;
  const Rows x = Floats("x", a.x), logits = Floats("router_logits", a.router_logits);
  std::optional<Rows> correction;
  if (a.correction) correction = Floats("correction", *a.correction);
  const ExpertLinears gate_up("gate_up", a.gate_up, "gate_up_bias", a.gate_up_bias, batch, batch.k);
  const ExpertLinears down("down", a.down, "down_bias", a.down_bias, batch, batch.ffn);
  const int64_t rows = batch.num_choices();
  const Tensor ffn = Empty({rows, 2 * batch.ffn}, a.x, ScalarType::Float);
  const Tensor outputs = Empty({rows, batch.k}, a.x, ScalarType::Float);
  const Tensor workspace =
      HostBytes(kernels::LinearWorkspaceBytes(rows, std::max(batch.k, batch.ffn)));
  auto* const of_ffn = ffn.mutable_data_ptr<float>();
  kernels::ExpertChoices choices;
  choices.Resize(batch.m, batch.rule);
  Run([&](const Cpu& cpu) {
    kernels::Route(cpu, batch.rule, MakeRouteArgs(logits, correction), &choices);
    gate_up.AddTo(&choices);
    kernels::GroupedLinear(cpu, {.groups = choices.groups,
                                 .x = x.data<float>(),
                                 .ldx = x.ld(),
                                 .rows = choices.rows.data(),
                                 .y = of_ffn,
                                 .ldy = 2 * batch.ffn,
                                 .workspace = workspace.data_ptr()});
    const kernels::RowStep activate =
        kernels::ActivateArgs{.activation = batch.activation,
                              .sharpness = static_cast<float>(a.sharpness),
                              .limit = static_cast<float>(a.limit),
                              .x = of_ffn,
                              .ldx = 2 * batch.ffn,
                              .out = of_ffn,
                              .ldo = 2 * batch.ffn,
                              .m = rows,
                              .ffn = batch.ffn};
    down.AddTo(&choices);
    kernels::GroupedLinear(cpu,
                           {.groups = choices.groups,
                            .x = of_ffn,
                            .ldx = 2 * batch.ffn,
                            .y = outputs.mutable_data_ptr<float>(),
                            .ldy = batch.k,
                            .workspace = workspace.data_ptr()},
                           {&activate, 1});
    const kernels::RowStep mix = kernels::MixArgs{.x = outputs.const_data_ptr<float>(),
                                                  .ldx = batch.k,
                                                  .places = choices.places.data(),
                                                  .weights = choices.weights.data(),
                                                  .num_chosen = batch.rule.num_chosen,
                                                  .out = out.mutable_data_ptr<float>(),
                                                  .ldo = batch.k,
                                                  .m = batch.m,
                                                  .n = batch.k};
    kernels::RunRows(cpu, {&mix, 1});
  });
}

}  // namespace
}  // namespace mlc_native::ops

MLC_NATIVE_OPS_IMPL(CPU, m) {
  m.impl("moe", TORCH_BOX(&mlc_native::ops::Moe<&mlc_native::ops::RunExperts>));
}
