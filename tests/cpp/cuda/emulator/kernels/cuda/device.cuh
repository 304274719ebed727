// The host's version of csrc/kernels/cuda/device.cuh: the same names, computed by fibers
// (fibers.h). Found first on the include path of the emulated kernels.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "cuda/emulator/emulator.h"
#include "cuda/emulator/fibers.h"
#include "kernels/cuda/runtime.h"
#include "support/half.h"

// ---- CUDA's own words ----

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
// Blocks run one after another, so one copy will do (not in clusters). What is left of the last
// block stays in it.
#define __shared__ static

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
extern dim3 threadIdx, blockIdx, blockDim, gridDim;

struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};

inline void __syncthreads() { mlc_native::emulator::BlockBarrier(); }
inline void __syncwarp() { mlc_native::emulator::WarpBarrier(); }

template <typename T>
T __shfl_sync(unsigned, T value, int lane) {
  const mlc_native::emulator::WarpExchange all(&value, sizeof(T));
  std::memcpy(&value, all.of(static_cast<unsigned>(lane)), sizeof(T));
  return value;
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int distance) {
  return __shfl_sync(mask, value, static_cast<int>(threadIdx.x % 32) ^ distance);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  return __shfl_sync(mask, value,
                     lane >= static_cast<int>(distance) ? lane - static_cast<int>(distance) : lane);
}
inline unsigned __ballot_sync(unsigned, bool value) {
  const mlc_native::emulator::WarpExchange all(&value, 1);
  unsigned bits = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (*static_cast<const bool*>(all.of(lane))) bits |= 1u << lane;
  }
  return bits;
}
inline int __syncthreads_or(int value) {
  static int result;
  __syncthreads();
  result = 0;
  __syncthreads();
  if (value != 0) result = 1;
  __syncthreads();
  return result;
}

template <typename T, typename U>
T atomicAdd(T* at, U value) {
  const T old = *at;
  *at = static_cast<T>(old + value);
  return old;
}
template <typename T>
T atomicMax(T* at, T value) {
  const T old = *at;
  *at = std::max(old, value);
  return old;
}

inline float __uint_as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t __float_as_uint(float value) { return std::bit_cast<uint32_t>(value); }
inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t selector) {
  const uint64_t bytes = static_cast<uint64_t>(y) << 32 | x;
  uint32_t out = 0;
  for (int i = 0; i < 4; ++i) {
    out |= static_cast<uint32_t>(bytes >> (8 * (selector >> (4 * i) & 7)) & 0xff) << (8 * i);
  }
  return out;
}
inline int __popc(unsigned bits) { return std::popcount(bits); }
inline int __ffs(unsigned bits) { return bits == 0 ? 0 : std::countr_zero(bits) + 1; }
inline int __clz(unsigned bits) { return std::countl_zero(bits); }
template <typename T>
T min(T a, T b) {
  return std::min(a, b);
}
template <typename T>
T max(T a, T b) {
  return std::max(a, b);
}
using std::isfinite;
using std::isnan;

namespace mlc_native::kernels::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// ---- Numbers as bits ----

inline uint32_t PackBFloat16(float low, float high) {
  return FloatToBFloat16(low) | static_cast<uint32_t>(FloatToBFloat16(high)) << 16;
}
inline uint32_t PackFloat16(float low, float high) {
  return FloatToFloat16(low) | static_cast<uint32_t>(FloatToFloat16(high)) << 16;
}
inline float Float16BitsToFloat(uint16_t bits) { return Float16ToFloat(bits); }

inline float Float8BitsToFloat(uint8_t bits) {
  const int exponent = bits >> 3 & 15;
  const int mantissa = bits & 7;
  float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                              : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  if ((bits & 0x7f) == 0x7f) value = std::numeric_limits<float>::quiet_NaN();
  return (bits & 0x80) != 0 ? -value : value;
}
inline uint8_t FloatToFloat8Bits(float value) {
  if (std::isnan(value)) return 0x7f;
  uint8_t best = 0;  // of the 127 magnitudes, the nearest; ties to even
  const float magnitude = std::min(std::abs(value), 448.0f);
  for (uint8_t bits = 0; bits < 0x7f; ++bits) {
    const float error = std::abs(Float8BitsToFloat(bits) - magnitude);
    const float best_error = std::abs(Float8BitsToFloat(best) - magnitude);
    if (error < best_error || (error == best_error && bits % 2 == 0)) best = bits;
  }
  return static_cast<uint8_t>(best | (std::signbit(value) ? 0x80 : 0));
}

inline constexpr bool kConvertsFloat8 = true;
inline uint32_t Float8PairToFloat16(uint16_t codes) {
  return PackFloat16(Float8BitsToFloat(static_cast<uint8_t>(codes)),
                     Float8BitsToFloat(static_cast<uint8_t>(codes >> 8)));
}
inline uint32_t AndOr(uint32_t a, uint32_t b, uint32_t c) { return (a & b) | c; }
inline uint32_t FmaBFloat16x2(uint32_t a, uint32_t b, uint32_t c) {
  const auto fma = [&](int shift) {
    const auto part = [shift](uint32_t x) {
      return BFloat16ToFloat(static_cast<uint16_t>(x >> shift));
    };
    return std::fma(part(a), part(b), part(c));
  };
  return PackBFloat16(fma(0), fma(16));
}
inline uint32_t FmaFloat16x2(uint32_t a, uint32_t b, uint32_t c) {
  const auto fma = [&](int shift) {
    const auto part = [shift](uint32_t x) {
      return Float16ToFloat(static_cast<uint16_t>(x >> shift));
    };
    return std::fma(part(a), part(b), part(c));
  };
  return PackFloat16(fma(0), fma(16));
}

// ---- Fast functions ----

inline float Exp2(float x) { return std::exp2(x); }
inline float ReciprocalSqrt(float x) { return 1.0f / std::sqrt(x); }
inline float FastDivide(float x, float y) { return x / y; }

// ---- Memory ----

inline uint4 LoadStreamed(const void* address) {
  emulator::CheckAligned(address, sizeof(uint4));
  return *static_cast<const uint4*>(address);
}
template <typename T>
void LoadStreamedIf(bool valid, const void* address, T& v) {
  if (valid) emulator::CheckAligned(address, sizeof v);
  v = valid ? *static_cast<const T*>(address) : T{};
}
template <typename T>
void StoreAtOnce(void* address, const T& v) {
  emulator::CheckAligned(address, sizeof v);
  *static_cast<T*>(address) = v;
}
template <typename T>
T LoadOthers(const T* address) {
  return *address;
}
inline int32_t CountForOthers(int32_t* counter) { return (*counter)++; }
inline void* DynamicShared() { return emulator::DynamicShared(); }
inline void CopyAsync16(void* shared, const void* global, bool valid) {
  emulator::CopyLater(shared, valid ? global : nullptr, 16);
}
template <int kBytes>
void CopyAsyncFew(void* shared, const void* global, bool valid) {
  emulator::CopyLater(shared, valid ? global : nullptr, kBytes);
}
inline void CommitCopies() { emulator::CommitCopies(); }
template <int n>
void WaitForCopies() {
  emulator::WaitForCopies(n);
}

// ---- Clusters ----

inline constexpr bool kHasClusters = true;
inline constexpr bool kLacksClusters = true;

template <int kBlocks>
void ClusterBarrier() {
  emulator::ClusterBarrier();
}
template <int kBlocks>
float4 LoadOfCluster(const float* shared, int rank) {
  emulator::CheckAligned(shared, sizeof(float4));
  return *static_cast<const float4*>(
      emulator::SharedOfCluster(shared, static_cast<unsigned>(rank)));
}
inline bool HasClusters() { return true; }
inline bool LacksClusters() { return true; }  // so Gemv computes what BatchGemv does, too

// ---- Tensor cores ----

namespace emulated {

struct Element {
  const void* base;
  uint16_t at(int i) const {
    uint16_t bits;
    std::memcpy(&bits, static_cast<const uint16_t*>(base) + i, 2);
    return bits;
  }
};

inline void LoadMatrices(uint32_t (&r)[4], const void* shared, bool transposed) {
  emulator::CheckAligned(shared, 16);
  const emulator::WarpExchange rows(&shared, sizeof shared);
  const auto element = [&](unsigned matrix, unsigned row, unsigned column) {
    const void* address;
    std::memcpy(&address, rows.of(8 * matrix + row), sizeof address);
    return static_cast<uint32_t>(Element{address}.at(static_cast<int>(column)));
  };
  const unsigned lane = threadIdx.x % 32;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = lane / 4;
    const unsigned column = 2 * (lane % 4);
    r[i] = transposed ? element(i, column, row) | element(i, column + 1, row) << 16
                      : element(i, row, column) | element(i, row, column + 1) << 16;
  }
  // No lane overwrites data that another one still has to read, since the hardware reads at once.
  emulator::WarpBarrier();
}

// A lane's elements, as floats: neighbours are those of one register.
struct MmaInput {
  float a[8];
  float b[4];
};

template <typename F>
void Mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, const F& to_float) {
  const auto half = [&](uint32_t pair, unsigned i) {
    return to_float(static_cast<uint16_t>(pair >> (i % 2 * 16)));
  };
  MmaInput mine;
  for (unsigned i = 0; i < 8; ++i) mine.a[i] = half(a[i / 2], i);
  for (unsigned i = 0; i < 4; ++i) mine.b[i] = half(i < 2 ? b0 : b1, i);
  const emulator::WarpExchange all(&mine, sizeof mine);
  const auto input = [&](unsigned lane) { return static_cast<const MmaInput*>(all.of(lane)); };
  const unsigned g = threadIdx.x % 32 / 4;
  const unsigned t = threadIdx.x % 4;
  const MmaInput* rows[4];
  for (unsigned i = 0; i < 4; ++i) rows[i] = input(4 * g + i);
  for (unsigned column = 0; column < 2; ++column) {
    const MmaInput* columns[4];
    for (unsigned i = 0; i < 4; ++i) columns[i] = input(4 * (2 * t + column) + i);
    for (unsigned row = 0; row < 2; ++row) {
      float& result = c[2 * row + column];
      double sum = result;
      for (unsigned k = 0; k < 16; ++k) {
        const unsigned lane = k % 8 / 2;
        const unsigned of_row = 4 * (k / 8) + 2 * row + k % 2;
        const unsigned of_column = 2 * (k / 8) + k % 2;
        sum += static_cast<double>(rows[lane]->a[of_row]) * columns[lane]->b[of_column];
      }
      result = static_cast<float>(sum);
    }
  }
}

}  // namespace emulated

inline void LoadMatrices(uint32_t (&r)[4], const void* shared) {
  emulated::LoadMatrices(r, shared, false);
}
inline void LoadMatricesTransposed(uint32_t (&r)[4], const void* shared) {
  emulated::LoadMatrices(r, shared, true);
}
inline uint32_t TransposeMatrix(uint32_t r) {
  const emulator::WarpExchange all(&r, sizeof r);
  const auto element = [&](unsigned row, unsigned column) {
    uint32_t pair;
    std::memcpy(&pair, all.of(4 * row + column / 2), sizeof pair);
    return pair >> (column % 2 * 16) & 0xffff;
  };
  const unsigned row = threadIdx.x % 32 / 4;
  const unsigned column = 2 * (threadIdx.x % 4);
  return element(column, row) | element(column + 1, row) << 16;
}
inline void MmaBFloat16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  emulated::Mma(c, a, b0, b1, BFloat16ToFloat);
}
inline void MmaFloat16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  emulated::Mma(c, a, b0, b1, Float16ToFloat);
}

// ---- Kernels that follow one another ----

inline void WaitForPrevious() { emulator::WaitForPrevious(); }

// ---- Launch ----

inline int NumMultiprocessors() { return 3; }
inline size_t SharedBytesOfMultiprocessor() { return 100 * 1024; }  // of consumer GPUs
inline constexpr size_t kMostSharedBytes = 99 * 1024;
inline constexpr size_t kMostSharedBytesOf90 = 227 * 1024;

struct LaunchShape {
  dim3 grid;
  unsigned threads;
  size_t shared_bytes = 0;
  bool is_of_90 = false;
  unsigned cluster = 1;
};

template <typename Args>
void Launch(void (*kernel)(Args), const LaunchShape& shape, Stream stream, const Args& args) {
  if (shape.shared_bytes > (shape.is_of_90 ? kMostSharedBytesOf90 : kMostSharedBytes)) {
    throw DeviceError("too much shared memory");
  }
  if (shape.grid.y > 65535 || shape.grid.z > 65535) throw DeviceError("too large a grid");
#if __has_builtin(__builtin_clear_padding)
  Args seen = args;
  __builtin_clear_padding(&seen);  // what lies between the fields may look like anything
  emulator::CheckArguments(&seen, sizeof seen);
#endif
  emulator::PutLaunch(stream.handle(), [=] {
    emulator::RunGrid(
        {shape.grid.x, shape.grid.y, shape.grid.z}, shape.threads, shape.cluster,
        shape.shared_bytes, [&] { kernel(args); }, emulator::ShieldMemory);
  });
}

}  // namespace mlc_native::kernels::cuda
