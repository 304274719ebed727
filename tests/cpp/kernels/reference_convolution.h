// Gated short convolutions of one sequence in double precision, and the inputs of their tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/reference.h"

namespace mlc_native::kernels::reference {

struct ConvolutionSizes {
  int64_t channels;
  int64_t width;
};

struct ConvolutionInputs {
  using Floats = std::vector<float>;

  ConvolutionSizes sizes;
  int64_t rows = 0;
  Floats inputs;   // [rows, 3 channels]
  Floats weights;  // [width, channels]

  ConvolutionInputs(const ConvolutionSizes& of, int64_t num_rows, std::mt19937& random)
      : sizes(of), rows(num_rows) {
    std::uniform_real_distribution<float> uniform(-1, 1);
    inputs.resize(static_cast<size_t>(rows * width()));
    weights.resize(static_cast<size_t>(sizes.width * sizes.channels));
    for (float& value : inputs) value = uniform(random);
    for (float& value : weights) value = uniform(random);
  }

  int64_t width() const { return 3 * sizes.channels; }

  // The same with rows [begin, begin + count) alone: a computation that reads others gives NaN.
  ConvolutionInputs WithRowsAlone(int64_t begin, int64_t count) const {
    ConvolutionInputs alone = *this;
    std::fill_n(alone.inputs.begin(), begin * width(), std::nanf(""));
    std::fill(alone.inputs.begin() + (begin + count) * width(), alone.inputs.end(), std::nanf(""));
    return alone;
  }
};

// [rows, channels]. The first row begins with zeros.
inline Matrix ShortConvolution(const ConvolutionInputs& in) {
  const int64_t n = in.sizes.channels, width = in.sizes.width;
  Matrix out;
  for (int64_t row = 0; row < in.rows; ++row) {
    for (int64_t c = 0; c < n; ++c) {
      double sum = 0;
      for (int64_t i = 0; i < width; ++i) {
        const int64_t from = row - (width - 1) + i;
        if (from < 0) continue;
        const float* const at = &in.inputs[static_cast<size_t>(from * 3 * n + c)];
        sum += double{in.weights[static_cast<size_t>(i * n + c)]} * at[0] * at[2 * n];
      }
      out.push_back(sum * in.inputs[static_cast<size_t>((row * 3 + 1) * n + c)]);
    }
  }
  return out;
}

}  // namespace mlc_native::kernels::reference
