// Passes over one row of logits, written for the vectorizer; the only code of sampling that costs
// time in proportion to the vocabulary. Pure; any thread.
//
// A row is cut into blocks of kRowBlock tokens. Block maxima make later searches skip most of the
// row, block sums make draws find their token without walking it.
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
  std::vector<float> block_max;  // [NumRowBlocks]; meaningless when has_nan
};

// Fills *scan; its memory is reused.
void ScanRow(std::span<const float> logits, RowScan* scan);

// The first token with the largest logit of a row that was scanned and has no NaN.
int32_t FindArgmax(std::span<const float> logits, const RowScan& scan);

// e^x for x <= 0 within 2 ulp, and 0 below -87 and for -inf.
float ExpNonPositive(float x);

// Sum of e^(logit - max) over the row.
double SumExp(std::span<const float> logits, float max);

// Sets the logits of tokens whose bit t % 32 in allowed[t / 32] is zero to -inf.
void ForbidTokens(std::span<float> logits, std::span<const int32_t> allowed);

// Weights e^((logit - max) * inverse_temperature) of a row, at most 1.
struct RowWeights {
  std::vector<float> weights;      // [vocab_size]
  std::vector<double> block_sums;  // [NumRowBlocks]
  std::vector<float> block_upper;  // [NumRowBlocks], not below any weight of the block
  double sum = 0.0;
};

// Fills *row from scanned logits; its memory is reused.
void ExpRow(std::span<const float> logits, const RowScan& scan, float inverse_temperature,
            RowWeights* row);

// Which weights a truncation keeps: those above `value`, and of those equal to it the first ones.
struct RowThreshold {
  float value = 0.0f;
  size_t num_ties = 0;
};

// Sets the weights that are not kept to zero; block_upper stays.
void KeepAbove(const RowThreshold& threshold, RowWeights* row);

// The first token at which the running sum of the weights exceeds u * sum; u in [0, 1). Never one
// of weight 0; rounding cannot make it fail.
int32_t DrawFromRow(const RowWeights& row, double u);

}  // namespace mlc_native
