// Products of many rows through cuBLASLt: CudaDecoder::ManyRows. Without that library the decoder's
// own kernels do them, in pieces; that is said once. Quantized weights are made floats part by
// part, where there are so many rows that it should pay (not measured yet).
//
// An algorithm is looked up once for each shape and kept. None of them splits k over blocks that
// add up, so the same product gives the same bits; but a row's bits may depend on how many rows
// there are, which those of Gemv do not. Engine's thread only.
#pragma once

#include <compare>
#include <map>
#include <memory>

#include "kernels/cuda/kernels.h"
#include "models/cuda/cublas_lt_api.h"

namespace mlc_native {

class CublasLt {
 public:
  // For a device, which is current.
  explicit CublasLt(int device, size_t memory_bytes = kMemoryBytes);
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  // Device memory that it takes, if there is a cuBLASLt.
  static constexpr size_t kMemoryBytes = size_t{64} << 20;
  // From so many rows on quantized weights are made floats.
  static constexpr int64_t kManyQuantizedRows = 4 * kernels::cuda::kMaxGemvRows;

  // False: nothing was done. A new shape is looked up, so the first call of one is not for a graph.
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
  Product MakeProduct(const Shape& shape);
  bool Describe(const Shape& shape, Product* product) const;
  bool FindAlgorithm(Product* product) const;
  void Destroy(const Product& product) const;

  cublas_lt::Api api_{};
  cublas_lt::Handle handle_ = nullptr;     // null: there is none
  kernels::cuda::DeviceMemory workspace_;  // cuBLASLt's
  kernels::cuda::DeviceMemory floats_;     // of a part of a quantized weight
  std::map<Shape, Product> products_;
  bool has_warned_ = false;
};

}  // namespace mlc_native
