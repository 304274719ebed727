// Products of bfloat16 weights and KV pages with float32 inputs, for ISAs without a dot product of
// bfloat16.
#pragma once

#include "kernels/kv_format.h"

namespace mlc_native::kernels {
namespace {

struct BFloat16Dot {
  using Input = float[2];  // the inputs of two k

  static void Convert(const float* x, int64_t pairs, Input* out) {
    for (int64_t i = 0; i < 2 * pairs; ++i) out[i / 2][i % 2] = x[i];
  }

  // Two k of all columns of a panel.
  struct Weights {
    Vec even[2];
    Vec odd[2];

    Weights() = default;
    explicit Weights(const Weights* w) : even{w->even[0], w->even[1]}, odd{w->odd[0], w->odd[1]} {}
    explicit Weights(const uint16_t* w)
        : even{BFloat16::LoadEven(w), BFloat16::LoadEven(w + 2 * Vec::kLanes)},
          odd{BFloat16::LoadOdd(w), BFloat16::LoadOdd(w + 2 * Vec::kLanes)} {}
    explicit Weights(const uint8_t* w)  // of FP8
        : even{Float8::LoadEven(w), Float8::LoadEven(w + 2 * Vec::kLanes)},
          odd{Float8::LoadOdd(w), Float8::LoadOdd(w + 2 * Vec::kLanes)} {}
    void AddTo(Vec (&sums)[2], const Input& x) const {
      const Vec first = Vec::Set(x[0]), second = Vec::Set(x[1]);
#pragma GCC unroll 2
      for (int v = 0; v < 2; ++v) sums[v] = Fma(second, odd[v], Fma(first, even[v], sums[v]));
    }
  };
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
