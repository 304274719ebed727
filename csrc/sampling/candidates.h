// Candidates: the tokens of a row that truncation leaves, and how they are found without sorting
// the vocabulary. Pure; any thread.
//
// Tokens are ranked by value, ties by id (the lower id is better); every selection is exact in this
// order. Candidates always stand in ascending order of their ids.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sampling/row_ops.h"

namespace mlc_native {

struct Candidate {
  float value;  // a logit or a weight
  int32_t token_id;
};

class Candidates {
 public:
  std::span<const Candidate> items() const { return items_; }
  size_t size() const { return items_.size(); }
  double Sum() const;

  // Becomes every token with value >= threshold (above -inf). `upper[b]` is at least every value of
  // block b: blocks below the threshold are not read.
  void SelectAtLeast(std::span<const float> row, std::span<const float> upper, float threshold);
  // Becomes the k >= 1 best tokens above -inf; fewer when there are fewer.
  void SelectTopK(std::span<const float> row, const RowScan& scan, size_t k);

  // Logits become weights: value = e^((value - max) * inverse_temperature).
  void Exponentiate(float max, float inverse_temperature);

  void KeepBest(size_t k);  // k >= 1
  // Keeps the smallest set of the best whose sum is at least `mass`, at least one; all when their
  // sum is less. Values are weights in [0, 1].
  void KeepTopMass(double mass);
  void KeepAtLeast(float threshold);

  // The first token at which the running sum exceeds u * Sum(); u in [0, 1). Never one of weight 0;
  // the last other one when rounding leaves the sum short.
  int32_t Draw(double u) const;

 private:
  // Keeps what is above `value`, and of what equals it the first `num_ties`.
  void KeepAbove(float value, size_t num_ties);
  // Reduces values_ to those among which the running sum from the largest passes `mass`, and
  // returns the sum of the larger ones that were dropped.
  double NarrowToMass(double mass);

  std::vector<Candidate> items_;
  // Scratch of the selections.
  std::vector<float> values_;
  std::vector<double> histogram_;
};

}  // namespace mlc_native
