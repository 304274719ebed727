// Helpers of the kernel tests: seeded inputs, poisoned outputs, comparison with references in
// double, and a fixture that runs every test on every ISA of this machine.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/reference.h"
#include "support/aligned_buffer.h"
#include "support/half.h"
#include "support/thread_pool.h"

namespace mlc_native::kernels {

inline constexpr float kPoison = -7777.25f;  // a value that no kernel computes

using Floats = std::vector<float>;

inline reference::Matrix ToDouble(const Floats& x) { return {x.begin(), x.end()}; }

inline float RoundTo(DType dtype, float x) {
  char element[4];
  StoreElement(dtype, element, 0, x);
  return LoadElement(dtype, element, 0);
}

// Returns the scale of a group of inputs of kQ8 or kQ4 with this largest magnitude > 0.
inline float InputScaleOf(WeightFormat format, float largest) {
  if (format == WeightFormat::kQ8) return largest / 127.0f;
  int exponent = 0;
  std::frexp(largest * (128.0f / 127.0f), &exponent);
  return std::ldexp(1.0f, exponent - 7);
}

// Checks |got - want| <= tolerance * (1 + |want|), and that NaNs are at the same places.
inline void ExpectClose(const Floats& got, const reference::Matrix& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], tolerance * (1 + std::abs(want[i]))) << "at " << i;
  }
}

inline bool SameBits(const float* a, const float* b, int64_t n) {
  return std::memcmp(a, b, n * sizeof(float)) == 0;
}

class KernelTest : public ::testing::TestWithParam<std::string> {
 protected:
  Floats Random(int64_t n, float amplitude = 1.0f) {
    std::uniform_real_distribution<float> uniform(-amplitude, amplitude);
    Floats x(n);
    for (float& value : x) value = uniform(random_);
    return x;
  }
  int64_t RandomInt(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

  const CpuKernels& isa() const { return *isa_; }
  // Returns a pool of that many threads, which lives as long as the test.
  Cpu Threads(int n) {
    while (static_cast<int>(pools_.size()) < n) {
      pools_.push_back(std::make_unique<ThreadPool>(static_cast<int>(pools_.size()) + 1));
    }
    return {isa_, pools_[n - 1].get()};
  }

  std::mt19937 random_{20240607};

 private:
  const CpuKernels* isa_ = &SelectCpuKernels(GetParam());
  std::vector<std::unique_ptr<ThreadPool>> pools_;
};

inline std::vector<std::string> IsaNames() {
  const auto names = AvailableIsas();
  return {names.begin(), names.end()};
}

// A rows x ld matrix whose padding must not change.
struct Poisoned {
  int64_t rows, columns, ld;
  Floats data;

  Poisoned(int64_t rows, int64_t columns, int64_t padding)
      : rows(rows), columns(columns), ld(columns + padding), data(rows * ld + 1, kPoison) {}

  Floats Dense() const {
    Floats dense;
    for (int64_t i = 0; i < rows; ++i) {
      dense.insert(dense.end(), &data[i * ld], &data[i * ld] + columns);
    }
    return dense;
  }
  void Fill(const Floats& dense) {
    for (int64_t i = 0; i < rows; ++i) {
      std::copy(&dense[i * columns], &dense[i * columns] + columns, &data[i * ld]);
    }
  }
  void ExpectPaddingUntouched() const {
    for (int64_t i = 0; i < rows * ld; ++i) {
      if (i % ld < columns) continue;
      ASSERT_EQ(data[i], kPoison) << "row " << i / ld << " column " << i % ld;
    }
    ASSERT_EQ(data.back(), kPoison);
  }
};

}  // namespace mlc_native::kernels
