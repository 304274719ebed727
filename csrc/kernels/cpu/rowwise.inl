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

inline float SumOf(const float* x, int64_t n) {
  Vec sum = Vec::Zero();
  ForVectors(n, [&](int64_t, auto load, auto) { sum = sum + load(x); });
  return Sum(sum);
}

inline float SumOfSquaredDifferences(const float* x, int64_t n, float mean) {
  const Vec middle = Vec::Set(mean);
  Vec sum = Vec::Zero();
  int64_t i = 0;
  for (; i + Vec::kLanes <= n; i += Vec::kLanes) {
    const Vec difference = Vec::Load(x + i) - middle;
    sum = Fma(difference, difference, sum);
  }
  float total = Sum(sum);
  for (; i < n; ++i) total += (x[i] - mean) * (x[i] - mean);
  return total;
}

inline void AddRow(float* x, const float* r, int64_t n) {
  ForVectors(n, [&](int64_t, auto load, auto store) { store(x, load(x) + load(r)); });
}

// One span of a row.
inline void RmsNormalize(const NormalizeArgs& a, const float* x, const float* weight, float* y) {
  const Vec offset = Vec::Set(a.weight_offset);
  const float mean = SumOfSquares(x, a.dim) / static_cast<float>(a.dim);
  const Vec inverse = Vec::Set(1.0f / __builtin_sqrtf(mean + a.eps));
  ForVectors(a.dim, [&](int64_t, auto load, auto store) {
    const Vec normed = load(x) * inverse * (load(weight) + offset);
    store(y, a.accumulate ? load(y) + normed : normed);
  });
}

inline void LayerNormalize(const NormalizeArgs& a, const float* x, const float* weight, float* y) {
  const Vec offset = Vec::Set(a.weight_offset);
  const auto dim = static_cast<float>(a.dim);
  const float mean = SumOf(x, a.dim) / dim;
  const float variance = SumOfSquaredDifferences(x, a.dim, mean) / dim;
  const Vec middle = Vec::Set(mean);
  const Vec inverse = Vec::Set(1.0f / __builtin_sqrtf(variance + a.eps));
  ForVectors(a.dim, [&](int64_t, auto load, auto store) {
    Vec normed = (load(x) - middle) * inverse * (load(weight) + offset);
    if (a.bias != nullptr) normed = normed + load(a.bias);
    store(y, a.accumulate ? load(y) + normed : normed);
  });
}

void NormalizeRows(const NormalizeArgs& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const float* x_row = a.x + row * a.ldx;
    if (a.residual != nullptr) {
      float* sum = a.residual + row * a.ld_residual;
      AddRow(sum, x_row, a.groups * a.dim);
      x_row = sum;
    }
    for (int64_t group = 0; group < a.groups; ++group) {
      const float* x = x_row + group * a.dim;
      const float* weight = a.weight + group * a.ld_weight;
      float* y = a.y + row * a.ldy + group * a.dim;
      if (a.subtract_mean) {
        LayerNormalize(a, x, weight, y);
      } else {
        RmsNormalize(a, x, weight, y);
      }
    }
  }
}

void ScaleRows(const ScaleArgs& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    float* x = a.x + row * a.ld;
    if (a.by_column) {
      ForVectors(a.n, [&](int64_t, auto load, auto store) { store(x, load(x) * load(a.scales)); });
      continue;
    }
    const Vec scale = Vec::Set(a.scales[a.positions == nullptr ? 0 : a.positions[row]]);
    ForVectors(a.n, [&](int64_t, auto load, auto store) { store(x, load(x) * scale); });
  }
}

void AddRows(const AddArgs& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t to = a.rows == nullptr ? row : a.rows[row];
    AddRow(a.sum + to * a.ld_sum, a.x + row * a.ldx, a.n);
  }
}

// The pairs lie side by side, so that the compiler finds the vectors.
template <bool kIsBackward>
inline void RotateNeighbours(float* x, const float* cos, const float* sin, int64_t pairs) {
  for (int64_t i = 0; i < pairs; ++i) {
    const float even = x[2 * i], odd = x[2 * i + 1];
    const float s = kIsBackward ? -sin[i] : sin[i];
    x[2 * i] = even * cos[i] - odd * s;
    x[2 * i + 1] = odd * cos[i] + even * s;
  }
}

void RopeRows(const RopeArgs& a, int64_t begin, int64_t end) {
  const int64_t half = a.rotary_dim / 2;
  for (int64_t row = begin; row < end; ++row) {
    const float* cos = a.cos + a.positions[row] * half;
    const float* sin = a.sin + a.positions[row] * half;
    for (int64_t head = 0; head < a.heads; ++head) {
      float* first = a.x + row * a.ld + head * a.head_dim;
      if (a.interleaved) {
        a.backward ? RotateNeighbours<true>(first, cos, sin, half)
                   : RotateNeighbours<false>(first, cos, sin, half);
        continue;
      }
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

// x Phi(x). The tail Phi(-|x|) is half of erfc(z) = t e^(P(t) - z^2) for z = |x| / sqrt(2) and
// t = 1 / (1 + z / 2), with a relative error below 1.2e-7 (Numerical Recipes, erfcc).
inline Vec Gelu(Vec x) {
  const Vec z = Abs(x) * Vec::Set(0.70710678f);
  const Vec t = Vec::Set(1.0f) / Fma(Vec::Set(0.5f), z, Vec::Set(1.0f));
  Vec p = Vec::Set(0.17087277f);
  for (const float c : {-0.82215223f, 1.48851587f, -1.13520398f, 0.27886807f, -0.18628806f,
                        0.09678418f, 0.37409196f, 1.00002368f, -1.26551223f}) {
    p = Fma(p, t, Vec::Set(c));
  }
  const Vec tail = Vec::Set(0.5f) * t * Exp(p - z * z);
  return x * SelectLess(x, Vec::Zero(), tail, Vec::Set(1.0f) - tail);
}

inline Vec ReluSquared(Vec x) {
  const Vec positive = Max(x, Vec::Zero());
  return positive * positive;
}

inline Vec Xielu(Vec x, float alpha_p, float alpha_n) {
  const Vec half = Vec::Set(0.5f) * x;
  const Vec below = ClampedExp(Min(x, Vec::Set(-1e-6f))) - Vec::Set(1.0f) - x;
  const Vec negative = Fma(Vec::Set(alpha_n), below, half);
  return SelectLess(Vec::Zero(), x, Fma(Vec::Set(alpha_p) * x, x, half), negative);
}

// NaN stays NaN.
inline Vec NotAbove(Vec x, Vec limit) { return SelectLess(limit, x, limit, x); }
inline Vec NotBelow(Vec x, Vec limit) { return SelectLess(x, limit, limit, x); }

// Calls f(act, factor) with the functions on a vector: the gate's, and what the other half becomes
// before they are multiplied.
template <typename F>
inline void WithActivation(const ActivateArgs& a, F f) {
  const auto itself = [](Vec x) { return x; };
  switch (a.activation) {
    case Activation::kSilu:
      return f([](Vec x) { return TimesSigmoid(x, x); }, itself);
    case Activation::kGeluTanh:
      return f([](Vec x) { return GeluTanh(x); }, itself);
    case Activation::kGelu:
      return f([](Vec x) { return Gelu(x); }, itself);
    case Activation::kRelu:
      return f([](Vec x) { return Max(x, Vec::Zero()); }, itself);
    case Activation::kReluSquared:
      return f([](Vec x) { return ReluSquared(x); }, itself);
    case Activation::kXielu:
      return f([&](Vec x) { return Xielu(x, a.alpha_p, a.alpha_n); }, itself);
    case Activation::kClampedSwiGlu: {
      const Vec most = Vec::Set(a.limit), least = Vec::Set(-a.limit);
      const auto gate = [&](Vec x) {
        const Vec cut = NotAbove(x, most);
        return TimesSigmoid(cut, Vec::Set(a.sharpness) * cut);
      };
      return f(gate, [&](Vec x) { return NotBelow(NotAbove(x, most), least) + Vec::Set(1.0f); });
    }
    case Activation::kClampedSilu: {
      const Vec most = Vec::Set(a.limit), least = Vec::Set(-a.limit);
      const auto gate = [&](Vec x) {
        const Vec cut = NotAbove(x, most);
        return TimesSigmoid(cut, cut);
      };
      return f(gate, [&](Vec x) { return NotBelow(NotAbove(x, most), least); });
    }
  }
}

void ActivateRows(const ActivateArgs& a, int64_t begin, int64_t end) {
  WithActivation(a, [&](auto act, auto factor) {
    for (int64_t row = begin; row < end; ++row) {
      const float* x = a.x + row * a.ldx;
      const float* up = x + a.ffn;
      float* out = a.out + row * a.ldo;
      if (a.gated) {
        ForVectors(a.ffn, [&](int64_t, auto load, auto store) {
          store(out, act(load(x)) * factor(load(up)));
        });
      } else {
        ForVectors(a.ffn, [&](int64_t, auto load, auto store) { store(out, act(load(x))); });
      }
    }
  });
}

template <typename Times>
void GateRows(const GateArgs& a, int64_t begin, int64_t end, const Times& times) {
  for (int64_t row = begin; row < end; ++row) {
    const float* gate = a.gate + row * a.ld_gate;
    float* x = a.x + row * a.ldx;
    if (a.per_gate == 1) {
      ForVectors(a.n,
                 [&](int64_t, auto load, auto store) { store(x, times(load(x), load(gate))); });
      continue;
    }
    for (int64_t i = 0; i < a.n; i += a.per_gate) {
      float* part = x + i;
      const Vec of_part = Vec::Set(gate[i / a.per_gate]);
      ForVectors(a.per_gate,
                 [&](int64_t, auto load, auto store) { store(part, times(load(part), of_part)); });
    }
  }
}

void GateRows(const GateArgs& a, int64_t begin, int64_t end) {
  if (a.softplus) {
    return GateRows(a, begin, end, [](Vec x, Vec gate) { return x * Softplus(gate); });
  }
  GateRows(a, begin, end, [](Vec x, Vec gate) { return TimesSigmoid(x, gate); });
}

void CutRows(const CutArgs& a, int64_t begin, int64_t end) {
  const auto n = static_cast<float>(a.n);
  for (int64_t row = begin; row < end; ++row) {
    float* x = a.x + row * a.ld;
    const float mean = SumOf(x, a.n) / n;
    const float deviation = __builtin_sqrtf(SumOfSquaredDifferences(x, a.n, mean) / n);
    const Vec cut = Vec::Set(mean + a.deviations * deviation);
    ForVectors(a.n,
               [&](int64_t, auto load, auto store) { store(x, Max(load(x) - cut, Vec::Zero())); });
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
    const float* weights = a.weights == nullptr ? nullptr : a.weights + row * a.num_chosen;
    const float* shared = a.shared == nullptr ? nullptr : a.shared + row * a.ld_shared;
    Vec factor = Vec::Set(a.shared_scale);
    if (a.shared_gate != nullptr) {
      factor = TimesSigmoid(factor, Vec::Set(a.shared_gate[row * a.ld_gate]));
    }
    float* out = a.out + row * a.ldo;
    ForVectors(a.n, [&](int64_t, auto load, auto store) {
      Vec sum = Vec::Zero();
      for (int64_t j = 0; j < a.num_chosen; ++j) {
        const Vec weight = Vec::Set(weights == nullptr ? 1.0f : weights[j]);
        sum = Fma(weight, load(a.x + places[j] * a.ldx), sum);
      }
      store(out, shared == nullptr ? sum : Fma(factor, load(shared), sum));
    });
  }
}

void SpreadRows(const SpreadArgs& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const float* x = a.x + row * a.ldx;
    for (int64_t j = row * a.num_chosen; j < (row + 1) * a.num_chosen; ++j) {
      float* out = a.out + a.places[j] * a.ldo;
      const Vec weight = Vec::Set(a.weights[j]);
      ForVectors(a.n, [&](int64_t, auto load, auto store) { store(out, weight * load(x)); });
    }
  }
}

}  // namespace
}  // namespace mlc_native::kernels
