// Mamba-1 of one sequence in double precision, and the inputs of its tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/reference_delta.h"
#include "kernels/scan_shape.h"

namespace mlc_native::kernels::reference {

struct ScanInputs {
  using Floats = std::vector<float>;

  ScanShape shape{};
  int64_t rows = 0;
  Floats inputs, steps, keys, convolution, conv_bias, decay, step_bias, skip;

  // Steps are short, so that early rows count.
  ScanInputs(const ScanShape& of, int64_t num_rows, std::mt19937& random)
      : shape(of), rows(num_rows) {
    const auto draw = [&](int64_t n, float mean = 0) {
      std::uniform_real_distribution<float> uniform(mean - 1, mean + 1);
      Floats values(static_cast<size_t>(n));
      for (float& value : values) value = uniform(random);
      return values;
    };
    inputs = draw(rows * 2 * shape.channels);
    steps = draw(rows * shape.channels);
    keys = draw(rows * 2 * shape.state_dim);
    convolution = draw(shape.conv_width * shape.channels);
    conv_bias = draw(shape.channels);
    decay = draw(shape.state_dim * shape.channels);
    step_bias = draw(shape.channels, -3);
    skip = draw(shape.channels);
  }

  // The same with rows [begin, begin + count) alone: a computation that reads others gives NaN.
  ScanInputs WithRowsAlone(int64_t begin, int64_t count) const {
    ScanInputs alone = *this;
    for (Floats* const of : {&alone.inputs, &alone.steps, &alone.keys}) {
      const int64_t width = std::ssize(*of) / rows;
      std::fill_n(of->begin(), begin * width, std::nanf(""));
      std::fill(of->begin() + (begin + count) * width, of->end(), std::nanf(""));
    }
    return alone;
  }

  // silu of the convolution of a channel at a row.
  double Convolved(int64_t row, int64_t channel) const {
    double sum = conv_bias.empty() ? 0 : conv_bias[static_cast<size_t>(channel)];
    for (int64_t i = 0; i < shape.conv_width; ++i) {
      const int64_t from = row - (shape.conv_width - 1) + i;
      if (from < 0) continue;
      sum += double{convolution[static_cast<size_t>(i * shape.channels + channel)]} *
             inputs[static_cast<size_t>(from * 2 * shape.channels + channel)];
    }
    return sum * Sigmoid(sum);
  }
};

// [rows, channels]
inline Matrix Scan(const ScanInputs& in) {
  const ScanShape& s = in.shape;
  Matrix out(static_cast<size_t>(in.rows * s.channels));
  for (int64_t channel = 0; channel < s.channels; ++channel) {
    const auto c = static_cast<size_t>(channel);
    std::vector<double> state(static_cast<size_t>(s.state_dim));
    for (int64_t row = 0; row < in.rows; ++row) {
      const auto at = static_cast<size_t>(row * s.channels + channel);
      const float* const key = &in.keys[static_cast<size_t>(row * 2 * s.state_dim)];
      const double u = in.Convolved(row, channel);
      const double step = std::log1p(std::exp(double{in.steps[at]} + in.step_bias[c]));
      double o = in.skip[c] * u;
      for (int64_t i = 0; i < s.state_dim; ++i) {
        const double rate = std::exp(in.decay[static_cast<size_t>(i * s.channels + channel)]);
        double& cell = state[static_cast<size_t>(i)];
        cell = std::exp(-rate * step) * cell + key[i] * step * u;
        o += cell * key[s.state_dim + i];
      }
      const double z = in.inputs[static_cast<size_t>((2 * row + 1) * s.channels + channel)];
      out[at] = o * z * Sigmoid(z);
    }
  }
  return out;
}

}  // namespace mlc_native::kernels::reference
