// The ops on the CPU that work row by row, and products.
#include "torch_ops/cpu.h"

#include <atomic>
#include <memory>
#include <numeric>
#include <vector>

#include "torch_ops/library.h"
#include "torch_ops/outputs.h"

namespace mlc_native::ops {

using kernels::Cpu;

CpuRunner& CpuRunner::Shared() {
  static std::atomic<CpuRunner*> shared = nullptr;
  CpuRunner* runner = shared.load();
  if (runner != nullptr && runner->process_ == getpid()) return *runner;
  auto own = std::make_unique<CpuRunner>();
  // Another thread may have made one in the meantime, and `runner` is that one then.
  return shared.compare_exchange_strong(runner, own.get()) ? *own.release() : *runner;
}

Rows Floats(const char* name, const Tensor& x) {
  Check(name, x, x, {ScalarType::Float}, {});
  return Rows(x, sizeof(float));
}

int64_t PackedRowBytes(const kernels::CpuKernels& isa, kernels::WeightFormat format, int64_t n,
                       int64_t k, bool of_experts) {
  if (n == 0) return 0;
  const auto bytes = static_cast<int64_t>(kernels::PackedLinearBytes(isa, format, n, k));
  const int64_t unit =
      of_experts ? kernels::kPackedAlignment / std::gcd(kernels::kPackedAlignment, n) : 1;
  return ((bytes + n - 1) / n + unit - 1) / unit * unit;
}

namespace {

// ---- Row by row ----

Tensor Embedding(const Tensor& table, const Tensor& ids, double scale) {
  Tensor out = outputs::Embedding(table, ids, scale);
  CheckRange("ids", ids, table.size(0));
  const Rows rows(table, table.element_size());
  const Tensor list = torch::stable::contiguous(ids);
  Run([&](const Cpu& cpu) {
    kernels::GatherRows(cpu,
                        {.dtype = DTypeOf(table),
                         .data = rows.data(),
                         .n = rows.m(),
                         .k = rows.n(),
                         .ld = rows.ld()},
                        {.ids = list.const_data_ptr<int32_t>(),
                         .m = list.numel(),
                         .scale = static_cast<float>(scale),
                         .out = out.mutable_data_ptr<float>(),
                         .ldo = rows.n()});
  });
  return out;
}

struct Norm {
  float eps;
  float offset;
  kernels::NormalizeArgs Args(const Rows& x, float* y, const Rows& weight) const {
    return {.x = x.data<float>(),
            .ldx = x.ld(),
            .y = y,
            .ldy = x.n(),
            .weight = weight.data<float>(),
            .weight_offset = offset,
            .eps = eps,
            .m = x.m(),
            .dim = x.n()};
  }
};

Tensor RmsNorm(const Tensor& x, const Tensor& weight, double eps, double weight_offset) {
  Tensor out = outputs::RmsNorm(x, weight, eps, weight_offset);
  const Norm norm{static_cast<float>(eps), static_cast<float>(weight_offset)};
  const Rows rows = Floats("x", x);
  const Rows w = Floats("weight", weight);
  Run([&](const Cpu& cpu) {
    kernels::Normalize(cpu, norm.Args(rows, out.mutable_data_ptr<float>(), w));
  });
  return out;
}

Tensor AddRmsNorm(const Tensor& residual, const Tensor& x, const Tensor& weight,
                  const OptionalTensor& post_weight, double eps, double weight_offset) {
  Tensor out = outputs::AddRmsNorm(residual, x, weight, post_weight, eps, weight_offset);
  const Norm norm{static_cast<float>(eps), static_cast<float>(weight_offset)};
  const Rows rows = Floats("x", x);
  const Rows w = Floats("weight", weight);
  auto* sum = residual.mutable_data_ptr<float>();
  auto* y = out.mutable_data_ptr<float>();
  kernels::NormalizeArgs args = norm.Args(rows, y, w);
  if (!post_weight) {
    args.residual = sum;
    args.ld_residual = rows.n();
    Run([&](const Cpu& cpu) { kernels::Normalize(cpu, args); });
    return out;
  }
  const Rows post = Floats("post_weight", *post_weight);
  kernels::NormalizeArgs add = norm.Args(rows, sum, post);
  add.accumulate = true;
  args.x = sum;
  args.ldx = rows.n();
  const kernels::RowStep steps[] = {add, args};
  Run([&](const Cpu& cpu) { kernels::RunRows(cpu, steps); });
  return out;
}

Tensor GatedActivation(const Tensor& x, std::string_view activation) {
  Tensor out = outputs::GatedActivation(x, activation);
  const Rows rows = Floats("x", x);
  Run([&](const Cpu& cpu) {
    kernels::Activate(cpu, {.activation = ParseActivation(activation),
                            .x = rows.data<float>(),
                            .ldx = rows.ld(),
                            .out = out.mutable_data_ptr<float>(),
                            .ldo = rows.n() / 2,
                            .m = rows.m(),
                            .ffn = rows.n() / 2});
  });
  return out;
}

void SoftCap(const Tensor& x, double cap) {
  outputs::SoftCap(x, cap);
  Run([&](const Cpu& cpu) {
    kernels::SoftCap(cpu, {x.mutable_data_ptr<float>(), x.size(1), x.size(0), x.size(1)},
                     static_cast<float>(cap));
  });
}

// ---- Linear ----

kernels::PackedLinear Packed(const kernels::CpuKernels& isa, const Tensor& packed,
                             std::string_view format, int64_t k) {
  const kernels::WeightFormat parsed = ParseFormat(format);
  const int64_t n = packed.size(0);
  CheckValue(packed.is_contiguous() && packed.size(1) == PackedRowBytes(isa, parsed, n, k, false),
             "packed must be what pack_weight made of [", n, ", ", k, "] in ", format,
             " here, got ", packed.sizes());
  return kernels::MakePackedLinear(isa, parsed, n, k, packed.data_ptr());
}

Tensor PackWeight(const Tensor& weight, std::string_view format) {
  CheckPackable(weight);
  const kernels::CpuKernels& isa = kernels::SelectCpuKernels();
  const kernels::WeightFormat parsed = ParseFormat(format);
  const Rows rows(weight, weight.element_size());
  std::vector<int64_t> sizes = weight.sizes().vec();
  const int64_t n = weight.size(-2), k = weight.size(-1);
  sizes.back() = PackedRowBytes(isa, parsed, n, k, weight.dim() == 3);
  const Tensor packed = Empty(sizes, weight, ScalarType::Byte);
  for (int64_t row = 0; row < rows.m(); row += n) {
    const int64_t element = row * rows.ld() * static_cast<int64_t>(weight.element_size());
    kernels::PackLinear(
        kernels::MakePackedLinear(isa, parsed, n, k,
                                  static_cast<char*>(packed.data_ptr()) + row * sizes.back()),
        0,
        kernels::PackSource{.dtype = DTypeOf(weight),
                            .data = rows.data<char>() + element,
                            .ld = rows.ld(),
                            .rows = n});
  }
  return packed;
}

Tensor UnpackWeight(const Tensor& packed, std::string_view format, int64_t k) {
  Tensor out = outputs::UnpackWeight(packed, format, k);
  std::vector<int32_t> ids(static_cast<size_t>(packed.size(0)));
  std::iota(ids.begin(), ids.end(), 0);
  Run([&](const Cpu& cpu) {
    kernels::GatherPackedRows(
        cpu, Packed(*cpu.isa, packed, format, k),
        {.ids = ids.data(), .m = packed.size(0), .out = out.mutable_data_ptr<float>(), .ldo = k});
  });
  return out;
}

Tensor Linear(const Tensor& x, const Tensor& packed, std::string_view format,
              const OptionalTensor& bias, bool float_output) {
  Tensor out = outputs::Linear(x, packed, format, bias, float_output);
  const Rows rows = Floats("x", x);
  std::optional<Rows> b;
  if (bias) b = Floats("bias", *bias);
  const Tensor workspace = HostBytes(kernels::LinearWorkspaceBytes(rows.m(), rows.n()));
  Run([&](const Cpu& cpu) {
    kernels::Linear(cpu, Packed(*cpu.isa, packed, format, rows.n()),
                    {.x = rows.data<float>(),
                     .ldx = rows.ld(),
                     .m = rows.m(),
                     .bias = FloatsOf(b),
                     .y = out.mutable_data_ptr<float>(),
                     .ldy = packed.size(0),
                     .workspace = workspace.data_ptr()});
  });
  return out;
}

}  // namespace
}  // namespace mlc_native::ops

MLC_NATIVE_OPS_IMPL(CPU, m) {
  namespace ops = mlc_native::ops;
  m.impl("embedding", TORCH_BOX(&ops::Embedding));
  m.impl("rms_norm", TORCH_BOX(&ops::RmsNorm));
  m.impl("add_rms_norm", TORCH_BOX(&ops::AddRmsNorm));
  m.impl("gated_activation", TORCH_BOX(&ops::GatedActivation));
  m.impl("soft_cap_", TORCH_BOX(&ops::SoftCap));
  m.impl("pack_weight", TORCH_BOX(&ops::PackWeight));
  m.impl("unpack_weight", TORCH_BOX(&ops::UnpackWeight));
  m.impl("linear", TORCH_BOX(&ops::Linear));
}
