// Helpers of the CUDA kernel tests: seeded inputs as floats that the element type represents
// exactly, their device form, and comparison with kernels/reference.h in double.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "cuda/device_memory.h"
#include "kernels/cuda/kernels.h"
#include "kernels/reference.h"
#include "support/half.h"

namespace mlc_native::kernels::cuda {

using Floats = std::vector<float>;
using DeviceBytes = DeviceArray<uint8_t>;

inline constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};

inline reference::Matrix ToDouble(const Floats& x) { return {x.begin(), x.end()}; }

inline std::vector<uint8_t> Encode(DType dtype, const Floats& x) {
  std::vector<uint8_t> bytes(x.size() * DTypeSize(dtype));
  for (size_t i = 0; i < x.size(); ++i) {
    StoreElement(dtype, bytes.data(), static_cast<int64_t>(i), x[i]);
  }
  return bytes;
}

inline Floats Decode(DType dtype, const std::vector<uint8_t>& bytes) {
  Floats x(bytes.size() / DTypeSize(dtype));
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = LoadElement(dtype, bytes.data(), static_cast<int64_t>(i));
  }
  return x;
}

// The relative error of one rounding to the type.
inline double Epsilon(DType dtype) {
  return dtype == DType::kFloat32 ? 1e-6 : dtype == DType::kFloat16 ? 1.0 / 2048 : 1.0 / 256;
}

// Checks |got - want| <= tolerance * (1 + |want|). NaN always fails.
inline void ExpectClose(const Floats& got, const reference::Matrix& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], tolerance * (1 + std::abs(want[i]))) << "at " << i;
  }
}

// Returns the value of an E4M3 byte.
inline float Float8Value(uint8_t bits) {
  if ((bits & 0x7f) == 0x7f) return NAN;
  const int exponent = bits >> 3 & 15;
  const float mantissa = static_cast<float>(bits & 7) / 8;
  const float value =
      exponent == 0 ? std::ldexp(mantissa, -6) : std::ldexp(1 + mantissa, exponent - 7);
  return (bits & 0x80) != 0 ? -value : value;
}

class CudaKernelTest : public ::testing::Test {
 protected:
  // Uniform in [-amplitude, amplitude], rounded to the type.
  Floats Random(DType dtype, int64_t n, float amplitude = 1.0f) {
    std::uniform_real_distribution<float> uniform(-amplitude, amplitude);
    Floats x(n);
    for (float& value : x) value = uniform(random_);
    return Decode(dtype, Encode(dtype, x));
  }
  int64_t RandomInt(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

  std::mt19937 random_{20240607};
};

}  // namespace mlc_native::kernels::cuda
