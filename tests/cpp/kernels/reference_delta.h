// The gated delta rule of one sequence in double precision, and the inputs of its tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/delta_shape.h"
#include "kernels/reference.h"

namespace mlc_native::kernels::reference {

struct DeltaInputs {
  using Floats = std::vector<float>;

  DeltaShape shape;
  int64_t rows = 0;
  Floats inputs;          // [rows, width]
  Floats gates;           // [rows, shape.gates()]
  Floats channel_decays;  // [rows, shape.decays()], where channels decay
  Floats convolution, decay, bias, norm;
  double norm_eps = 1e-5, beta_scale = 1;

  DeltaInputs(const DeltaShape& of, int64_t num_rows, std::mt19937& random)
      : shape(of), rows(num_rows) {
    const auto draw = [&](int64_t n, float amplitude, float mean = 0) {
      std::uniform_real_distribution<float> uniform(mean - amplitude, mean + amplitude);
      Floats values(static_cast<size_t>(n));
      for (float& value : values) value = uniform(random);
      return values;
    };
    inputs = draw(rows * width(), 1);
    gates = draw(rows * shape.gates(), 2);
    convolution = draw(shape.conv_width * shape.channels(), 1);
    decay = draw(shape.value_heads, 1);
    bias = draw(shape.decays(), 1, -3);  // forgets slowly, so that early rows count
    norm = draw(shape.value_dim, 1);
    if (shape.decays_channels) channel_decays = draw(rows * shape.decays(), 6);
  }

  int64_t width() const { return shape.channels() + shape.values(); }

  // The same with rows [begin, begin + count) alone: a computation that reads others gives NaN.
  DeltaInputs WithRowsAlone(int64_t begin, int64_t count) const {
    DeltaInputs alone = *this;
    const auto keep = [&](Floats& values, int64_t columns) {
      std::fill_n(values.begin(), begin * columns, std::nanf(""));
      std::fill(values.begin() + (begin + count) * columns, values.end(), std::nanf(""));
    };
    keep(alone.inputs, width());
    keep(alone.gates, shape.gates());
    if (shape.decays_channels) keep(alone.channel_decays, shape.decays());
    return alone;
  }
};

inline double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// silu of the convolution of a channel at a row.
inline double Convolved(const DeltaInputs& in, int64_t row, int64_t channel) {
  double sum = 0;
  for (int64_t i = 0; i < in.shape.conv_width; ++i) {
    const int64_t from = row - (in.shape.conv_width - 1) + i;
    if (from < 0) continue;
    sum += static_cast<double>(in.convolution[i * in.shape.channels() + channel]) *
           in.inputs[from * in.width() + channel];
  }
  return sum * Sigmoid(sum);
}

// The elements of a head, with this length; 0: as they are.
inline std::vector<double> HeadOf(const DeltaInputs& in, int64_t row, int64_t first, int64_t dim,
                                  double length) {
  std::vector<double> x(dim);
  double squares = 1e-6;
  for (int64_t i = 0; i < dim; ++i) {
    x[i] = Convolved(in, row, first + i);
    squares += x[i] * x[i];
  }
  for (double& value : x) value *= length == 0 ? 1 : length / std::sqrt(squares);
  return x;
}

// What the rows of a head's state are multiplied with.
inline std::vector<double> DecaysOf(const DeltaInputs& in, int64_t row, int64_t head) {
  const DeltaShape& s = in.shape;
  const auto decay = [&](double x, int64_t i) {
    return std::exp(-std::exp(in.decay[head]) * std::log1p(std::exp(x + in.bias[i])));
  };
  if (!s.decays_channels) {
    const float a = in.gates[row * s.gates() + s.value_heads + head];
    return std::vector<double>(s.key_dim, decay(a, head));
  }
  std::vector<double> decays;
  for (int64_t i = head * s.key_dim; i < (head + 1) * s.key_dim; ++i) {
    decays.push_back(decay(in.channel_decays[row * s.decays() + i], i));
  }
  return decays;
}

inline void DeltaHead(const DeltaInputs& in, int64_t head, Matrix* out) {
  const DeltaShape& s = in.shape;
  const int64_t key = head / (s.value_heads / s.key_heads) * s.key_dim;
  std::vector<double> state(s.key_dim * s.value_dim);
  for (int64_t row = 0; row < in.rows; ++row) {
    const auto q = HeadOf(in, row, key, s.key_dim, 1 / std::sqrt(static_cast<double>(s.key_dim)));
    const auto k = HeadOf(in, row, s.keys() + key, s.key_dim, 1);
    const auto v = HeadOf(in, row, 2 * s.keys() + head * s.value_dim, s.value_dim, 0);
    const std::vector<double> decays = DecaysOf(in, row, head);
    const double beta = in.beta_scale * Sigmoid(in.gates[row * s.gates() + head]);
    std::vector<double> o(s.value_dim);
    double squares = 0;
    for (int64_t j = 0; j < s.value_dim; ++j) {
      double recalled = 0;
      for (int64_t i = 0; i < s.key_dim; ++i) {
        double& cell = state[i * s.value_dim + j];
        cell *= decays[i];
        recalled += cell * k[i];
      }
      const double written = beta * (v[j] - recalled);
      for (int64_t i = 0; i < s.key_dim; ++i) {
        double& cell = state[i * s.value_dim + j];
        cell += k[i] * written;
        o[j] += cell * q[i];
      }
      squares += o[j] * o[j];
    }
    const double scale = 1 / std::sqrt(squares / static_cast<double>(s.value_dim) + in.norm_eps);
    for (int64_t j = 0; j < s.value_dim; ++j) {
      const double z = in.inputs[row * in.width() + s.channels() + head * s.value_dim + j];
      (*out)[row * s.values() + head * s.value_dim + j] =
          o[j] * scale * in.norm[j] * (s.decays_channels ? 1 : z) * Sigmoid(z);
    }
  }
}

// [rows, values]
inline Matrix DeltaRule(const DeltaInputs& in) {
  Matrix out(in.rows * in.shape.values());
  for (int64_t head = 0; head < in.shape.value_heads; ++head) DeltaHead(in, head, &out);
  return out;
}

}  // namespace mlc_native::kernels::reference
