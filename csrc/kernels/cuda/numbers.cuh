// Element types of activations, weights and KV pages as kernels see them, and eight of them at a
// time: 16 bytes of a 16-bit type are one load.
#pragma once

#include <type_traits>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/kv_pages.h"
#include "support/check_macro.h"

namespace mlc_native::kernels::cuda {

struct alignas(2) BFloat16 {
  uint16_t bits;
};
struct alignas(2) Float16 {
  uint16_t bits;
};
struct Float8 {  // E4M3
  uint8_t bits;
};

// Of 16 tokens, behind their rows in a page: only 8 bits need them.
template <typename Kv>
inline constexpr bool kHasKvScales = std::is_same_v<Kv, Float8>;
template <typename Kv>
inline constexpr int kKvScaleBytes =
    kHasKvScales<Kv> ? static_cast<int>(KvScaleBytes(KvFormat::kFloat8)) : 0;

// An E4M3 number that is no NaN, where no instruction converts it. Its exponent and mantissa are
// moved to where those of a float are, which reads a number that is smaller by 2^120 there,
// subnormal ones too.
__device__ inline float Float8ByBits(uint8_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x80u) << 24;
  return __uint_as_float(sign | static_cast<uint32_t>(bits & 0x7fu) << 20) * 0x1p120f;
}

// E4M3 numbers, of which the instruction that converts them does few at a time, as numbers of a
// 16-bit type by moving their bits: smaller by 2^8 (float16) or 2^120 (bfloat16), but exact,
// subnormal ones too. A NaN becomes 480, smaller by as much.
template <typename T>
struct ShrunkFloat8 {
  static constexpr bool kIsBFloat16 = std::is_same_v<T, BFloat16>;
  // What makes up for it: one of these for what they are multiplied with, which stays in the range
  // of its type and of the sums, and the other one for the sums.
  static constexpr float kOfKeys = kIsBFloat16 ? 0x1p60f : 1.0f;
  static constexpr float kOfScores = kIsBFloat16 ? 0x1p60f : 0x1p8f;
  static constexpr float kOfWeights = kIsBFloat16 ? 0x1p60f : 0x1p8f;
  static constexpr float kOfSums = kIsBFloat16 ? 0x1p60f : 1.0f;

  // Of bytes 1 and 3; the others do not count.
  __device__ static uint32_t Pair(uint32_t bytes) {
    if constexpr (kIsBFloat16) {
      return (bytes & 0x80008000u) | (bytes >> 4 & 0x07f007f0u);
    } else {
      return (bytes & 0x80008000u) | (bytes >> 1 & 0x3f803f80u);
    }
  }
};

template <typename T>
__device__ inline float ToFloat(T x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return __uint_as_float(static_cast<uint32_t>(x.bits) << 16);
  } else if constexpr (std::is_same_v<T, Float16>) {
    return Float16BitsToFloat(x.bits);
  } else if constexpr (std::is_same_v<T, Float8>) {
    return kConvertsFloat8 ? Float8BitsToFloat(x.bits) : Float8ByBits(x.bits);
  } else {
    return x;
  }
}

// Rounded to nearest even.
template <typename T>
__device__ inline T FromFloat(float x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return {static_cast<uint16_t>(PackBFloat16(x, 0.0f))};
  } else if constexpr (std::is_same_v<T, Float16>) {
    return {static_cast<uint16_t>(PackFloat16(x, 0.0f))};
  } else if constexpr (std::is_same_v<T, Float8>) {
    return {FloatToFloat8Bits(x)};
  } else {
    return x;
  }
}

inline constexpr float kLog2E = 1.4426950408889634f;

// Without a branch; the error is about 2^-23, not relative to a small x.
__device__ inline float FastTanh(float x) {
  constexpr float kTwoLog2E = 2.885390081777927f;
  return 1.0f - FastDivide(2.0f, 1.0f + Exp2(kTwoLog2E * x));
}

// Two numbers of a 16-bit type in one register.
template <typename T>
__device__ inline uint32_t Pack(float low, float high) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return PackBFloat16(low, high);
  } else {
    return PackFloat16(low, high);
  }
}

template <typename T>
__device__ inline void Mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    MmaBFloat16(c, a, b0, b1);
  } else {
    MmaFloat16(c, a, b0, b1);
  }
}

// ---- Eight at a time ----

inline constexpr int kVector = 8;

// Eight neighbours; the address is a multiple of 8 elements.
template <typename T>
struct alignas(kVector * sizeof(T) < 16 ? kVector * sizeof(T) : 16) Vector8 {
  T items[kVector];
};

template <typename T>
__device__ inline Vector8<T> LoadVector(const T* from) {
  return *reinterpret_cast<const Vector8<T>*>(from);
}

template <typename T>
__device__ inline void ToFloats(const Vector8<T>& v, float (&x)[kVector]) {
#pragma unroll
  for (int i = 0; i < kVector; ++i) x[i] = ToFloat(v.items[i]);
}

// Eight neighbours as they lie in memory: nothing waits for them before they are numbers.
template <typename T>
struct RawVector8 {
  using Part = std::conditional_t<sizeof(T) == 1, uint2, uint4>;
  static constexpr int kParts = static_cast<int>(sizeof(T) * kVector / sizeof(Part));
  static constexpr int kWords = static_cast<int>(sizeof(Part)) / 4;  // of a part
  Part parts[kParts];

  // Word `i` of all.
  __device__ uint32_t Word(int i) const {
    const Part& part = parts[i / kWords];
    if (i % kWords == 0) return part.x;
    if (i % kWords == 1) return part.y;
    if constexpr (kWords == 4) return i % kWords == 2 ? part.z : part.w;
    return 0;
  }
};

template <typename T>
__device__ inline RawVector8<T> LoadRaw(const T* from) {
  using Raw = RawVector8<T>;
  Raw raw;
#pragma unroll
  for (int i = 0; i < Raw::kParts; ++i) {
    raw.parts[i] = reinterpret_cast<const typename Raw::Part*>(from)[i];
  }
  return raw;
}

template <typename T>
__device__ inline void ToFloats(const RawVector8<T>& raw, float (&x)[kVector]) {
  constexpr int kOfWord = 4 / static_cast<int>(sizeof(T));  // elements
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const uint32_t bits = raw.Word(i / kOfWord) >> (32 / kOfWord * (i % kOfWord));
    if constexpr (sizeof(T) == 4) {
      x[i] = __uint_as_float(bits);
    } else if constexpr (sizeof(T) == 2) {
      x[i] = ToFloat(T{static_cast<uint16_t>(bits)});
    } else {
      x[i] = ToFloat(T{static_cast<uint8_t>(bits)});
    }
  }
}

template <typename T>
__device__ inline void LoadFloats(const T* from, float (&x)[kVector]) {
  ToFloats(LoadVector(from), x);
}

template <typename T>
__device__ inline void StoreFloats(T* to, const float (&x)[kVector]) {
  Vector8<T> v;
#pragma unroll
  for (int i = 0; i < kVector; ++i) v.items[i] = FromFloat<T>(x[i]);
  *reinterpret_cast<Vector8<T>*>(to) = v;
}

// ---- From run-time types to compile-time ones (host) ----

template <typename T>
struct TypeTag {
  using Type = T;
};

template <typename F>
void WithActivationType(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kFloat32:
      return f(TypeTag<float>());
    case DType::kBFloat16:
      return f(TypeTag<BFloat16>());
    case DType::kFloat16:
      return f(TypeTag<Float16>());
  }
  MLC_CHECK(false) << "activations of type " << static_cast<int>(dtype);
}

// KV pages have the type of the activations, or 8 bits with 16-bit activations.
template <typename T, typename F>
void WithKvFormat(KvFormat format, DType activations, const F& f) {
  if constexpr (sizeof(T) == 2) {
    if (format == KvFormat::kFloat8) return f(TypeTag<Float8>());
  }
  MLC_CHECK(format == KvFormatOf(activations))
      << "KV of format " << static_cast<int>(format) << ", activations of type "
      << static_cast<int>(activations);
  f(TypeTag<T>());
}

}  // namespace mlc_native::kernels::cuda
