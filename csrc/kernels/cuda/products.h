// Products of rows with weights on CUDA, and how the weights are packed for them. What holds for
// all kernels is in kernels.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/rowwise.h"
#include "kernels/cuda/stream.h"
#include "kernels/formats.h"
#include "mlc_native/detail/basic_types.h"

namespace mlc_native::kernels::cuda {

// The norm of a row of the residual, as AddNorm computes it.
struct RowNorm {
  const void* weight = nullptr;  // [k], of the product's dtype
  float weight_offset = 0.0f;
  float eps = 1e-6f;
};

// y[m, n] = x[m, k] w^T (+ bias[n]), m at most kMaxGemvRows, k a multiple of 8. Weights:
//   kFloat32, kBFloat16, kFloat16   row-major [n, k], of the type of x
//   kQ8, kQ4, kMxfp4                PackGemvWeights' layout; x of 16 bits
//   kQ8Group32, kQ4Affine           PackGemvWeights' layout; x of float16
//   kFloat8, kFp4Group16            PackGemvWeights' layout; x of bfloat16
// Products of 16-bit types may go on with what they have computed, instead of storing it:
//   activates   y[m, n / 2] = act(the first n / 2) * the others, or y[m, n] = act(all) without a
//               gate, with the bits of Gemv and Activate. Not kXielu
//   accumulate  y += the product as it would have been stored, with the bits of Gemv and AddNorm
// A product of one row (m = 1) may begin with what comes before it:
//   normalizes  x is float32, a row of the residual, and the product is that of its norm, with the
//               bits of AddNorm and Gemv. Each block computes the norm for itself
struct GemvArgs {
  WeightFormat format = WeightFormat::kBFloat16;
  DType dtype = DType::kBFloat16;  // of x, y and bias
  const void* weight = nullptr;
  int64_t n = 0;
  int64_t k = 0;
  const void* x = nullptr;
  int64_t ldx = 0;
  int64_t m = 0;
  const void* bias = nullptr;
  void* y = nullptr;  // of `dtype`, or float32
  int64_t ldy = 0;
  bool float_output = false;  // logits
  bool accumulate = false;    // float_output only: the residual stream
  bool activates = false;     // neither float_output nor accumulate
  ActivationRule activation{};
  bool normalizes = false;  // Gemv only; not accumulate. k is at most kMaxNormGemvK
  RowNorm norm{};
};
inline constexpr int64_t kMaxNormGemvK = 4096;
inline constexpr int64_t kMaxGemvRows = 32;
void Gemv(const GemvArgs& args, Stream stream);
void CheckActivation(const GemvArgs& args);          // that it is one that products have
void NormGemv(const GemvArgs& args, Stream stream);  // Gemv's products that normalize

// The same for up to kMaxBatchRows rows with activations of 16 bits, on GPUs with clusters (compute
// capability 9.0 and later), and the same bits. Faster than Gemv from about 9 rows on: there Gemv
// leaves more than 16 rows, or 8 of a weight without scales, to it.
inline constexpr int64_t kMaxBatchRows = 128;
bool HasBatchGemv(const GemvArgs& args);
void BatchGemv(const GemvArgs& args, Stream stream);

// The same for any m, and the same bits: a row's sums have Gemv's order whatever m is. Slower than
// Gemv where rows are few. It does not activate.
void Gemm(const GemvArgs& args, Stream stream);

// The same of weights that are not quantized, with activations of 16 bits, on GPUs of compute
// capability 9.0, and the same bits. It does not activate. Faster than the others from about 65
// rows on. Gemm leaves them to it there.
bool HasWarpgroupGemm(const GemvArgs& args);
void WarpgroupGemm(const GemvArgs& args, Stream stream);

// Packs codes and scales of a quantized weight [n, k] in the order in which lanes load them. Values
// are scale * (code - offset), with float16 scales, offset 128 or 8 and groups of 64 or 32 k; of
// kQ4Affine a shift in float16, which is behind each scale, is added to the difference; of kMxfp4
// they are scale * kMxfp4Doubled[code] (packed_format.h), with bfloat16 scales and groups of 32; of
// kFp4Group16 the same, rounded to bfloat16, with groups of 16; of kFloat8 they are scale * the
// E4M3 number, with float32 scales and groups of 64. k is padded to a multiple of kGemvStep with
// zeros (of kQ4Affine, products skip it). Runs on the host.
inline constexpr int64_t kGemvStep = 128;
size_t GemvWeightBytes(WeightFormat format, int64_t n, int64_t k);
struct QuantizedRows {
  const uint8_t* codes = nullptr;    // [n, k], one byte each
  const uint16_t* scales = nullptr;  // [n, groups]; of kFloat8 and kQ4Affine, two each
};
void PackGemvWeights(WeightFormat format, int64_t n, int64_t k, const QuantizedRows& rows,
                     void* packed);

// out[i, 0:k] = row first_row + i of such a weight, with each value rounded to `dtype`. For
// products of many rows.
struct DequantizeArgs {
  WeightFormat format = WeightFormat::kQ8;
  DType dtype = DType::kBFloat16;  // of 16 bits
  const void* weight = nullptr;
  int64_t n = 0;
  int64_t k = 0;  // a multiple of 8
  int64_t first_row = 0;
  int64_t num_rows = 0;
  void* out = nullptr;  // [num_rows, k]
};
void Dequantize(const DequantizeArgs& args, Stream stream);

}  // namespace mlc_native::kernels::cuda
