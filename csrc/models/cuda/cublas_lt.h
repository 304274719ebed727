// Products of many rows of prompts through cuBLASLt (CudaDecoder::ManyRows). Without that library
// the decoder's own kernels compute them, which is logged once. Quantized weights are
// dequantized part by part if there are enough rows for it to pay (the number is not measured yet).
//
// The algorithm for each shape is looked up once. No algorithm splits k over blocks whose results
// are added, so the same product has the same bits; but unlike with Gemv, the bits of a row may
// depend on the number of rows. For few rows the first suggestion can take seven times as long as
// another one (measured on an H100), so all are timed; only those with the bits of the first are
// taken, so that time decides about nothing else. Engine's thread only.
#pragma once

#include <compare>
#include <map>
#include <memory>
#include <vector>

#include "kernels/cuda/products.h"
#include "kernels/cuda/runtime.h"
#include "mlc_native/detail/log.h"
#include "models/cuda/cublas_lt_api.h"

namespace mlc_native {

class CublasLt {
 public:
  // For a device, which is current.
  explicit CublasLt(int device, Log log = {}, size_t memory_bytes = kMemoryBytes);
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  // The device memory that it needs if there is a cuBLASLt.
  static constexpr size_t kMemoryBytes = size_t{64} << 20;
  // From this number of rows on, quantized weights are dequantized.
  static constexpr int64_t kManyQuantizedRows = 4 * kernels::cuda::kMaxGemvRows;

  // Up to this number of rows the algorithms are timed.
  static constexpr int64_t kFewRows = 256;

  // Returns false if it did nothing. The first call of a shape looks up its algorithm and may wait
  // for the stream, so it must not be captured in a graph.
  bool Multiply(const kernels::cuda::GemvArgs& args, kernels::cuda::Stream stream);

 private:
  struct Shape {
    int64_t m, n, k, ldx, ldy;
    DType dtype;
    bool float_output, has_bias;
    auto operator<=>(const Shape&) const = default;
  };
  struct Product {  // y^T = w x^T, column-major
    cublas_lt::Desc desc = nullptr;
    cublas_lt::Layout w = nullptr;
    cublas_lt::Layout x = nullptr;
    cublas_lt::Layout y = nullptr;
    cublas_lt::Algorithm algorithm{};
    bool is_usable = false;
  };

  void Warn(const char* what);
  bool MultiplyQuantized(const kernels::cuda::GemvArgs& args, kernels::cuda::Stream stream);
  bool MultiplyFloats(const kernels::cuda::GemvArgs& args, kernels::cuda::Stream stream);
  Product MakeProduct(const Shape& shape, const kernels::cuda::GemvArgs& args,
                      kernels::cuda::Stream stream);
  bool Describe(const Shape& shape, Product* product) const;
  // What the library suggests, the best first.
  std::vector<cublas_lt::Algorithm> FindAlgorithms(const Product& product, int at_most) const;
  // The fastest one for the arguments; writes their y.
  cublas_lt::Algorithm Fastest(const std::vector<cublas_lt::Algorithm>& algorithms,
                               const Product& product, const kernels::cuda::GemvArgs& args,
                               kernels::cuda::Stream stream) const;
  // The library's status.
  int Launch(const Product& product, const kernels::cuda::GemvArgs& args,
             const cublas_lt::Algorithm& algorithm, kernels::cuda::Stream stream) const;
  void Destroy(const Product& product) const;

  cublas_lt::Api api_{};
  cublas_lt::Handle handle_ = nullptr;     // null: there is none
  kernels::cuda::DeviceMemory workspace_;  // for cuBLASLt
  kernels::cuda::DeviceMemory floats_;     // a part of a quantized weight, dequantized
  std::map<Shape, Product> products_;
  const Log log_;
  bool has_warned_ = false;
};

}  // namespace mlc_native
