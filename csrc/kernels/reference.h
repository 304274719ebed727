// Reference implementations that tests compare the kernels with: the same formulas on dense arrays,
// in double precision, one scalar loop each. The engine does not use them. Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernels.h"

namespace mlc_native::kernels::reference {

using Matrix = std::vector<double>;  // dense, row-major

// y[m, n] = x[m, k] w[n, k]^T + bias[n] (empty: none)
Matrix Linear(const Matrix& x, const Matrix& w, const Matrix& bias, int64_t m);

// Normalizes every span of weight.size() values of x by itself.
Matrix Normalize(const Matrix& x, const Matrix& weight, double weight_offset, double eps);
// Likewise, with the mean subtracted. An empty bias: none.
Matrix LayerNormalize(const Matrix& x, const Matrix& weight, const Matrix& bias,
                      double weight_offset, double eps);

// x[m, heads, head_dim]; angle of pair i at position p is p * inverse_frequencies[i].
Matrix Rope(const Matrix& x, int64_t head_dim, const std::vector<int32_t>& positions,
            const std::vector<double>& inverse_frequencies, bool interleaved = false);

// x[m, 2 * ffn] -> [m, ffn]; [m, ffn] -> [m, ffn] without a gate.
struct ActivationShape {
  int64_t ffn = 0;
  Activation activation = Activation::kSilu;
  bool gated = true;
  double alpha_p = 0;
  double alpha_n = 0;
  double sharpness = 1;
  double limit = 0;
};
Matrix Activate(const Matrix& x, const ActivationShape& shape);

struct AttentionShape {
  int64_t q_heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  double scale = 1;
  double soft_cap = 0;
  AttentionWindow window{};
  DistanceBias bias{};
  DistanceVectors vectors{};
  std::vector<double> sinks{};  // by query head; empty: none
  int64_t last_key = 0;         // that rows in front of it see, too, as far as their window goes
};
// q[rows, q_heads, head_dim] at positions first_position...; k, v [positions, kv_heads, head_dim].
Matrix Attention(const AttentionShape& shape, const Matrix& q, const Matrix& k, const Matrix& v,
                 int64_t first_position);

}  // namespace mlc_native::kernels::reference
