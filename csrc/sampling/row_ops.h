// Passes over one row of logits, written for the vectorizer. They are the only code of sampling
// whose time grows with the vocabulary. Pure; any thread.
//
// A row is divided into blocks of kRowBlock tokens. With the maxima of blocks, later searches skip
// most of the row; with their sums, a draw finds its token without visiting all of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace mlc_native {

inline constexpr size_t kRowBlock = 128;  // tokens

constexpr size_t NumRowBlocks(size_t vocab_size) {
  return (vocab_size + kRowBlock - 1) / kRowBlock;
}

struct RowScan {
  float max = 0.0f;
  bool has_nan = false;
  std::vector<float> block_max;  // [NumRowBlocks]; unspecified if has_nan
};

// Fills *scan and reuses its memory.
void ScanRow(std::span<const float> logits, RowScan* scan);

// Returns the first token with the largest logit. Requires: the row was scanned and has no NaN.
int32_t FindArgmax(std::span<const float> logits, const RowScan& scan);

// Returns e^x for x <= 0, within 2 ulp; 0 below -87 and for -inf.
float ExpNonPositive(float x);

// Returns the sum of e^(logit - max) over the row.
double SumExp(std::span<const float> logits, float max);

// Sets the logit of each token t to -inf whose bit t % 32 of allowed[t / 32] is zero.
void ForbidTokens(std::span<float> logits, std::span<const int32_t> allowed);

// Weights e^((logit - max) * inverse_temperature) of a row, at most 1.
struct RowWeights {
  std::vector<float> weights;      // [vocab_size]
  std::vector<double> block_sums;  // [NumRowBlocks]
  std::vector<float> block_upper;  // [NumRowBlocks], at least every weight of the block
  double sum = 0.0;
};

// Fills *row from scanned logits and reuses its memory.
void ExpRow(std::span<const float> logits, const RowScan& scan, float inverse_temperature,
            RowWeights* row);

// The weights that a truncation keeps: all above `value`, and the first num_ties equal to it.
struct RowThreshold {
  float value = 0.0f;
  size_t num_ties = 0;
};

// Sets the other weights to zero. block_upper stays as it is.
void KeepAbove(const RowThreshold& threshold, RowWeights* row);

// Returns the first token at which the running sum of the weights exceeds u * sum, for u in [0, 1).
// Never returns a token of weight 0, whatever the rounding.
int32_t DrawFromRow(const RowWeights& row, double u);

}  // namespace mlc_native
