#include "models/cuda/cublas_lt.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "support/check.h"

namespace mlc_native {
namespace {

using namespace cublas_lt;  // NOLINT: the vocabulary of this file
using kernels::cuda::GemvArgs;

constexpr int kMaxAlgorithms = 8;  // suggestions that are timed

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
  MLC_CHECK(!args.accumulate && !args.normalizes && (args.bias == nullptr || !args.float_output));
  const Shape shape{.m = args.m,
                    .n = args.n,
                    .k = args.k,
                    .ldx = args.ldx,
                    .ldy = args.ldy,
                    .dtype = args.dtype,
                    .float_output = args.float_output,
                    .has_bias = args.bias != nullptr};
  auto found = products_.find(shape);
  if (found == products_.end()) {
    found = products_.emplace(shape, MakeProduct(shape, args, stream)).first;
  }
  Product& product = found->second;
  if (!product.is_usable) return false;
  const int status = Launch(product, args, product.algorithm, stream);
  if (status == kSuccess) return true;
  product.is_usable = false;
  Warn(("a product failed with status " + std::to_string(status)).c_str());
  return false;
}

int CublasLt::Launch(const Product& product, const GemvArgs& args, const Algorithm& algorithm,
                     kernels::cuda::Stream stream) const {
  if (args.bias != nullptr) {
    const int status =
        api_.desc_set(product.desc, DescAttribute::kBiasPointer, &args.bias, sizeof(args.bias));
    if (status != kSuccess) return status;
  }
  const float one = 1.0f;
  const float zero = 0.0f;
  return api_.matmul(handle_, product.desc, &one, args.weight, product.w, args.x, product.x, &zero,
                     args.y, product.y, args.y, product.y, &algorithm, workspace_.data(),
                     workspace_.size(), stream.handle());
}

CublasLt::Product CublasLt::MakeProduct(const Shape& shape, const GemvArgs& args,
                                        kernels::cuda::Stream stream) {
  Product product;
  std::vector<Algorithm> algorithms;
  if (Describe(shape, &product)) {
    algorithms = FindAlgorithms(product, shape.m <= kFewRows ? kMaxAlgorithms : 1);
  }
  product.is_usable = !algorithms.empty();
  if (!product.is_usable) {
    Warn("it has no algorithm for a product");
  } else {
    product.algorithm = Fastest(algorithms, product, args, stream);
  }
  return product;
}

Algorithm CublasLt::Fastest(const std::vector<Algorithm>& algorithms, const Product& product,
                            const GemvArgs& args, kernels::cuda::Stream stream) const {
  if (algorithms.size() == 1) return algorithms[0];
  constexpr int kRounds = 3;
  constexpr int64_t kMaxCompared = 1 << 20;
  const auto element =
      static_cast<int64_t>(args.float_output ? sizeof(float) : DTypeSize(args.dtype));
  const int64_t bytes = std::min(((args.m - 1) * args.ldy + args.n) * element, kMaxCompared);
  std::vector<std::byte> first, got(static_cast<size_t>(bytes));
  const Algorithm* fastest = &algorithms[0];
  double least = 0;
  for (const Algorithm& algorithm : algorithms) {
    if (Launch(product, args, algorithm, stream) != kSuccess) continue;
    kernels::cuda::CopyToHost(got.data(), args.y, got.size(), stream);
    if (first.empty()) first = got;
    if (got != first) continue;
    kernels::cuda::Event done;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kRounds; ++i) Launch(product, args, algorithm, stream);
    done.Record(stream);
    done.Synchronize();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (least > 0 && seconds.count() >= least) continue;
    least = seconds.count();
    fastest = &algorithm;
  }
  return *fastest;
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

std::vector<Algorithm> CublasLt::FindAlgorithms(const Product& product, int at_most) const {
  Preference preference = nullptr;
  if (api_.preference_create(&preference) != kSuccess) return {};
  const uint64_t bytes = workspace_.size();
  std::vector<Heuristic> heuristics(static_cast<size_t>(at_most));
  int found = 0;
  const bool is_done =
      api_.preference_set(preference, PreferenceAttribute::kMaxWorkspaceBytes, &bytes,
                          sizeof(bytes)) == kSuccess &&
      api_.preference_set(preference, PreferenceAttribute::kReductionSchemeMask, &kReductionNone,
                          sizeof(kReductionNone)) == kSuccess &&
      api_.heuristic(handle_, product.desc, product.w, product.x, product.y, product.y, preference,
                     at_most, heuristics.data(), &found) == kSuccess;
  api_.preference_destroy(preference);
  std::vector<Algorithm> algorithms;
  for (int i = 0; is_done && i < found; ++i) {
    if (heuristics[i].status == kSuccess) algorithms.push_back(heuristics[i].algorithm);
  }
  return algorithms;
}

void CublasLt::Destroy(const Product& product) const {
  for (Layout layout : {product.w, product.x, product.y}) {
    if (layout != nullptr) api_.layout_destroy(layout);
  }
  if (product.desc != nullptr) api_.desc_destroy(product.desc);
}

}  // namespace mlc_native
