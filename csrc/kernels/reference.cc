#include "kernels/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

namespace mlc_native::kernels::reference {

Matrix Linear(const Matrix& x, const Matrix& w, const Matrix& bias, int64_t m) {
  const auto k = static_cast<int64_t>(x.size()) / m;
  const auto n = static_cast<int64_t>(w.size()) / k;
  Matrix y(m * n);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const double start = bias.empty() ? 0.0 : bias[j];
      const double* row = &x[i * k];
      y[i * n + j] = std::inner_product(row, row + k, &w[j * k], start);
    }
  }
  return y;
}

Matrix Normalize(const Matrix& x, const Matrix& weight, double weight_offset, double eps) {
  const size_t dim = weight.size();
  Matrix y(x.size());
  for (size_t at = 0; at < x.size(); at += dim) {
    double squares = 0;
    for (size_t i = 0; i < dim; ++i) squares += x[at + i] * x[at + i];
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(dim) + eps);
    for (size_t i = 0; i < dim; ++i) y[at + i] = x[at + i] * inverse * (weight[i] + weight_offset);
  }
  return y;
}

Matrix LayerNormalize(const Matrix& x, const Matrix& weight, const Matrix& bias,
                      double weight_offset, double eps) {
  const size_t dim = weight.size();
  Matrix y(x.size());
  for (size_t at = 0; at < x.size(); at += dim) {
    const auto begin = x.begin() + static_cast<int64_t>(at);
    const auto end = begin + static_cast<int64_t>(dim);
    const double mean = std::accumulate(begin, end, 0.0) / static_cast<double>(dim);
    double squares = 0;
    for (auto i = begin; i != end; ++i) squares += (*i - mean) * (*i - mean);
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(dim) + eps);
    for (size_t i = 0; i < dim; ++i) {
      y[at + i] = (x[at + i] - mean) * inverse * (weight[i] + weight_offset);
      if (!bias.empty()) y[at + i] += bias[i];
    }
  }
  return y;
}

Matrix Rope(const Matrix& x, int64_t head_dim, const std::vector<int32_t>& positions,
            const std::vector<double>& inverse_frequencies, bool interleaved) {
  const auto half = static_cast<int64_t>(inverse_frequencies.size());
  const auto m = static_cast<int64_t>(positions.size());
  const int64_t row = static_cast<int64_t>(x.size()) / m;
  Matrix y = x;
  for (int64_t at = 0; at < static_cast<int64_t>(x.size()); at += head_dim) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = positions[at / row] * inverse_frequencies[i];
      const int64_t first = at + (interleaved ? 2 * i : i);
      const int64_t second = interleaved ? first + 1 : first + half;
      const double a = x[first];
      const double b = x[second];
      y[first] = a * std::cos(angle) - b * std::sin(angle);
      y[second] = b * std::cos(angle) + a * std::sin(angle);
    }
  }
  return y;
}

namespace {

double Activated(double x, const ActivationShape& shape) {
  switch (shape.activation) {
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kGelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::kRelu:
      return x > 0 ? x : 0;
    case Activation::kReluSquared:
      return x > 0 ? x * x : 0;
    case Activation::kXielu:
      return x > 0 ? shape.alpha_p * x * x + 0.5 * x
                   : shape.alpha_n * (std::expm1(std::min(x, -1e-6)) - x) + 0.5 * x;
    case Activation::kClampedSwiGlu: {
      const double gate = std::min(x, shape.limit);
      return gate / (1 + std::exp(-shape.sharpness * gate));
    }
    case Activation::kClampedSilu: {
      const double gate = std::min(x, shape.limit);
      return gate / (1 + std::exp(-gate));
    }
  }
  return 0;
}

double Factor(double up, const ActivationShape& shape) {
  const bool adds_one = shape.activation == Activation::kClampedSwiGlu;
  if (!adds_one && shape.activation != Activation::kClampedSilu) return up;
  return std::clamp(up, -shape.limit, shape.limit) + (adds_one ? 1 : 0);
}

}  // namespace

Matrix Activate(const Matrix& x, const ActivationShape& shape) {
  const int64_t width = (shape.gated ? 2 : 1) * shape.ffn;
  const auto m = static_cast<int64_t>(x.size()) / width;
  Matrix y(m * shape.ffn);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < shape.ffn; ++j) {
      const double* row = &x[i * width];
      y[i * shape.ffn + j] =
          Activated(row[j], shape) * (shape.gated ? Factor(row[shape.ffn + j], shape) : 1);
    }
  }
  return y;
}

namespace {

double BiasAt(const DistanceBias& bias, int64_t head, int64_t distance) {
  double sum = 0;
  if (bias.slopes != nullptr) {
    sum -= double{bias.slopes[head]} * static_cast<double>(std::abs(distance));
  }
  if (bias.table != nullptr) {
    const int64_t at = std::clamp(distance, -bias.reach, bias.reach) + bias.reach;
    sum += double{bias.table[head * bias.RowSize() + kDistancePadding + at]};
  }
  return sum;
}

// The sum over x of x times the vector of a table at a distance, of which there may be none.
double ProductAt(const DistanceVectors& vectors, const float* table, int64_t head, int64_t distance,
                 std::span<const double> x) {
  if (table == nullptr) return 0;
  const int64_t at =
      std::clamp(distance, -vectors.reach, vectors.reach) + vectors.reach + kDistancePadding;
  double sum = 0;
  for (size_t e = 0; e < x.size(); ++e) {
    const int64_t row = head * std::ssize(x) + static_cast<int64_t>(e);
    sum += x[e] * double{table[row * DistanceRowSize(vectors.reach) + at]};
  }
  return sum;
}

// One query of a head at a position over keys [first, last]; k and v point at the head's first
// position. The sink is -inf where there is none.
void AttendOne(const AttentionShape& shape, int64_t head, int64_t position, double sink,
               const double* q, const double* k, const double* v, int64_t first, int64_t last,
               double* out) {
  const int64_t stride = shape.kv_heads * shape.head_dim;
  std::vector<double> scores;
  for (int64_t p = first; p <= last; ++p) {
    const auto size = static_cast<size_t>(shape.head_dim);
    double s = std::inner_product(q, q + shape.head_dim, k + p * stride, 0.0);
    s += ProductAt(shape.vectors, shape.vectors.keys, head, p - position, {q, size});
    s +=
        ProductAt(shape.vectors, shape.vectors.queries, head, p - position, {k + p * stride, size});
    s *= shape.scale;
    if (shape.soft_cap > 0) s = shape.soft_cap * std::tanh(s / shape.soft_cap);
    s += BiasAt(shape.bias, head, p - position);
    scores.push_back(s);
  }
  const double best = std::max(sink, *std::max_element(scores.begin(), scores.end()));
  double sum = std::exp(sink - best);
  for (double& s : scores) sum += s = std::exp(s - best);
  for (int64_t d = 0; d < shape.head_dim; ++d) {
    double value = 0;
    for (int64_t p = first; p <= last; ++p) value += scores[p - first] * v[p * stride + d];
    out[d] = value / sum;
  }
}

}  // namespace

Matrix Attention(const AttentionShape& shape, const Matrix& q, const Matrix& k, const Matrix& v,
                 int64_t first_position) {
  const int64_t row_size = shape.q_heads * shape.head_dim;
  const int64_t rows = static_cast<int64_t>(q.size()) / row_size;
  const int64_t group = shape.q_heads / shape.kv_heads;
  Matrix out(q.size());
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t first = shape.window.First(first_position + row);
    const int64_t last = shape.window.Last(first_position + row, shape.last_key);
    for (int64_t head = 0; head < shape.q_heads; ++head) {
      const int64_t at = row * row_size + head * shape.head_dim;
      const int64_t kv = head / group * shape.head_dim;
      const double sink = shape.sinks.empty() ? -std::numeric_limits<double>::infinity()
                                              : shape.sinks[static_cast<size_t>(head)];
      AttendOne(shape, head, first_position + row, sink, &q[at], &k[kv], &v[kv], first, last,
                &out[at]);
    }
  }
  return out;
}

}  // namespace mlc_native::kernels::reference
