// What CUDA computes of each row of activations for itself: norms, activations and soft caps. What
// holds for all kernels is in kernels.h.
#pragma once

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "kernels/formats.h"
#include "mlc_native/detail/basic_types.h"

namespace mlc_native::kernels::cuda {

// With x:             residual[i] += post_weight ? norm(x[i], post_weight) : x[i], and is then
//                     multiplied by the scale
// With y:             y[i] = pre_weight ? norm(residual[i], pre_weight) : residual[i]
// where norm(v, w) = v / sqrt(mean(v^2) + eps) * (w + weight_offset), or, with subtract_mean, that
// of v - mean(v), plus the bias if there is one. Either part may be absent. y may be x.
struct AddNormArgs {
  DType dtype = DType::kBFloat16;  // of x, y and the weights
  float* residual = nullptr;       // [m, dim]
  const void* x = nullptr;         // [m, dim]
  const void* post_weight = nullptr;
  const void* post_bias = nullptr;
  const void* scale = nullptr;  // one number, with x alone; null: 1
  const void* pre_weight = nullptr;
  const void* pre_bias = nullptr;
  void* y = nullptr;   // [m, dim]
  bool keeps = false;  // the residual becomes what y is, before it is rounded; without a scale
  float weight_offset = 0.0f;
  float eps = 1e-6f;
  float post_eps = 0.0f;  // of post_weight; 0: as eps
  bool subtract_mean = false;
  int64_t m = 0;
  int64_t dim = 0;  // a multiple of 8, at most kMaxNormDim
};
inline constexpr int64_t kMaxNormDim = 16384;
void AddNorm(const AddNormArgs& args, Stream stream);

// sums[i] = the sums of squares of two parts of row i of x, which follow one another: q and k.
struct SquareSumsArgs {
  DType dtype = DType::kBFloat16;
  const void* x = nullptr;  // [m, ld]
  int64_t ld = 0;
  int64_t m = 0;
  int64_t dims[2] = {0, 0};  // of the parts, multiples of 8; without elements the sum is 0
  float* sums = nullptr;     // [m, 2]
};
void SquareSums(const SquareSumsArgs& args, Stream stream);

// x[i] = norm(x[i], weight) for m rows of `dim` elements, row stride ld: q or k as a whole.
struct NormalizeArgs {
  DType dtype = DType::kBFloat16;
  void* x = nullptr;
  int64_t ld = 0;
  const void* weight = nullptr;
  float weight_offset = 0.0f;
  float eps = 1e-6f;
  int64_t m = 0;
  int64_t dim = 0;  // a multiple of 8, at most kMaxNormDim
  // Where x is a part of rows of whole_dim elements: their sums of squares, of every second number.
  const float* square_sums = nullptr;
  int64_t whole_dim = 0;
};
void Normalize(const NormalizeArgs& args, Stream stream);

// act(gate) * up, or act(x) without a gate.
struct ActivationRule {
  Activation activation = Activation::kSilu;
  bool gated = true;
  float sharpness = 1.0f;  // of kClampedSwiGlu
  float limit = 0.0f;
};

// out[m, ffn] = act(x[:, 0:ffn]) * x[:, ffn:2*ffn], or act(x[m, ffn]) without a gate; ffn is a
// multiple of 8.
struct ActivateArgs {
  DType dtype = DType::kBFloat16;
  ActivationRule rule{};
  const void* xielu = nullptr;  // of kXielu: [2], alpha_p = softplus of the first and alpha_n = 0.5
                                // + softplus of the second
  const void* x = nullptr;
  void* out = nullptr;
  int64_t m = 0;
  int64_t ffn = 0;
};
void Activate(const ActivateArgs& args, Stream stream);

// gate[i, 0:n] = act(gate[i]) * row rows[i] of `inputs`, or, without rows, row i. Not kXielu.
struct GateInputsArgs {
  DType dtype = DType::kBFloat16;
  Activation activation = Activation::kSilu;
  void* gate = nullptr;           // [m, n]
  const float* inputs = nullptr;  // row stride ld
  int64_t ld = 0;                 // a multiple of 8, and so is n
  const int32_t* rows = nullptr;
  int64_t m = 0;
  int64_t n = 0;
};
void GateInputs(const GateInputsArgs& args, Stream stream);

// x = cap * tanh(x / cap) for n elements.
void SoftCap(float* x, int64_t n, float cap, Stream stream);

}  // namespace mlc_native::kernels::cuda
