// Activations of feed-forward blocks, with fast functions (a few ulp) and without a call. Kernels
// of their own and the ends of products compute the same.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/kernels.h"

namespace mlc_native::kernels::cuda {

// x / (1 + e^-y); near 0 where e^-y is beyond the range.
__device__ inline float TimesSigmoid(float x, float y) {
  constexpr float kLog2E = 1.4426950408889634f;
  return FastDivide(x, 1.0f + Exp2(-kLog2E * y));
}

// act(gate) * up, or act(gate) without a gate. Not kXielu, which has parameters in memory.
__device__ inline float Activated(const ActivationRule& rule, float gate, float up) {
  if (rule.activation == Activation::kClampedSwiGlu) {
    gate = gate > rule.limit ? rule.limit : gate;
    up = up > rule.limit ? rule.limit : up;
    up = (up < -rule.limit ? -rule.limit : up) + 1.0f;
  }
  float y;
  if (rule.activation == Activation::kReluSquared) {
    y = gate > 0.0f ? gate * gate : 0.0f;
  } else {
    float power = rule.sharpness * gate;  // kClampedSwiGlu
    if (rule.activation == Activation::kSilu) power = gate;
    if (rule.activation == Activation::kGeluTanh) {  // (1 + tanh(z)) / 2 is the sigmoid of 2 z
      constexpr float kTwoSqrt2OverPi = 1.5957691216057308f;
      power = kTwoSqrt2OverPi * fmaf(0.044715f * gate * gate, gate, gate);
    }
    y = TimesSigmoid(gate, power);
  }
  return rule.gated ? y * up : y;
}

}  // namespace mlc_native::kernels::cuda
