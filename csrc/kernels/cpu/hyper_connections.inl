// The steps of hyper-connections (residual_streams.h). Included by cpu/residual_streams.inl only.
#pragma once

#include "kernels/cpu/rowwise.inl"
#include "kernels/residual_streams.h"

namespace mlc_native::kernels {
namespace {

inline float MeanSquare(const float* x, int64_t n) {
  return SumOfSquares(x, n) / static_cast<float>(n);
}

inline void RepeatRow(const StreamStep& a, float* first, const float* x) {
  for (int64_t i = 0; i < a.streams.count; ++i) {
    float* stream = first + i * a.streams.step;
    ForVectors(a.dim, [&](int64_t, auto load, auto store) { store(stream, load(x)); });
  }
}

// out[i] = the product of row i of `mix` and the normalized streams, scaled and shifted.
inline void MixStreams(const StreamStep& a, const float* streams, int64_t rows, float* out) {
  const int64_t count = a.streams.count, n = count * a.dim;
  const float inverse = 1.0f / __builtin_sqrtf(MeanSquare(streams, n) + a.eps);
  for (int64_t i = 0; i < rows; ++i) {
    const float* weight = a.mix + i * n;
    constexpr int kChains = 4;
    constexpr int64_t kStep = kChains * Vec::kLanes;
    Vec sums[kChains] = {Vec::Zero(), Vec::Zero(), Vec::Zero(), Vec::Zero()};
    int64_t at = 0;
    for (; at + kStep <= n; at += kStep) {
      for (int c = 0; c < kChains; ++c) {
        const int64_t d = at + c * Vec::kLanes;
        sums[c] = Fma(Vec::Load(streams + d), Vec::Load(weight + d), sums[c]);
      }
    }
    ForVectors(n - at, [&](int64_t, auto load, auto) {
      sums[0] = Fma(load(streams + at), load(weight + at), sums[0]);
    });
    const float product = Sum((sums[0] + sums[1]) + (sums[2] + sums[3])) * inverse;
    const int64_t part = i < count ? 0 : i < 2 * count ? 1 : 2;
    out[i] = product * a.mix_scales[part] + a.mix_base[i];
  }
}

// Of n numbers in place.
inline void ToSigmoids(float* x, int64_t n, float factor) {
  const Vec times = Vec::Set(factor);
  ForVectors(n, [&](int64_t, auto load, auto store) { store(x, TimesSigmoid(times, load(x))); });
}

// Divides the `count` numbers from x on, `step` apart, by their sum plus `floor`.
inline void DivideBySum(float* x, int64_t count, int64_t step, float floor) {
  float sum = 0.0f;
  for (int64_t i = 0; i < count; ++i) sum += x[i * step];
  for (int64_t i = 0; i < count; ++i) x[i * step] /= sum + floor;
}

// The softmax of each row, plus the floor. Then columns, and rows in between, are divided by their
// sums.
inline void Balance(const StreamStep& a, float* matrix) {
  const int64_t count = a.streams.count;
  for (int64_t i = 0; i < count; ++i) {
    float* row = matrix + i * count;
    float most = row[0];
    for (int64_t j = 1; j < count; ++j) most = row[j] > most ? row[j] : most;
    const Vec largest = Vec::Set(most);
    ForVectors(count,
               [&](int64_t, auto load, auto store) { store(row, Exp(load(row) - largest)); });
    DivideBySum(row, count, 1, 0.0f);
    for (int64_t j = 0; j < count; ++j) row[j] += a.floor;
  }
  for (int64_t round = 0; round < a.rounds; ++round) {
    for (int64_t i = 0; round > 0 && i < count; ++i) {
      DivideBySum(matrix + i * count, count, 1, a.floor);
    }
    for (int64_t j = 0; j < count; ++j) DivideBySum(matrix + j, count, count, a.floor);
  }
}

inline void CollapseRow(const StreamStep& a, float* first, float* x) {
  const int64_t count = a.streams.count;
  float mixed[NumMixes(kMaxStreams)];
  const bool is_last = a.op == StreamOp::kLeave;
  MixStreams(a, first, is_last ? count : NumMixes(count), mixed);
  ToSigmoids(mixed, count, 1.0f);
  for (int64_t i = 0; i < count; ++i) mixed[i] += a.floor;
  if (!is_last) {
    float* const kept = first + count * a.dim;
    ToSigmoids(mixed + count, count, 2.0f);
    Balance(a, mixed + 2 * count);
    for (int64_t i = 0; i < KeptFloats(count); ++i) kept[i] = mixed[count + i];
  }
  ForVectors(a.dim, [&](int64_t, auto load, auto store) {
    Vec sum = Vec::Zero();
    for (int64_t i = 0; i < count; ++i) {
      sum = Fma(Vec::Set(mixed[i]), load(first + i * a.dim), sum);
    }
    store(x, sum);
  });
}

inline void ExpandRow(const StreamStep& a, float* first, const float* added) {
  const int64_t count = a.streams.count;
  const float* const kept = first + count * a.dim;
  ForVectors(a.dim, [&](int64_t, auto load, auto store) {
    Vec before[kMaxStreams];
    for (int64_t j = 0; j < count; ++j) before[j] = load(first + j * a.dim);
    const Vec given = load(added);
    for (int64_t i = 0; i < count; ++i) {
      Vec sum = Vec::Set(kept[i]) * given;
      for (int64_t j = 0; j < count; ++j) {
        sum = Fma(Vec::Set(kept[count + j * count + i]), before[j], sum);
      }
      store(first + i * a.dim, sum);
    }
  });
}

}  // namespace
}  // namespace mlc_native::kernels
