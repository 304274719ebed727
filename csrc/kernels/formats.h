// The formats of weights and of KV pages, and the activations, of the CPU's kernels and of CUDA's:
// what they are, without how they lie in memory. Pure functions; any thread. nvcc parses it with
// every .cu, so it includes no header of the standard library that takes time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mlc_native/detail/basic_types.h"

namespace mlc_native::kernels {

// How a packed weight is stored (layouts: packed_format.h), and how Linear computes with it:
//   kFloat32, kFloat16  Products and sums are float32.
//   kBFloat16           The same; ISAs with products of bfloat16 round the activations to it first.
//   kQ8, kQ4            8 or 4 bits and a float16 scale per group of 64 or 32 k. Activations are
//                       rounded to 8 bits with a scale per row and group (kQ4: a power of two), and
//                       products are summed in integers.
//   kQ6                 6 bits and a float16 scale per group of 64 k; computed as kQ8.
//   kMxfp4              OCP's MXFP4: values of 4 bits (0, 0.5, 1, 1.5, 2, 3, 4, 6 and their
//                       negatives) and a power of two per group of 32 k. As kQ4.
//   kQ8Group32          kQ8 with groups of 32 k, as GGUF's Q8_0 has them.
//   kQ4Affine           4 bits, and a float16 scale and shift per group of 32 k: values are
//                       scale * (code - 8 + shift), as of GGUF's Q4_K and Q4_1. As kQ4; the sum of
//                       a group's activations is multiplied by scale * shift in float32.
//   kQ6Affine           The same with 6 bits and code - 32, as of GGUF's Q5_K and Q5_1. As kQ6.
//   kQ6Group16          kQ6 with groups of 16 k, as GGUF's Q6_K and Q5_0 have them.
//   kQ6AffineGroup16    kQ6Affine with groups of 16 k, for matrices whose parts have several of
//                       these types, as queries, keys and values have in GGUF's Q4_K_M.
//   kQ4Group16          kQ4 with groups of 16 k, as GGUF's Q3_K has them.
//   kIq4                kIq4Values of 4 bits and a float16 scale per group of 32 k, as of GGUF's
//                       IQ4_NL and IQ4_XS. As kQ4.
//   kIq3                The same with kIq3Values, as of GGUF's IQ3_XXS.
//   kIq2Group16         kIq2Values of 4 bits and a float16 scale per group of 16 k, as of GGUF's
//                       IQ2_* and IQ1_M. As kQ4.
//   kFp4Group16         The values of kMxfp4 and a float16 scale per group of 16 k, as of NVFP4. As
//                       kQ4.
//   kQ4AffineGroup16    kQ4Affine with groups of 16 k, for matrices whose parts have several of
//                       these types.
//   kQ2AffineGroup16    kQ4Affine with 2 bits, code - 2 and groups of 16 k, as of GGUF's Q2_K.
//   kQ2                 2 bits and a float16 scale per group of 64 k, as of ternary weights: BitNet
//                       and GGUF's TQ1_0 and TQ2_0. As kQ8.
//   kFloat8             FP8 (E4M3) and a float32 scale per group of 64 k. As kBFloat16; the sum of
//                       a group is multiplied by its scale.
// What a checkpoint holds in a format other than kQ8, kQ4 and kQ6 keeps it; nothing else is
// quantized to them, but to kQ8Group32 what is stored in a form that no format holds
// (weight_plan.h).
enum class WeightFormat : uint8_t {
  kFloat32,
  kBFloat16,
  kFloat16,
  kQ8,
  kQ4,
  kMxfp4,
  kQ8Group32,
  kFloat8,
  kQ6,
  kQ4Affine,
  kQ6Affine,
  kQ6Group16,
  kQ6AffineGroup16,
  kQ4Group16,
  kIq4,
  kQ2AffineGroup16,
  kQ4AffineGroup16,
  kFp4Group16,
  kIq3,
  kIq2Group16,
  kQ2,
};

constexpr WeightFormat FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return WeightFormat::kFloat32;
    case DType::kBFloat16:
      return WeightFormat::kBFloat16;
    case DType::kFloat16:
      return WeightFormat::kFloat16;
  }
  return WeightFormat::kFloat32;
}

// The layouts are in kv_format.h.
enum class KvFormat : uint8_t { kFloat32, kBFloat16, kFloat16, kInt8, kFloat8 };

constexpr KvFormat KvFormatOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return KvFormat::kFloat32;
    case DType::kBFloat16:
      return KvFormat::kBFloat16;
    case DType::kFloat16:
      return KvFormat::kFloat16;
  }
  return KvFormat::kFloat32;
}

constexpr int64_t KvElementBytes(KvFormat format) {
  switch (format) {
    case KvFormat::kFloat32:
      return 4;
    case KvFormat::kBFloat16:
    case KvFormat::kFloat16:
      return 2;
    case KvFormat::kInt8:
    case KvFormat::kFloat8:
      return 1;
  }
  return 0;
}
// What the others compute is in their names.
//   kGelu         x times the normal distribution function of x
//   kRelu         max(x, 0)
//   kReluSquared  max(x, 0)^2
//   kXielu        alpha_p x^2 + x / 2 for x > 0, else alpha_n (e^min(x, -1e-6) - 1 - x) + x / 2
//                 (arXiv:2411.13010)
//   kClampedSwiGlu  with a gate g and u, which is cut to [-limit, limit]: (u + 1) h / (1 +
//   e^(-sharpness
//                 h)) for h = min(g, limit)
//   kClampedSilu    likewise: u h / (1 + e^-h); on the CPU alone
enum class Activation : uint8_t {
  kSilu,
  kGeluTanh,
  kReluSquared,
  kXielu,
  kClampedSwiGlu,
  kGelu,
  kRelu,
  kClampedSilu,
};

}  // namespace mlc_native::kernels
