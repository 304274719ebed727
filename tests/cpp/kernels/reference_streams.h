// The steps of residual streams on one row in double precision, for the tests of all devices.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/residual_streams.h"

namespace mlc_native::kernels::reference {

// One row: streams [count][dim], x [dim], and what a step reads besides.
struct StreamRow {
  using Row = std::vector<double>;

  std::vector<Row> streams;
  Row x;
  std::vector<Row> added;  // of kAdd one
  Row norm;
  double eps = 0;
  std::vector<Row> router;
  Row coefficients;
  Row scale;  // empty: ones
  size_t active = 0;

  void Run(StreamOp op) {
    switch (op) {
      case StreamOp::kSpread:
        return Spread();
      case StreamOp::kPredict:
        return Predict();
      case StreamOp::kCorrect:
        return Correct();
      case StreamOp::kAdd:
        return Add();
      case StreamOp::kJoin:
        return Join();
      default:  // of hyper-connections
        return;
    }
  }

 private:
  static double MeanSquare(const Row& row) {
    double sum = 0;
    for (const double value : row) sum += value * value;
    return sum / static_cast<double>(row.size());
  }
  static double ToMagnitudeOf(const Row& wanted, const Row& row) {
    return std::sqrt(MeanSquare(wanted)) / std::sqrt(std::max(MeanSquare(row), 1e-5));
  }
  Row Normalized(const Row& row) const {
    Row normed = row;
    const double root = std::sqrt(MeanSquare(row) + eps);
    for (size_t i = 0; i < row.size(); ++i) normed[i] *= norm[i] / root;
    return normed;
  }
  double Factor(const Row& row, size_t index) const {
    const Row normed = Normalized(row);
    double factor = 0;
    for (size_t k = 0; k < streams.size(); ++k) {
      double sum = 0;
      for (size_t i = 0; i < row.size(); ++i) sum += normed[i] * router[k][i];
      factor += coefficients[index * streams.size() + k] * std::tanh(sum);
    }
    return factor;
  }

  void Spread() {
    streams[0] = x;
    for (size_t i = 1; i < streams.size(); ++i) {
      const double factor = ToMagnitudeOf(x, streams[i]);
      for (double& value : streams[i]) value *= factor;
    }
  }
  void Predict() {
    const std::vector<Row> before = streams;
    const size_t count = streams.size();
    for (size_t i = 0; i < count; ++i) {
      for (size_t j = 0; j < count; ++j) {
        const double factor = Factor(before[active], i * count + j);
        for (size_t d = 0; d < x.size(); ++d) streams[i][d] += factor * before[j][d];
      }
    }
    x = streams[active];
  }
  void Correct() {
    const Row predicted = streams[active];
    for (size_t i = 0; i < streams.size(); ++i) {
      const double factor = 1 + Factor(x, i);
      for (size_t d = 0; d < x.size(); ++d) streams[i][d] += factor * (x[d] - predicted[d]);
    }
    x = streams[active];
    for (size_t d = 0; d < scale.size(); ++d) x[d] *= scale[d];
  }
  void Add() {
    const Row normed = Normalized(added[0]);
    for (size_t i = 1; i < streams.size(); ++i) {
      for (size_t d = 0; d < normed.size(); ++d) streams[i][d] += normed[d];
    }
  }
  void Join() {
    x = streams[0];
    for (const Row& part : added) {
      const double factor = ToMagnitudeOf(streams[0], part);
      for (size_t d = 0; d < x.size(); ++d) x[d] += factor * part[d];
    }
    for (double& value : x) value /= static_cast<double>(streams.size());
  }
};

// Gates of a row, cut as many standard deviations above their mean.
inline void Cut(double* row, int64_t n, double deviations) {
  const auto size = static_cast<double>(n);
  double mean = 0, variance = 0;
  for (int64_t i = 0; i < n; ++i) mean += row[i] / size;
  for (int64_t i = 0; i < n; ++i) variance += (row[i] - mean) * (row[i] - mean) / size;
  const double cut = mean + deviations * std::sqrt(variance);
  for (int64_t i = 0; i < n; ++i) row[i] = std::max(row[i] - cut, 0.0);
}

}  // namespace mlc_native::kernels::reference
