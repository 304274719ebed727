// The sums of windows of compressed attention (token_windows.h). Included by cpu/rowwise_kernels.cc
// only.
#pragma once

#include "kernels/cpu/vec_math.inl"
#include "kernels/token_windows.h"

namespace mlc_native::kernels {
namespace {

// The tokens of one sum, in the order of their positions.
struct SummedTokens {
  const float* row[2 * kMaxTokensPerEntry];
  int64_t count = 0;
};

inline void AddTokens(const CompressArgs& a, const WindowEnd& end, int64_t first,
                      SummedTokens* tokens) {
  for (int64_t position = first; position < first + a.num_tokens; ++position) {
    tokens->row[tokens->count++] =
        a.tokens->At(end.block_table[position / kPageSize], position % kPageSize);
  }
}

void CompressWindow(const CompressArgs& a, const WindowEnd& end, float* out) {
  SummedTokens tokens;
  const int64_t first = end.position - a.num_tokens + 1;
  if (a.overlaps && first > 0) AddTokens(a, end, first - a.num_tokens, &tokens);
  const int64_t num_before = tokens.count;
  AddTokens(a, end, first, &tokens);
  const int64_t ld_bias = a.overlaps ? 2 * a.dim : a.dim;
  // Of token i: where its channels begin, of numbers and of weights, and in its row of the bias.
  const auto half = [&](int64_t i) { return a.overlaps && i >= num_before ? a.dim : 0; };
  const auto bias = [&](int64_t i) { return a.bias + i % a.num_tokens * ld_bias + half(i); };
  ForVectors(a.dim, [&](int64_t, auto load, auto store) {
    const auto weight = [&](int64_t i) {
      return load(tokens.row[i] + a.weights + half(i)) + load(bias(i));
    };
    Vec largest = weight(0);
    for (int64_t i = 1; i < tokens.count; ++i) largest = Max(weight(i), largest);
    Vec sum = Vec::Zero(), total = Vec::Zero();
    for (int64_t i = 0; i < tokens.count; ++i) {
      const Vec share = Exp(weight(i) - largest);
      total = total + share;
      sum = Fma(share, load(tokens.row[i] + a.numbers + half(i)), sum);
    }
    store(out, sum / total);
  });
}

void CompressWindows(const CompressArgs& a, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) CompressWindow(a, a.ends[i], a.out + i * a.ldo);
}

}  // namespace
}  // namespace mlc_native::kernels
