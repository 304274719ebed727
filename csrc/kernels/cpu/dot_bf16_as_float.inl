// Products of bfloat16 weights and KV pages with float32 inputs, for ISAs without a dot product of
// bfloat16.
#pragma once

#include "kernels/kv_format.h"

namespace mlc_native::kernels {
namespace {

struct FloatDot {
  using Input = float[2];  // the inputs of two k

  static void Convert(const float* x, int64_t pairs, Input* out) {
    for (int64_t i = 0; i < 2 * pairs; ++i) out[i / 2][i % 2] = x[i];
  }

  // Two k of all columns of a panel.
  struct Weights {
    Vec even[2];
    Vec odd[2];

    Weights() = default;
    explicit Weights(const uint8_t* w)  // of FP8
        : even{Even(w, 0), Even(w, 1)}, odd{Odd(w, 0), Odd(w, 1)} {}
  };

  // Adds the products of two k and the inputs `step` of each row. All rows first take the even k,
  // so that only two vectors of weights are in registers at a time.
  template <int kRows, typename Element, typename Group>
  static void Add(const Element* w, const Group* x, int step, Vec (&sums)[kRows][2]) {
    AddPart(Even(w, 0), Even(w, 1), x, step, 0, sums);
    AddPart(Odd(w, 0), Odd(w, 1), x, step, 1, sums);
  }

 private:
  template <int kRows, typename Group>
  static void AddPart(Vec lo, Vec hi, const Group* x, int step, int part, Vec (&sums)[kRows][2]) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Vec input = Vec::Set(x[r].x[step][part]);
      sums[r][0] = Fma(input, lo, sums[r][0]);
      sums[r][1] = Fma(input, hi, sums[r][1]);
    }
  }

  static constexpr int kPair = 2 * Vec::kLanes;
  static Vec Even(const uint16_t* w, int v) { return BFloat16::LoadEven(w + v * kPair); }
  static Vec Odd(const uint16_t* w, int v) { return BFloat16::LoadOdd(w + v * kPair); }
  static Vec Even(const uint8_t* w, int v) { return Float8::LoadEven(w + v * kPair); }
  static Vec Odd(const uint8_t* w, int v) { return Float8::LoadOdd(w + v * kPair); }
  static Vec Even(const Weights* w, int v) { return w->even[v]; }
  static Vec Odd(const Weights* w, int v) { return w->odd[v]; }
};

// KV formats in pairs, see kv_pages.inl.
template <typename T, KvFormat kKvFormat>
struct FloatPairs {
  using Storage = typename T::Storage;
  using Element = T;
  static constexpr KvFormat kFormat = kKvFormat;
  static constexpr int kParts = 2;
  static constexpr int64_t kStep = 2;

  static void PackInputs(float*, int64_t) {}
  static Vec Input(const float* x, int64_t pair, int part) { return Vec::Set(x[2 * pair + part]); }
  template <int kTokens>
  static Vec LoadPairs(const Storage* p, int64_t, int part) {
    return part == 0 ? T::LoadEven(p) : T::LoadOdd(p);
  }
  static Vec Add(Vec sum, Vec x, Vec y) { return Fma(x, y, sum); }
};
using KvBFloat16 = FloatPairs<BFloat16, KvFormat::kBFloat16>;
using KvInt8 = FloatPairs<Int8, KvFormat::kInt8>;

}  // namespace
}  // namespace mlc_native::kernels
