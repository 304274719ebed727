// The state of an online softmax for some queries, and the sum of two states. Included by
// cpu/attention.inl only.
#pragma once

#include "kernels/cpu/vec_math.inl"

namespace mlc_native::kernels {
namespace {

// The sums over some keys, as floats: out [queries, row], sums [queries, lanes], maxima [queries].
struct State {
  int64_t row;  // padded head_dim
  float* out;
  float* sums;
  float* maxima;
  State(float* base, int64_t queries, int64_t head_dim)
      : row(AttentionScratchRow(head_dim)),
        out(base),
        sums(out + queries * row),
        maxima(sums + queries * kMaxLanes) {}
};

// Raises the maximum of a query and rescales its sums.
inline void RaiseMaximum(const State& s, int64_t query, float maximum) {
  const Vec factor = Exp2(Vec::Set(s.maxima[query]) - Vec::Set(maximum));
  float* sums = s.sums + query * kMaxLanes;
  (Vec::Load(sums) * factor).Store(sums);
  float* out = s.out + query * s.row;
  for (int64_t d = 0; d < s.row; d += Vec::kLanes) (Vec::Load(out + d) * factor).Store(out + d);
  s.maxima[query] = maximum;
}

// total += part for one query, after rescaling both to the larger maximum.
inline void AddQuery(const State& part, const State& total, int64_t query) {
  const float from = part.maxima[query], to = total.maxima[query];
  const float maximum = from > to ? from : to;
  const Vec part_factor = Exp2(Vec::Set(from) - Vec::Set(maximum));
  const Vec total_factor = Exp2(Vec::Set(to) - Vec::Set(maximum));
  const auto add = [&](const float* x, float* y) {
    Fma(Vec::Load(y), total_factor, Vec::Load(x) * part_factor).Store(y);
  };
  add(part.sums + query * kMaxLanes, total.sums + query * kMaxLanes);
  const int64_t at = query * part.row;
  for (int64_t d = 0; d < part.row; d += Vec::kLanes) add(part.out + at + d, total.out + at + d);
  total.maxima[query] = maximum;
}

inline void CopyQuery(const State& part, const State& total, int64_t query) {
  const int64_t sums = query * kMaxLanes, at = query * part.row;
  Vec::Load(part.sums + sums).Store(total.sums + sums);
  for (int64_t d = 0; d < part.row; d += Vec::kLanes) {
    Vec::Load(part.out + at + d).Store(total.out + at + d);
  }
  total.maxima[query] = part.maxima[query];
}

}  // namespace
}  // namespace mlc_native::kernels
