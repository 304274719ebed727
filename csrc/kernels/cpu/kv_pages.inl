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

#include <type_traits>

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

inline float LargestMagnitude(const float* x, int64_t count) {
  int32_t largest = 0;  // bits of absolute values, ordered like integers, NaN last
  for (int64_t i = 0; i < count; ++i) {
    const int32_t bits = __builtin_bit_cast(int32_t, x[i]) & 0x7fffffff;
    largest = bits > largest ? bits : largest;
  }
  return __builtin_bit_cast(float, largest);
}

// A token's key or value of one head, as pages store it, kKvRowUnit elements at a time. Those
// beyond head_dim are zero.
template <typename T>
class KvRowEncoder {
 public:
  KvRowEncoder() = default;
  KvRowEncoder(const float* x, int64_t head_dim) : x_(x), head_dim_(head_dim) {
    if constexpr (kHasScale) {
      const InputScale scale(LargestMagnitude(x, head_dim));
      scale_ = scale.scale;
      inverse_ = scale.inverse;
    }
  }

  void Encode(int64_t d, typename T::Storage* to) const {
    for (int64_t i = 0; i < kKvRowUnit; i += Vec::kLanes) {
      const Vec x = LoadUpTo(x_ + d + i, head_dim_ - d - i);
      if constexpr (kHasScale) {
        using Codes __attribute__((vector_size(Vec::kLanes))) = int8_t;
        const Vec scaled = inverse_ != 0 ? Round(x * Vec::Set(inverse_)) : Vec::Set(0);
        const auto lanes = __builtin_bit_cast(Lanes<Vec::kLanes>, scaled);
        using Ints __attribute__((vector_size(4 * Vec::kLanes))) = int32_t;
        const Codes codes = __builtin_convertvector(__builtin_convertvector(lanes, Ints), Codes);
        __builtin_memcpy(to + i, &codes, sizeof(codes));
      } else {
        T::Element::StoreAs(to + i, x);
      }
    }
  }
  // Behind a row of a page: the token's scale.
  void SetScale(typename T::Storage* page, int64_t row, int64_t token) const {
    if constexpr (kHasScale) KvScales(page, row)[token] = scale_;
  }

 private:
  static constexpr bool kHasScale = T::kFormat == KvFormat::kInt8;

  const float* x_ = nullptr;
  int64_t head_dim_ = 0;
  float scale_ = 0;
  float inverse_ = 0;
};

// 16 bytes as elements of an integer type.
template <typename Unit>
using Units __attribute__((vector_size(16))) = Unit;

// The elements of both in turns: lower halves, then upper halves.
template <typename Unit>
inline void Interleave(Units<Unit> a, Units<Unit> b, Units<Unit>& low, Units<Unit>& high) {
  if constexpr (sizeof(Unit) == 4) {
    low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  } else if constexpr (sizeof(Unit) == 2) {
    low = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
    high = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
  } else {
    low = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    high =
        __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  }
}

// As many vectors as they have elements. Interleaving both halves of them moves the first bit of
// the places of elements behind the last one, and so once for each bit of a row's number.
template <typename Unit>
inline void Transpose(Units<Unit> (&rows)[16 / sizeof(Unit)]) {
  constexpr int kRows = 16 / sizeof(Unit);
  for (int bits = kRows; bits > 1; bits /= 2) {
    Units<Unit> next[kRows];
    for (int i = 0; i < kRows / 2; ++i) {
      Interleave<Unit>(rows[i], rows[i + kRows / 2], next[2 * i], next[2 * i + 1]);
    }
    for (int i = 0; i < kRows; ++i) rows[i] = next[i];
  }
}

// Writes tokens of one head to a page, one at a time or as many as fill a vector.
template <typename T>
class KvWriter {
  static constexpr bool kInPairs = KvInPairs(T::kFormat);
  using Storage = typename T::Storage;
  // What a token has in a row of keys: an element, or a pair.
  using Unit = std::conditional_t<sizeof(Storage) * (kInPairs ? 2 : 1) == 4, uint32_t, uint16_t>;
  using Element = std::conditional_t<sizeof(Storage) == 1, uint8_t, uint16_t>;  // of pairs

 public:
  static constexpr int kTokens = 16 / sizeof(Unit);

  KvWriter(const KvPages& kv, int64_t head, int64_t page)
      : head_dim_(kv.head_dim),
        row_(KvRow(kv.head_dim)),
        k_(kv.k_pages == nullptr ? nullptr : KvPage<T>(kv, kv.k_pages, head, page)),
        v_(kv.v_pages == nullptr ? nullptr : KvPage<T>(kv, kv.v_pages, head, page)) {}

  void WriteOne(int64_t token, const float* k, const float* v) const {
    WriteOne(token, KvRowEncoder<T>(k, head_dim_), KvRowEncoder<T>(v, head_dim_));
  }
  // The tokens from `token` on, a multiple of kTokens, whose rows lie ldk and ldv floats apart.
  void WriteMany(int64_t token, const float* k, int64_t ldk, const float* v, int64_t ldv) const {
    KvRowEncoder<T> keys[kTokens];
    KvRowEncoder<T> values[kTokens];
    for (int i = 0; i < kTokens; ++i) {
      keys[i] = KvRowEncoder<T>(k + i * ldk, head_dim_);
      values[i] = KvRowEncoder<T>(v + i * ldv, head_dim_);
    }
    WriteMany(token, keys, values);
  }

  // The same of sources that have what KvRowEncoder has.
  template <typename Source>
  void WriteOne(int64_t token, const Source& key, const Source& value) const {
    if (k_ != nullptr) WriteKey(token, key);
    if (v_ == nullptr) return;
    WriteTokens(v_, token, &value, 1, [&](int64_t d, const Storage(*x)[kKvRowUnit]) {
      for (int64_t i = 0; i < kKvRowUnit; ++i) v_[ValueIndex(token, d + i)] = x[0][i];
    });
  }
  template <typename Source>
  void WriteMany(int64_t token, const Source (&keys)[kTokens],
                 const Source (&values)[kTokens]) const {
    if (k_ != nullptr) WriteKeys(token, keys);
    if (v_ == nullptr) return;
    WriteTokens(v_, token, values, kTokens, [&](int64_t d, const Storage(*x)[kKvRowUnit]) {
      for (int i = 0; i < kTokens; i += kInPairs ? 2 : 1) {
        Storage* to = &v_[ValueIndex(token + i, d)];
        if constexpr (kInPairs) {
          for (int64_t at = 0; at < kKvRowUnit; at += kElements) {
            Units<Element> a, b, pairs[2];
            __builtin_memcpy(&a, &x[i][at], 16);
            __builtin_memcpy(&b, &x[i + 1][at], 16);
            Interleave<Element>(a, b, pairs[0], pairs[1]);
            __builtin_memcpy(to + 2 * at, pairs, 32);
          }
        } else {
          __builtin_memcpy(to, x[i], sizeof(x[i]));
        }
      }
    });
  }

 private:
  static constexpr int kElements = 16 / sizeof(Storage);  // of a vector

  template <typename Source>
  void WriteKey(int64_t token, const Source& key) const {
    WriteTokens(k_, token, &key, 1, [&](int64_t d, const Storage(*x)[kKvRowUnit]) {
      for (int64_t i = 0; i < kKvRowUnit; ++i) k_[KvKeyIndex(kInPairs, token, d + i)] = x[0][i];
    });
  }
  template <typename Source>
  void WriteKeys(int64_t token, const Source (&keys)[kTokens]) const {
    WriteTokens(k_, token, keys, kTokens, [&](int64_t d, const Storage(*x)[kKvRowUnit]) {
      for (int64_t at = 0; at < kKvRowUnit; at += kElements) {
        Units<Unit> units[kTokens];
        for (int i = 0; i < kTokens; ++i) __builtin_memcpy(&units[i], &x[i][at], 16);
        Transpose<Unit>(units);
        for (int i = 0; i < kTokens; ++i) {
          const int64_t first = d + at + i * (kElements / kTokens);
          __builtin_memcpy(&k_[KvKeyIndex(kInPairs, token, first)], &units[i], 16);
        }
      }
    });
  }

  int64_t ValueIndex(int64_t token, int64_t d) const {
    return KvValueIndex(kInPairs, row_, token, d);
  }

  // Calls write(d, elements from d on of the tokens).
  template <typename Source, typename F>
  void WriteTokens(Storage* page, int64_t token, const Source* sources, int count, F write) const {
    for (int64_t d = 0; d < row_; d += kKvRowUnit) {
      Storage elements[kTokens][kKvRowUnit];
      for (int i = 0; i < count; ++i) sources[i].Encode(d, elements[i]);
      write(d, elements);
    }
    for (int i = 0; i < count; ++i) sources[i].SetScale(page, row_, token + i);
  }

  const int64_t head_dim_;
  const int64_t row_;
  Storage* const k_;
  Storage* const v_;
};

void WriteKvRows(const KvPages& kv, const WriteKvArgs& a, int64_t begin, int64_t end) {
  WithKvFormat(kv.format, [&](auto format) {
    using Writer = KvWriter<decltype(format)>;
    // Of the rows from this one on, whether as many as are written at once are neighbours.
    const auto has_many = [&](int64_t row) {
      if (end - row < Writer::kTokens || a.slots[row] % Writer::kTokens != 0) return false;
      for (int i = 1; i < Writer::kTokens; ++i) {
        if (a.slots[row + i] != a.slots[row] + i) return false;
      }
      return true;
    };
    for (int64_t row = begin; row < end;) {
      const int64_t page = a.slots[row] / kPageSize, token = a.slots[row] % kPageSize;
      const bool many = has_many(row);
      for (int64_t head = 0; head < kv.kv_heads; ++head) {
        const Writer writer(kv, head, page);
        const float* k = a.k + row * a.ldk + head * kv.head_dim;
        const float* v = a.v + row * a.ldv + head * kv.head_dim;
        if (many) {
          writer.WriteMany(token, k, a.ldk, v, a.ldv);
        } else {
          writer.WriteOne(token, k, v);
        }
      }
      row += many ? Writer::kTokens : 1;
    }
  });
}

}  // namespace
}  // namespace mlc_native::kernels
