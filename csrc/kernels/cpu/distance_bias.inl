// What attention adds to the scores of a query by the distance of their keys. Included by
// cpu/attention.inl only.
#pragma once

#include "kernels/cpu/attention_tiles.inl"
#include "kernels/distance_bias.h"

namespace mlc_native::kernels {
namespace {

// Adds to the scores [begin, end) of a head, of which that of key 0 has this distance from the
// query. Scores are times `unit`.
inline void AddDistanceBias(const DistanceBias& bias, int64_t head, int64_t distance, float unit,
                            int64_t begin, int64_t end, float* scores) {
  static constexpr float kIndex[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  static_assert(Vec::kLanes <= kDistancePadding);
  if (bias.slopes != nullptr) {
    const Vec slope = Vec::Set(-bias.slopes[head] * unit);
    for (int64_t t = begin; t < end; t += Vec::kLanes) {
      const Vec d = Vec::Load(kIndex) + Vec::Set(static_cast<float>(distance + t));
      Fma(Max(d, Vec::Zero() - d), slope, Vec::Load(scores + t)).Store(scores + t);
    }
  }
  if (bias.table != nullptr) {
    const Vec factor = Vec::Set(unit);
    for (int64_t t = begin; t < end; t += Vec::kLanes) {
      const Vec entries = Vec::Load(bias.Entries(head, distance + t));
      Fma(entries, factor, Vec::Load(scores + t)).Store(scores + t);
    }
  }
}

}  // namespace
}  // namespace mlc_native::kernels
