// Kernels whose rows are independent: norms, rope, activations, sums. Included by
// cpu/rowwise_kernels.cc only.
#pragma once

#include "kernels/cpu/vec_math.inl"

namespace mlc_native::kernels {
namespace {

inline float SumOfSquares(const float* x, int64_t n) {
  constexpr int kChains = 4;
  constexpr int64_t kStep = kChains * Vec::kLanes;
  Vec sums[kChains] = {Vec::Zero(), Vec::Zero(), Vec::Zero(), Vec::Zero()};
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    for (int c = 0; c < kChains; ++c) {
      const Vec v = Vec::Load(x + i + c * Vec::kLanes);
      sums[c] = Fma(v, v, sums[c]);
    }
  }
  ForVectors(n - i, [&](int64_t, auto load, auto) {
    const Vec v = load(x + i);
    sums[0] = Fma(v, v, sums[0]);
  });
  return Sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

inline void AddRow(float* x, const float* r, int64_t n) {
  ForVectors(n, [&](int64_t, auto load, auto store) { store(x, load(x) + load(r)); });
}

void NormalizeRows(const NormalizeArgs& a, int64_t begin, int64_t end) {
  const Vec offset = Vec::Set(a.weight_offset);
  for (int64_t row = begin; row < end; ++row) {
    const float* x_row = a.x + row * a.ldx;
    if (a.residual != nullptr) {
      float* sum = a.residual + row * a.ld_residual;
      AddRow(sum, x_row, a.groups * a.dim);
      x_row = sum;
    }
    for (int64_t group = 0; group < a.groups; ++group) {
      const float* x = x_row + group * a.dim;
      float* y = a.y + row * a.ldy + group * a.dim;
      const float mean = SumOfSquares(x, a.dim) / static_cast<float>(a.dim);
      const Vec inverse = Vec::Set(1.0f / __builtin_sqrtf(mean + a.eps));
      ForVectors(a.dim, [&](int64_t, auto load, auto store) {
        const Vec normed = load(x) * inverse * (load(a.weight) + offset);
        store(y, a.accumulate ? load(y) + normed : normed);
      });
    }
  }
}

void RopeRows(const RopeArgs& a, int64_t begin, int64_t end) {
  const int64_t half = a.rotary_dim / 2;
  for (int64_t row = begin; row < end; ++row) {
    const float* cos = a.cos + a.positions[row] * half;
    const float* sin = a.sin + a.positions[row] * half;
    for (int64_t head = 0; head < a.heads; ++head) {
      float* first = a.x + row * a.ld + head * a.head_dim;
      float* second = first + half;
      ForVectors(half, [&](int64_t, auto load, auto store) {
        const Vec x = load(first), y = load(second), c = load(cos), s = load(sin);
        store(first, x * c - y * s);
        store(second, y * c + x * s);
      });
    }
  }
}

// tanh form: 0.5 x (1 + tanh u) = x / (1 + e^-2u) with u = sqrt(2 / pi) (x + 0.044715 x^3).
inline Vec GeluTanh(Vec x) {
  const Vec twice_u =
      x * Fma(x * x, Vec::Set(2 * 0.7978845608f * 0.044715f), Vec::Set(2 * 0.7978845608f));
  return TimesSigmoid(x, twice_u);
}

void ActivateRows(const ActivateArgs& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const float* gate = a.x + row * a.ldx;
    const float* up = gate + a.ffn;
    float* out = a.out + row * a.ldo;
    if (a.activation == Activation::kSilu) {
      ForVectors(a.ffn, [&](int64_t, auto load, auto store) {
        const Vec g = load(gate);
        store(out, TimesSigmoid(g, g) * load(up));
      });
    } else {
      ForVectors(a.ffn, [&](int64_t, auto load, auto store) {
        store(out, GeluTanh(load(gate)) * load(up));
      });
    }
  }
}

void SoftCapRows(const MatrixView& x, float cap, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    float* p = x.data + row * x.ld;
    ForVectors(x.n, [&](int64_t, auto load, auto store) { store(p, CapScore(load(p), cap)); });
  }
}

void MixRows(const MixArgs& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const int32_t* places = a.places + row * a.num_chosen;
    const float* weights = a.weights + row * a.num_chosen;
    const float* shared = a.shared == nullptr ? nullptr : a.shared + row * a.ld_shared;
    Vec factor = Vec::Set(1.0f);
    if (a.shared_gate != nullptr) {
      factor = TimesSigmoid(factor, Vec::Set(a.shared_gate[row * a.ld_gate]));
    }
    float* out = a.out + row * a.ldo;
    ForVectors(a.n, [&](int64_t, auto load, auto store) {
      Vec sum = Vec::Zero();
      for (int64_t j = 0; j < a.num_chosen; ++j) {
        sum = Fma(Vec::Set(weights[j]), load(a.x + places[j] * a.ldx), sum);
      }
      store(out, shared == nullptr ? sum : Fma(factor, load(shared), sum));
    });
  }
}

}  // namespace
}  // namespace mlc_native::kernels
