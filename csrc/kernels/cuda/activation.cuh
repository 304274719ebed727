// Activations of feed-forward blocks, with fast functions (a few ulp) and without a call. Kernels
// of their own and the ends of products compute the same.
#pragma once

#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/rowwise.h"

namespace mlc_native::kernels::cuda {

// x / (1 + e^-y); near 0 where e^-y is beyond the range.
__device__ inline float TimesSigmoid(float x, float y) {
  return FastDivide(x, 1.0f + Exp2(-kLog2E * y));
}

// x times the normal distribution function of x, by the polynomial of the CPU's kernel.
__device__ inline float Gelu(float x) {
  constexpr float kTerms[] = {-0.82215223f, 1.48851587f, -1.13520398f, 0.27886807f, -0.18628806f,
                              0.09678418f,  0.37409196f, 1.00002368f,  -1.26551223f};
  const float z = 0.70710678f * fabsf(x);
  const float t = FastDivide(1.0f, fmaf(0.5f, z, 1.0f));
  float p = 0.17087277f;
#pragma unroll
  for (const float term : kTerms) p = fmaf(p, t, term);
  const float tail = 0.5f * t * Exp2(kLog2E * (p - z * z));
  return x * (x < 0.0f ? tail : 1.0f - tail);
}

// gate[i] = act(gate[i]) * up[i], or act(gate[i]) without a gate. Not kXielu, which has parameters
// in memory. Of several numbers at once, so that the rule is looked at once and they do not wait
// for each other.
template <int kCount>
__device__ inline void Activated(const ActivationRule& rule, float (&gate)[kCount],
                                 float (&up)[kCount]) {
  if (rule.activation == Activation::kClampedSwiGlu) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      gate[i] = gate[i] > rule.limit ? rule.limit : gate[i];
      up[i] = up[i] > rule.limit ? rule.limit : up[i];
      up[i] = (up[i] < -rule.limit ? -rule.limit : up[i]) + 1.0f;
    }
  }
  if (rule.activation == Activation::kReluSquared || rule.activation == Activation::kRelu) {
    const bool is_squared = rule.activation == Activation::kReluSquared;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      gate[i] = gate[i] > 0.0f ? gate[i] * (is_squared ? gate[i] : 1.0f) : 0.0f;
    }
  } else if (rule.activation == Activation::kGelu) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) gate[i] = Gelu(gate[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      float power = rule.sharpness * gate[i];  // kClampedSwiGlu
      if (rule.activation == Activation::kSilu) power = gate[i];
      if (rule.activation == Activation::kGeluTanh) {  // (1 + tanh(z)) / 2 is the sigmoid of 2 z
        constexpr float kTwoSqrt2OverPi = 1.5957691216057308f;
        power = kTwoSqrt2OverPi * fmaf(0.044715f * gate[i] * gate[i], gate[i], gate[i]);
      }
      gate[i] = TimesSigmoid(gate[i], power);
    }
  }
  if (rule.gated) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) gate[i] *= up[i];
  }
}

}  // namespace mlc_native::kernels::cuda
