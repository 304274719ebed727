// Candidates are the tokens of a row that remain after truncation, selected without sorting the
// vocabulary.
//
// Tokens are ranked by value, and by lower id for equal values; every selection is exact in this
// order. Candidates are stored in ascending order of their ids. One owner; not thread-safe, because
// scratch memory is reused.
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

// Finds the smallest set of the largest weights (each in [0, 1]) whose sum is at least `mass`. The
// set has at least one weight, and all of them if their sum is less. Owns its scratch memory.
class TopMass {
 public:
  RowThreshold Find(std::span<const float> weights, double mass);

 private:
  // Fills values_ with the weights among which the sum, taken from the largest weight on, passes
  // `mass`. Returns the sum of the weights above them.
  double Narrow(std::span<const float> weights, double mass);

  std::vector<float> values_;
  std::vector<double> histogram_;
};

class Candidates {
 public:
  std::span<const Candidate> items() const { return items_; }
  size_t size() const { return items_.size(); }
  double Sum() const;

  // Selects every token with value >= threshold and above -inf. Requires: upper[b] is at least
  // every value of block b. Blocks below the threshold are not read.
  void SelectAtLeast(std::span<const float> row, std::span<const float> upper, float threshold);
  // Selects the k >= 1 best tokens above -inf, or all of them if there are fewer.
  void SelectTopK(std::span<const float> row, const RowScan& scan, size_t k);

  // Turns logits into weights: value = e^((value - max) * inverse_temperature).
  void Exponentiate(float max, float inverse_temperature);

  void KeepBest(size_t k);        // k >= 1
  void KeepTopMass(double mass);  // see TopMass
  void KeepAtLeast(float threshold);

  // Returns the first token at which the running sum exceeds u * Sum(), for u in [0, 1). Never
  // returns a token of weight 0; if rounding leaves the sum short, returns the last other token.
  int32_t Draw(double u) const;

 private:
  void CopyValues();
  void KeepAbove(RowThreshold threshold);

  std::vector<Candidate> items_;
  std::vector<float> values_;  // scratch memory of the selections
  TopMass top_mass_;
};

}  // namespace mlc_native
