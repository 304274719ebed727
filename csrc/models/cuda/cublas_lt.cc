#include "models/cuda/cublas_lt.h"

#include <algorithm>
#include <string>
#include <utility>

#include "support/check.h"

namespace mlc_native {
namespace {

using namespace cublas_lt;  // NOLINT: the vocabulary of this file
using kernels::cuda::GemvArgs;

int TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      break;
    case DType::kBFloat16:
      return cublas_lt::kBFloat16;
    case DType::kFloat16:
      return cublas_lt::kFloat16;
  }
  return cublas_lt::kFloat32;
}

}  // namespace

CublasLt::CublasLt(int device, Log log, size_t memory_bytes) : log_(std::move(log)) {
  const bool is_gpu = !kernels::cuda::GetDeviceInfo(device).is_emulated;
  std::string reason;
  if (!Open(is_gpu, &api_, &reason)) {
    if (is_gpu) Warn(reason.c_str());
  } else if (api_.create(&handle_) != kSuccess) {
    handle_ = nullptr;
    Warn("it cannot be initialized");
  } else {
    workspace_ = kernels::cuda::DeviceMemory(memory_bytes / 2);
    floats_ = kernels::cuda::DeviceMemory(memory_bytes / 2);
  }
}

CublasLt::~CublasLt() {
  for (const auto& [shape, product] : products_) Destroy(product);
  if (handle_ != nullptr) api_.destroy(handle_);
}

void CublasLt::Warn(const char* what) {
  if (!has_warned_) {
    log_.Write(LogLevel::kWarning,
               std::string("prompts are computed without cuBLASLt, slowly: ") + what);
  }
  has_warned_ = true;
}

bool CublasLt::Multiply(const GemvArgs& args, kernels::cuda::Stream stream) {
  if (handle_ == nullptr) return false;
  if (args.format == kernels::FormatOf(args.dtype)) return MultiplyFloats(args, stream);
  return args.m >= kManyQuantizedRows && MultiplyQuantized(args, stream);
}

bool CublasLt::MultiplyQuantized(const GemvArgs& args, kernels::cuda::Stream stream) {
  constexpr int64_t kAlign =
      128;  // outputs: parts start at multiples of 256 bytes, like buffers do
  const auto size = static_cast<int64_t>(DTypeSize(args.dtype));
  const int64_t rows = static_cast<int64_t>(floats_.size()) / (args.k * size) / kAlign * kAlign;
  const int64_t y_size = args.float_output ? static_cast<int64_t>(sizeof(float)) : size;
  if (rows == 0) return false;
  GemvArgs part = args;
  part.format = kernels::FormatOf(args.dtype);
  part.weight = floats_.data();
  for (int64_t row = 0; row < args.n; row += rows) {
    part.n = std::min(rows, args.n - row);
    if (args.bias != nullptr) part.bias = static_cast<const char*>(args.bias) + row * size;
    part.y = static_cast<char*>(args.y) + row * y_size;
    kernels::cuda::Dequantize({.format = args.format,
                               .dtype = args.dtype,
                               .weight = args.weight,
                               .n = args.n,
                               .k = args.k,
                               .first_row = row,
                               .num_rows = part.n,
                               .out = floats_.data()},
                              stream);
    if (!MultiplyFloats(part, stream)) return false;
  }
  return true;
}

bool CublasLt::MultiplyFloats(const GemvArgs& args, kernels::cuda::Stream stream) {
  MLC_CHECK(!args.accumulate && (args.bias == nullptr || !args.float_output));
  const Shape shape{.m = args.m,
                    .n = args.n,
                    .k = args.k,
                    .ldx = args.ldx,
                    .ldy = args.ldy,
                    .dtype = args.dtype,
                    .float_output = args.float_output,
                    .has_bias = args.bias != nullptr};
  auto found = products_.find(shape);
  if (found == products_.end()) found = products_.emplace(shape, MakeProduct(shape)).first;
  Product& product = found->second;
  if (!product.is_usable) return false;
  if (shape.has_bias && api_.desc_set(product.desc, DescAttribute::kBiasPointer, &args.bias,
                                      sizeof(args.bias)) != kSuccess) {
    product.is_usable = false;
    return false;
  }
  const float one = 1.0f;
  const float zero = 0.0f;
  const int status =
      api_.matmul(handle_, product.desc, &one, args.weight, product.w, args.x, product.x, &zero,
                  args.y, product.y, args.y, product.y, &product.algorithm, workspace_.data(),
                  workspace_.size(), stream.handle());
  if (status == kSuccess) return true;
  product.is_usable = false;
  Warn(("a product failed with status " + std::to_string(status)).c_str());
  return false;
}

CublasLt::Product CublasLt::MakeProduct(const Shape& shape) {
  Product product;
  product.is_usable = Describe(shape, &product) && FindAlgorithm(&product);
  if (!product.is_usable) Warn("it has no algorithm for a product");
  return product;
}

// Row-major [m, n] is column-major [n, m]: y^T = w x^T, where w is stored as the transpose of the
// operand.
bool CublasLt::Describe(const Shape& shape, Product* product) const {
  const int type = TypeOf(shape.dtype);
  const auto layout = [&](Layout* out, int element, int64_t rows, int64_t columns, int64_t ld) {
    return api_.layout_create(out, element, static_cast<uint64_t>(rows),
                              static_cast<uint64_t>(columns), ld) == kSuccess;
  };
  const auto set = [&](DescAttribute attribute, const auto& value) {
    return api_.desc_set(product->desc, attribute, &value, sizeof(value)) == kSuccess;
  };
  if (api_.desc_create(&product->desc, kComputeFloat32, cublas_lt::kFloat32) != kSuccess ||
      !set(DescAttribute::kTransA, kTranspose) ||
      !layout(&product->w, type, shape.k, shape.n, shape.k) ||
      !layout(&product->x, type, shape.k, shape.m, shape.ldx) ||
      !layout(&product->y, shape.float_output ? cublas_lt::kFloat32 : type, shape.n, shape.m,
              shape.ldy)) {
    return false;
  }
  return !shape.has_bias ||
         (set(DescAttribute::kEpilogue, kEpilogueBias) && set(DescAttribute::kBiasType, type));
}

bool CublasLt::FindAlgorithm(Product* product) const {
  Preference preference = nullptr;
  if (api_.preference_create(&preference) != kSuccess) return false;
  const uint64_t bytes = workspace_.size();
  Heuristic heuristic{};
  int found = 0;
  const bool is_found = api_.preference_set(preference, PreferenceAttribute::kMaxWorkspaceBytes,
                                            &bytes, sizeof(bytes)) == kSuccess &&
                        api_.preference_set(preference, PreferenceAttribute::kReductionSchemeMask,
                                            &kReductionNone, sizeof(kReductionNone)) == kSuccess &&
                        api_.heuristic(handle_, product->desc, product->w, product->x, product->y,
                                       product->y, preference, 1, &heuristic, &found) == kSuccess &&
                        found == 1 && heuristic.status == kSuccess;
  api_.preference_destroy(preference);
  product->algorithm = heuristic.algorithm;
  return is_found;
}

void CublasLt::Destroy(const Product& product) const {
  for (Layout layout : {product.w, product.x, product.y}) {
    if (layout != nullptr) api_.layout_destroy(layout);
  }
  if (product.desc != nullptr) api_.desc_destroy(product.desc);
}

}  // namespace mlc_native
