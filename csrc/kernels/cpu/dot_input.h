// Inputs of quantized weights: the form that every ISA gives them. Included by the dot_*.h only.
#pragma once

#include <cstdint>

#include "kernels/packed_format.h"

namespace mlc_native::kernels {
namespace {

// A group of inputs of one row in 8 bits.
template <int kGroup>
struct QuantInput {
  float scale;    // values are scale * codes
  int32_t start;  // of the integer sums: -offset of the weights' codes * sum of these codes
  int8_t codes[kGroup];
};

// From the largest magnitude of a group. Groups of nothing but zeros and dust become zeros; where a
// value is not finite, the scale is NaN, and so is every output of the row.
struct InputScale {
  float scale;
  float inverse;

  explicit InputScale(float largest) : scale(0), inverse(0) {
    if (largest <= 1e-30f) return;
    const bool finite = largest < __builtin_inff();
    scale = finite ? largest / 127.0f : __builtin_nanf("");
    inverse = finite ? 127.0f / largest : 0;
  }
};

}  // namespace
}  // namespace mlc_native::kernels
