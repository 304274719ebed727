// The steps of residual streams (residual_streams.h). Included by cpu/rowwise_kernels.cc only.
#pragma once

#include "kernels/cpu/hyper_connections.inl"
#include "kernels/residual_streams.h"

namespace mlc_native::kernels {
namespace {

// What scales x to the magnitude of a vector with this mean square.
inline float ToMagnitude(float mean_square, const float* x, int64_t n) {
  const float own = MeanSquare(x, n);
  return __builtin_sqrtf(mean_square / (own < kLeastMeanSquare ? kLeastMeanSquare : own));
}

// out[i] = the product of row i of the matrix [rows, count] with what the router says of x.
inline void RouteStreams(const StreamStep& a, const float* x, int64_t rows, float* out) {
  const int64_t count = a.streams.count;
  const float inverse = 1.0f / __builtin_sqrtf(MeanSquare(x, a.dim) + a.eps);
  float routed[kMaxStreams];
  for (int64_t i = 0; i < count; ++i) {
    const float* weight = a.router + i * a.dim;
    Vec sum = Vec::Zero();
    ForVectors(a.dim, [&](int64_t, auto load, auto) {
      sum = Fma(load(x) * load(a.norm), load(weight), sum);
    });
    routed[i] = Sum(sum) * inverse;
  }
  ForVectors(count, [&](int64_t, auto load, auto store) { store(routed, Tanh(load(routed))); });
  for (int64_t i = 0; i < rows; ++i) {
    float sum = 0.0f;
    for (int64_t j = 0; j < count; ++j) sum += a.coefficients[i * count + j] * routed[j];
    out[i] = sum;
  }
}

inline void SpreadRow(const StreamStep& a, float* first, const float* x) {
  const float mean_square = MeanSquare(x, a.dim);
  ForVectors(a.dim, [&](int64_t, auto load, auto store) { store(first, load(x)); });
  for (int64_t i = 1; i < a.streams.count; ++i) {
    float* stream = first + i * a.streams.step;
    const Vec scale = Vec::Set(ToMagnitude(mean_square, stream, a.dim));
    ForVectors(a.dim, [&](int64_t, auto load, auto store) { store(stream, load(stream) * scale); });
  }
}

inline void PredictRow(const StreamStep& a, float* first, float* x) {
  const StreamsView& s = a.streams;
  float factors[kMaxStreams * kMaxStreams];
  RouteStreams(a, first + s.active * s.step, s.count * s.count, factors);
  ForVectors(a.dim, [&](int64_t, auto load, auto store) {
    Vec before[kMaxStreams];
    for (int64_t j = 0; j < s.count; ++j) before[j] = load(first + j * s.step);
    for (int64_t i = 0; i < s.count; ++i) {
      Vec sum = before[i];
      for (int64_t j = 0; j < s.count; ++j) {
        sum = Fma(Vec::Set(factors[i * s.count + j]), before[j], sum);
      }
      store(first + i * s.step, sum);
      if (i == s.active) store(x, sum);
    }
  });
}

inline void CorrectRow(const StreamStep& a, float* first, float* x) {
  const StreamsView& s = a.streams;
  float factors[kMaxStreams];
  RouteStreams(a, x, s.count, factors);
  ForVectors(a.dim, [&](int64_t, auto load, auto store) {
    const Vec innovation = load(x) - load(first + s.active * s.step);
    for (int64_t i = 0; i < s.count; ++i) {
      const Vec factor = Vec::Set(1.0f + factors[i]);
      const Vec corrected = Fma(factor, innovation, load(first + i * s.step));
      store(first + i * s.step, corrected);
      if (i == s.active) store(x, a.scale == nullptr ? corrected : corrected * load(a.scale));
    }
  });
}

inline void AddToRow(const StreamStep& a, float* first, const float* added) {
  const Vec inverse = Vec::Set(1.0f / __builtin_sqrtf(MeanSquare(added, a.dim) + a.eps));
  ForVectors(a.dim, [&](int64_t, auto load, auto store) {
    const Vec normed = load(added) * inverse * load(a.norm);
    for (int64_t i = 1; i < a.streams.count; ++i) {
      float* stream = first + i * a.streams.step;
      store(stream, load(stream) + normed);
    }
  });
}

inline void JoinRow(const StreamStep& a, const float* first, const float* added, float* x) {
  const int64_t count = a.streams.count;
  const float mean_square = MeanSquare(first, a.dim);
  float scales[kMaxStreams];
  for (int64_t i = 1; i < count; ++i) {
    scales[i] = ToMagnitude(mean_square, added + (i - 1) * a.dim, a.dim);
  }
  const Vec share = Vec::Set(1.0f / static_cast<float>(count));
  ForVectors(a.dim, [&](int64_t, auto load, auto store) {
    Vec sum = load(first);
    for (int64_t i = 1; i < count; ++i) {
      sum = Fma(Vec::Set(scales[i]), load(added + (i - 1) * a.dim), sum);
    }
    store(x, sum * share);
  });
}

void StreamRows(const StreamStep& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    float* first = a.streams.data + row * a.streams.ld;
    float* x = a.x + row * a.ldx;
    const float* added = a.added + row * a.ld_added;
    switch (a.op) {
      case StreamOp::kSpread:
        SpreadRow(a, first, x);
        break;
      case StreamOp::kPredict:
        PredictRow(a, first, x);
        break;
      case StreamOp::kCorrect:
        CorrectRow(a, first, x);
        break;
      case StreamOp::kAdd:
        AddToRow(a, first, added);
        break;
      case StreamOp::kJoin:
        JoinRow(a, first, added, x);
        break;
      case StreamOp::kRepeat:
        RepeatRow(a, first, x);
        break;
      case StreamOp::kCollapse:
      case StreamOp::kLeave:
        CollapseRow(a, first, x);
        break;
      case StreamOp::kExpand:
        ExpandRow(a, first, added);
        break;
    }
  }
}

}  // namespace
}  // namespace mlc_native::kernels
