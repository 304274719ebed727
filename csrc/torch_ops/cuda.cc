// The ops on CUDA that work row by row, and products of few rows.
#include "torch_ops/cuda.h"

#include <dlfcn.h>

#include <algorithm>
#include <stdexcept>

#include "models/cuda/device_form.h"
#include "torch_ops/outputs.h"

namespace mlc_native::ops {

namespace cuda = kernels::cuda;

// Part of torch's stable ABI, but in its CUDA library, which this one must not require.
cuda::Stream CurrentStream(int32_t device_index) {
  using Function = AOTITorchError(int32_t, void**);
  static auto* const current_stream = [] {
    void* library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    void* symbol =
        library != nullptr ? dlsym(library, "aoti_torch_get_current_cuda_stream") : nullptr;
    if (symbol == nullptr) throw std::runtime_error("this torch has no CUDA");
    return reinterpret_cast<Function*>(symbol);
  }();
  void* stream = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(current_stream(device_index, &stream));
  return static_cast<CUstream_st*>(stream);
}

void CheckRowSize(const char* name, int64_t size, int64_t most, int64_t unit) {
  CheckValue(size % unit == 0, name, " must have rows of a multiple of ", unit,
             " elements on CUDA, got ", size);
  CheckValue(size <= most, name, " must have rows of at most ", most, " elements on CUDA, got ",
             size);
}

namespace {

bool IsQuantized(kernels::WeightFormat format) {
  return format == kernels::WeightFormat::kQ8 || format == kernels::WeightFormat::kQ4;
}

ScalarType PlainType(kernels::WeightFormat format) {
  if (format == kernels::WeightFormat::kFloat32) return ScalarType::Float;
  return format == kernels::WeightFormat::kBFloat16 ? ScalarType::BFloat16 : ScalarType::Half;
}

int64_t PackedRowBytes(kernels::WeightFormat format, int64_t k) {
  const auto [codes, scales] = DeviceForm::RowBytes(format, k);
  return static_cast<int64_t>(codes + scales);
}

}  // namespace

void CheckPacked(const char* name, const Tensor& packed, std::string_view format, int64_t k) {
  CheckValue(packed.is_contiguous() && packed.size(-1) == PackedRowBytes(ParseFormat(format), k),
             name, " must be what pack_weight made of [..., ", packed.size(-2), ", ", k, "] in ",
             format, " here, got ", packed.sizes());
}

void CheckWeightType(const Tensor& x, std::string_view format) {
  const kernels::WeightFormat parsed = ParseFormat(format);
  CheckValue(IsQuantized(parsed) ? x.scalar_type() != ScalarType::Float
                                 : x.scalar_type() == PlainType(parsed),
             "x must be of ", IsQuantized(parsed) ? "a 16-bit type" : "the weight's type", " for ",
             format, ", got ", x.scalar_type());
}

namespace {

// ---- Row by row ----

Tensor Embedding(const Tensor& table, const Tensor& ids, double scale) {
  Tensor out = outputs::Embedding(table, ids, scale);
  CheckRowSize("table", table.size(1));
  CheckRange("ids", ids, table.size(0));
  const Rows rows = Dense(table);
  const Tensor list = torch::stable::contiguous(ids);
  OnDevice(table, [&](cuda::Stream stream) {
    cuda::Embed({.dtype = DTypeOf(table),
                 .table = rows.data(),
                 .k = rows.n(),
                 .ids = list.const_data_ptr<int32_t>(),
                 .m = list.numel(),
                 .scale = static_cast<float>(scale),
                 .out = out.mutable_data_ptr<float>()},
                stream);
  });
  return out;
}

Tensor RmsNorm(const Tensor& x, const Tensor& weight, double eps, double weight_offset) {
  Tensor out = outputs::RmsNorm(x, weight, eps, weight_offset);
  CheckRowSize("x", x.size(-1), cuda::kMaxNormDim);
  torch::stable::copy_(out, x);
  const Rows w = Dense(torch::stable::unsqueeze(weight, 0));
  OnDevice(x, [&](cuda::Stream stream) {
    cuda::Normalize({.dtype = DTypeOf(x),
                     .x = out.mutable_data_ptr(),
                     .ld = x.size(-1),
                     .weight = w.data(),
                     .weight_offset = static_cast<float>(weight_offset),
                     .eps = static_cast<float>(eps),
                     .m = x.numel() / x.size(-1),
                     .dim = x.size(-1)},
                    stream);
  });
  return out;
}

Tensor AddRmsNorm(const Tensor& residual, const Tensor& x, const Tensor& weight,
                  const OptionalTensor& post_weight, double eps, double weight_offset) {
  Tensor out = outputs::AddRmsNorm(residual, x, weight, post_weight, eps, weight_offset);
  CheckRowSize("x", x.size(1), cuda::kMaxNormDim);
  const Rows sum = MutableRows("residual", residual, kCudaAlignment);
  const Rows rows = Dense(x);
  const Rows pre = Dense(torch::stable::unsqueeze(weight, 0));
  const Rows post = Dense(torch::stable::unsqueeze(post_weight ? *post_weight : weight, 0));
  OnDevice(x, [&](cuda::Stream stream) {
    cuda::AddNorm({.dtype = DTypeOf(x),
                   .residual = sum.data<float>(),
                   .x = rows.data(),
                   .post_weight = post_weight ? post.data() : nullptr,
                   .pre_weight = pre.data(),
                   .y = out.mutable_data_ptr(),
                   .weight_offset = static_cast<float>(weight_offset),
                   .eps = static_cast<float>(eps),
                   .m = rows.m(),
                   .dim = rows.n()},
                  stream);
  });
  return out;
}

Tensor GatedActivation(const Tensor& x, std::string_view activation) {
  Tensor out = outputs::GatedActivation(x, activation);
  CheckRowSize("x", x.size(-1), INT64_MAX, 2 * kCudaUnit);
  const Rows rows = Dense(x);
  OnDevice(x, [&](cuda::Stream stream) {
    cuda::Activate({.dtype = DTypeOf(x),
                    .rule = {.activation = ParseActivation(activation)},
                    .x = rows.data(),
                    .out = out.mutable_data_ptr(),
                    .m = rows.m(),
                    .ffn = rows.n() / 2},
                   stream);
  });
  return out;
}

void SoftCap(const Tensor& x, double cap) {
  outputs::SoftCap(x, cap);
  OnDevice(x, [&](cuda::Stream stream) {
    cuda::SoftCap(x.mutable_data_ptr<float>(), x.numel(), static_cast<float>(cap), stream);
  });
}

// ---- Products ----

Tensor PackWeight(const Tensor& weight, std::string_view format) {
  CheckPackable(weight);
  CheckRowSize("weight", weight.size(-1));
  const kernels::WeightFormat parsed = ParseFormat(format);
  const Rows rows(ToHost(weight), 1);
  std::vector<int64_t> sizes = weight.sizes().vec();
  const int64_t n = weight.size(-2), k = weight.size(-1);
  sizes.back() = PackedRowBytes(parsed, k);
  const Tensor packed = Empty(sizes, rows.tensor(), ScalarType::Byte);
  for (int64_t row = 0; row < rows.m(); row += n) {
    auto* const to = static_cast<std::byte*>(packed.data_ptr()) + row * sizes.back();
    const int64_t element = row * k * static_cast<int64_t>(weight.element_size());
    DeviceForm().Pack(
        {.format = parsed, .n = n, .k = k, .data = to}, 0,
        kernels::PackSource{
            .dtype = DTypeOf(weight), .data = rows.data<char>() + element, .ld = k, .rows = n});
  }
  return torch::stable::to(packed, weight.device());
}

Tensor Linear(const Tensor& x, const Tensor& packed, std::string_view format,
              const OptionalTensor& bias, bool float_output) {
  Tensor out = outputs::Linear(x, packed, format, bias, float_output);
  const kernels::WeightFormat parsed = ParseFormat(format);
  CheckPacked("packed", packed, format, x.size(-1));
  CheckRowSize("x", x.size(-1));
  CheckWeightType(x, format);
  const Rows rows(x, kCudaAlignment);
  std::optional<Rows> b;
  if (bias) b = Dense(torch::stable::unsqueeze(*bias, 0));
  const int64_t n = packed.size(0);
  OnDevice(x, [&](cuda::Stream stream) {
    for (int64_t begin = 0; begin < rows.m(); begin += cuda::kMaxGemvRows) {
      cuda::Gemv(
          {.format = parsed,
           .dtype = DTypeOf(x),
           .weight = packed.const_data_ptr(),
           .n = n,
           .k = rows.n(),
           .x = rows.data<char>() + begin * rows.ld() * static_cast<int64_t>(x.element_size()),
           .ldx = rows.ld(),
           .m = std::min(cuda::kMaxGemvRows, rows.m() - begin),
           .bias = b ? b->data() : nullptr,
           .y = static_cast<char*>(out.mutable_data_ptr()) +
                begin * n * static_cast<int64_t>(out.element_size()),
           .ldy = n,
           .float_output = float_output},
          stream);
    }
  });
  return out;
}

Tensor UnpackWeight(const Tensor& packed, std::string_view format, int64_t k) {
  Tensor out = outputs::UnpackWeight(packed, format, k);
  CheckPacked("packed", packed, format, k);
  const kernels::WeightFormat parsed = ParseFormat(format);
  if (!IsQuantized(parsed)) return torch::stable::copy_(out, ViewAs(packed, PlainType(parsed)));
  // One product and zeros per sum, so nothing is rounded.
  const Tensor ones = CallTorch("aten::eye", "", k, std::optional(ScalarType::Half), std::nullopt,
                                std::optional(packed.device()), std::nullopt);
  return torch::stable::copy_(
      out, torch::stable::transpose(Linear(ones, packed, format, {}, true), 0, 1));
}

}  // namespace
}  // namespace mlc_native::ops

MLC_NATIVE_OPS_IMPL(MLC_NATIVE_OPS_CUDA_KEY, m) {
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
