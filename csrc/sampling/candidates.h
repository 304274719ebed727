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

// Finds which of some weights in [0, 1] are the smallest set of the best whose sum is at least
// `mass`: at least one, all when their sum is less. Owns the scratch memory.
class TopMass {
 public:
  RowThreshold Find(std::span<const float> weights, double mass);

 private:
  // Fills values_ with the weights among which the running sum from the largest passes `mass`, and
  // returns the sum of those above them.
  double Narrow(std::span<const float> weights, double mass);

  std::vector<float> values_;
  std::vector<double> histogram_;
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

  void KeepBest(size_t k);        // k >= 1
  void KeepTopMass(double mass);  // see TopMass
  void KeepAtLeast(float threshold);

  // The first token at which the running sum exceeds u * Sum(); u in [0, 1). Never one of weight 0;
  // the last other one when rounding leaves the sum short.
  int32_t Draw(double u) const;

 private:
  void CopyValues();
  void KeepAbove(RowThreshold threshold);

  std::vector<Candidate> items_;
  std::vector<float> values_;  // scratch of the selections
  TopMass top_mass_;
};

}  // namespace mlc_native
