// KV formats and writing KV pages. Included by the other .inl files only.
//
// A format (KvFloat32, KvFloat16, KvBFloat16, KvInt8) multiplies pairs: two elements of head_dim in
// q k, two tokens in p v. Some ISAs multiply both at once, others one after the other (kParts):
//   Storage         the type of an element
//   kFormat, kStep  its KvFormat; the distance in elements between lanes of a pair
//   PackInputs      converts floats x[2 * pairs] to the left operands of products, in place
//   Input           the left operand of one pair, in all lanes
//   LoadPairs       the right operands of a vector of pairs. `plane` is the distance in elements
//                   between the two elements of a pair if they are not adjacent. kTokens: 3 loads
//                   both elements, 1 only the first and 2 only the second; the other element may
//                   hold anything.
//   Add             sum + products
#pragma once

#include "kernels/cpu/vec_math.inl"
#include "kernels/kv_format.h"

namespace mlc_native::kernels {
namespace {

// Types whose pairs are two planes, products in float32.
template <typename T, KvFormat kKvFormat>
struct FloatPlanes {
  using Storage = typename T::Storage;
  using Element = T;
  static constexpr KvFormat kFormat = kKvFormat;
  static constexpr int kParts = 2;
  static constexpr int64_t kStep = 1;

  static void PackInputs(float*, int64_t) {}
  static Vec Input(const float* x, int64_t pair, int part) { return Vec::Set(x[2 * pair + part]); }
  template <int kTokens>
  static Vec LoadPairs(const Storage* p, int64_t plane, int part) {
    return T::LoadAs(p + part * plane);
  }
  static Vec Add(Vec sum, Vec x, Vec y) { return Fma(x, y, sum); }
};
using KvFloat32 = FloatPlanes<Float32, KvFormat::kFloat32>;
using KvFloat16 = FloatPlanes<Float16, KvFormat::kFloat16>;

template <typename F>
inline void WithKvFormat(KvFormat format, F f) {
  switch (format) {
    case KvFormat::kFloat32:
      return f(KvFloat32{});
    case KvFormat::kBFloat16:
      return f(KvBFloat16{});
    case KvFormat::kFloat16:
      return f(KvFloat16{});
    case KvFormat::kInt8:
      return f(KvInt8{});
    case KvFormat::kFloat8:
      return;  // only on GPUs; refused by KvLayerBytes
  }
}

// K, or V, of one kv head in one page.
template <typename T>
inline typename T::Storage* KvPage(const KvPages& kv, void* pages, int64_t head, int64_t page) {
  const int64_t page_bytes = KvPageBytes(T::kFormat, kv.head_dim);
  return reinterpret_cast<typename T::Storage*>(
      static_cast<char*>(pages) + KvPageAt(kv.block_bytes, kv.num_pages, page_bytes, head, page));
}
// The tokens' scales in a page of int8.
inline float* KvScales(int8_t* page, int64_t row) {
  return reinterpret_cast<float*>(page + row * kPageSize);
}
inline const float* KvScales(const int8_t* page, int64_t row) {
  return reinterpret_cast<const float*>(page + row * kPageSize);
}

inline Vec LoadUpTo(const float* p, int64_t count) {
  return count >= Vec::kLanes ? Vec::Load(p) : LoadPartial(p, count);
}

// Calls put(d, element) for d in [0, KvRow(head_dim)), elements beyond head_dim being zero.
template <typename T, typename F>
inline void EncodeFloats(const float* x, int64_t head_dim, F put) {
  for (int64_t d = 0; d < KvRow(head_dim); d += Vec::kLanes) {
    typename T::Storage lanes[Vec::kLanes];
    T::Element::StoreAs(lanes, LoadUpTo(x + d, head_dim - d));
    for (int i = 0; i < Vec::kLanes; ++i) put(d + i, lanes[i]);
  }
}

inline float LargestMagnitude(const float* x, int64_t count) {
  int32_t largest = 0;  // bits of absolute values, ordered like integers, NaN last
  for (int64_t i = 0; i < count; ++i) {
    const int32_t bits = __builtin_bit_cast(int32_t, x[i]) & 0x7fffffff;
    largest = bits > largest ? bits : largest;
  }
  return __builtin_bit_cast(float, largest);
}

// The same for int8; returns the row's scale.
template <typename F>
inline float EncodeInt8(const float* x, int64_t head_dim, F put) {
  const InputScale scale(LargestMagnitude(x, head_dim));
  const Vec inverse = Vec::Set(scale.inverse);
  for (int64_t d = 0; d < KvRow(head_dim); d += Vec::kLanes) {
    float lanes[Vec::kLanes];
    Round(LoadUpTo(x + d, head_dim - d) * inverse).Store(lanes);
    for (int i = 0; i < Vec::kLanes; ++i) {
      put(d + i, static_cast<int8_t>(scale.inverse != 0 ? lanes[i] : 0.0f));
    }
  }
  return scale.scale;
}

// Writes row x to the elements index(d) of a page, and the scale of its token.
template <typename T, typename F>
inline void WriteKvRow(const KvPages& kv, typename T::Storage* page, int64_t token, const float* x,
                       F index) {
  const auto put = [&](int64_t d, typename T::Storage element) { page[index(d)] = element; };
  if constexpr (T::kFormat == KvFormat::kInt8) {
    KvScales(page, KvRow(kv.head_dim))[token] = EncodeInt8(x, kv.head_dim, put);
  } else {
    EncodeFloats<T>(x, kv.head_dim, put);
  }
}

void WriteKvRows(const KvPages& kv, const WriteKvArgs& a, int64_t begin, int64_t end) {
  WithKvFormat(kv.format, [&](auto format) {
    using T = decltype(format);
    constexpr bool kInPairs = KvInPairs(T::kFormat);
    const int64_t kv_row = KvRow(kv.head_dim);
    for (int64_t row = begin; row < end; ++row) {
      const int64_t page = a.slots[row] / kPageSize;
      const int64_t token = a.slots[row] % kPageSize;
      for (int64_t head = 0; head < kv.kv_heads; ++head) {
        WriteKvRow<T>(kv, KvPage<T>(kv, kv.k_pages, head, page), token,
                      a.k + row * a.ldk + head * kv.head_dim,
                      [=](int64_t d) { return KvKeyIndex(kInPairs, token, d); });
        WriteKvRow<T>(kv, KvPage<T>(kv, kv.v_pages, head, page), token,
                      a.v + row * a.ldv + head * kv.head_dim,
                      [=](int64_t d) { return KvValueIndex(kInPairs, kv_row, token, d); });
      }
    }
  });
}

}  // namespace
}  // namespace mlc_native::kernels
