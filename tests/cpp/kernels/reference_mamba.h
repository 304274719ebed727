// Mamba-2 of one sequence in double precision, and the inputs of its tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "kernels/reference_delta.h"

namespace mlc_native::kernels::reference {

struct MambaInputs {
  using Floats = std::vector<float>;

  DeltaShape shape{};
  int64_t rows = 0;
  Floats inputs, convolution, conv_bias, decay, step_bias, skip, norm;
  float shortest_step = 0;
  float longest_step = std::numeric_limits<float>::infinity();
  float norm_eps = 1e-5f;

  // Steps are short, so that early rows count.
  MambaInputs(const DeltaShape& of, int64_t num_rows, std::mt19937& random)
      : shape(of), rows(num_rows) {
    const auto draw = [&](int64_t n, float mean = 0) {
      std::uniform_real_distribution<float> uniform(mean - 1, mean + 1);
      Floats values(static_cast<size_t>(n));
      for (float& value : values) value = uniform(random);
      return values;
    };
    inputs = draw(rows * width());
    convolution = draw(shape.conv_width * shape.channels());
    conv_bias = draw(shape.channels());
    decay = draw(shape.value_heads);
    step_bias = draw(shape.value_heads, -3);
    skip = draw(shape.value_heads);
    norm = draw(shape.values());
  }

  int64_t width() const { return shape.values() + shape.channels() + shape.value_heads; }

  // The same with rows [begin, begin + count) alone: a computation that reads others gives NaN.
  MambaInputs WithRowsAlone(int64_t begin, int64_t count) const {
    MambaInputs alone = *this;
    std::fill_n(alone.inputs.begin(), begin * width(), std::nanf(""));
    std::fill(alone.inputs.begin() + (begin + count) * width(), alone.inputs.end(), std::nanf(""));
    return alone;
  }

  // silu of the convolution of a channel at a row.
  double Convolved(int64_t row, int64_t channel) const {
    double sum = conv_bias.empty() ? 0 : conv_bias[static_cast<size_t>(channel)];
    for (int64_t i = 0; i < shape.conv_width; ++i) {
      const int64_t from = row - (shape.conv_width - 1) + i;
      if (from < 0) continue;
      sum += double{convolution[static_cast<size_t>(i * shape.channels() + channel)]} *
             inputs[static_cast<size_t>(from * width() + shape.values() + channel)];
    }
    return sum * Sigmoid(sum);
  }
};

// What a head gives with its gate, before the norm.
inline void MambaHead(const MambaInputs& in, int64_t head, Matrix* out) {
  const DeltaShape& s = in.shape;
  const int64_t key = s.values() + head / (s.value_heads / s.key_heads) * s.key_dim;
  std::vector<double> state(static_cast<size_t>(s.key_dim * s.value_dim));
  std::vector<double> keys(static_cast<size_t>(s.key_dim)), queries(keys);
  for (int64_t row = 0; row < in.rows; ++row) {
    const float* const inputs = &in.inputs[static_cast<size_t>(row * in.width())];
    const double t =
        double{inputs[s.values() + s.channels() + head]} + in.step_bias[static_cast<size_t>(head)];
    const double step =
        std::clamp<double>(std::log1p(std::exp(t)), in.shortest_step, in.longest_step);
    const double decay = std::exp(-std::exp(in.decay[static_cast<size_t>(head)]) * step);
    for (int64_t i = 0; i < s.key_dim; ++i) {
      keys[static_cast<size_t>(i)] = in.Convolved(row, key + i);
      queries[static_cast<size_t>(i)] = in.Convolved(row, key + s.keys() + i);
    }
    for (int64_t j = 0; j < s.value_dim; ++j) {
      const double v = in.Convolved(row, head * s.value_dim + j);
      double o = in.skip[static_cast<size_t>(head)] * v;
      for (int64_t i = 0; i < s.key_dim; ++i) {
        double& cell = state[static_cast<size_t>(i * s.value_dim + j)];
        cell = decay * cell + keys[static_cast<size_t>(i)] * step * v;
        o += cell * queries[static_cast<size_t>(i)];
      }
      const double z = inputs[head * s.value_dim + j];
      (*out)[static_cast<size_t>(row * s.values() + head * s.value_dim + j)] = o * z * Sigmoid(z);
    }
  }
}

// [rows, values]
inline Matrix Mamba(const MambaInputs& in) {
  const DeltaShape& s = in.shape;
  Matrix out(static_cast<size_t>(in.rows * s.values()));
  for (int64_t head = 0; head < s.value_heads; ++head) MambaHead(in, head, &out);
  const int64_t size = s.values() / s.key_heads;
  for (int64_t i = 0; !in.norm.empty() && i < in.rows * s.key_heads; ++i) {
    double* const group = &out[static_cast<size_t>(i * size)];
    double squares = 0;
    for (int64_t j = 0; j < size; ++j) squares += group[j] * group[j];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(size) + in.norm_eps);
    for (int64_t j = 0; j < size; ++j) {
      group[j] *= scale * in.norm[static_cast<size_t>(i % s.key_heads * size + j)];
    }
  }
  return out;
}

}  // namespace mlc_native::kernels::reference
