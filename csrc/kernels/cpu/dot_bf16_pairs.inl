// Products of bfloat16 weights and KV pages for ISAs with a dot product of bfloat16. Inputs are
// rounded to bfloat16; sums are float32. The other ISAs use dot_bf16_as_float.inl.
//
// The ISA's BFloat16Vec holds a pair of bfloat16 for each lane of Vec:
//   Set       one pair (the first element in the low half) in all lanes
//   Load      2 * kLanes bfloat16, or as many codes of 8 bits or elements of FP8 (which are exact)
//   Round     2 * kLanes floats, to nearest even
//   Store, &
//   Dot       sum + the two products of each lane, with the rounding of the ISA
#pragma once

#include "kernels/kv_format.h"

namespace mlc_native::kernels {
namespace {

struct PairDot {
  using Input = int32_t;  // the inputs of two k

  static void Convert(const float* x, int64_t pairs, Input* out) {
    for (int64_t i = 0; i < pairs; i += Vec::kLanes) BFloat16Vec::Round(x + 2 * i).Store(out + i);
  }

  // Two k of all columns of a panel.
  struct Weights {
    BFloat16Vec v[2];

    Weights() = default;
    explicit Weights(const Weights* w) : v{w->v[0], w->v[1]} {}
    explicit Weights(const uint16_t* w)
        : v{BFloat16Vec::Load(w), BFloat16Vec::Load(w + 2 * Vec::kLanes)} {}
    explicit Weights(const uint8_t* w)  // of FP8
        : v{BFloat16Vec::Load(w), BFloat16Vec::Load(w + 2 * Vec::kLanes)} {}
  };

  // Adds the products of two k and the inputs `step` of each row.
  template <int kRows, typename Element, typename Group>
  static void Add(const Element* w, const Group* x, int step, Vec (&sums)[kRows][2]) {
    const Weights weights(w);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const BFloat16Vec input = BFloat16Vec::Set(x[r].x[step]);
      sums[r][0] = Dot(sums[r][0], input, weights.v[0]);
      sums[r][1] = Dot(sums[r][1], input, weights.v[1]);
    }
  }
};

// KV formats in pairs, see kv_pages.inl.
template <typename T, KvFormat kKvFormat>
struct BFloat16Pairs {
  using Storage = typename T::Storage;
  using Element = T;
  static constexpr KvFormat kFormat = kKvFormat;
  static constexpr int kParts = 1;
  static constexpr int64_t kStep = 2;

  static void PackInputs(float* x, int64_t pairs) {
    for (int64_t i = 0; i < pairs; i += Vec::kLanes) BFloat16Vec::Round(x + 2 * i).Store(x + i);
  }
  static BFloat16Vec Input(const float* x, int64_t pair, int) {
    return BFloat16Vec::Set(__builtin_bit_cast(int32_t, x[pair]));
  }
  template <int kTokens>
  static BFloat16Vec LoadPairs(const Storage* p, int64_t, int) {
    const BFloat16Vec pairs = BFloat16Vec::Load(p);
    if constexpr (kTokens == 3) return pairs;
    return pairs & BFloat16Vec::Set(kTokens == 1 ? 0x0000ffff : -65536);
  }
  static Vec Add(Vec sum, const BFloat16Vec& x, const BFloat16Vec& y) { return Dot(sum, x, y); }
};
using KvBFloat16 = BFloat16Pairs<BFloat16, KvFormat::kBFloat16>;
using KvInt8 = BFloat16Pairs<Int8, KvFormat::kInt8>;

}  // namespace
}  // namespace mlc_native::kernels
