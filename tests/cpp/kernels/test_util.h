// Helpers of the kernel tests: seeded inputs, poisoned outputs, comparison with references in
// double, and a fixture that runs every test on every ISA of this machine. What computes is in
// test_util.cc, which is optimized: tests are not, and in qemu that would take most of their time.
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
#include "kernels/packed_format.h"
#include "kernels/reference.h"
#include "support/aligned_buffer.h"
#include "support/half.h"
#include "support/thread_pool.h"

namespace mlc_native::kernels {

inline constexpr float kPoison = -7777.25f;  // a value that no kernel computes

using Floats = std::vector<float>;

reference::Matrix ToDouble(const Floats& x);
float RoundTo(DType dtype, float x);

// Whether the scales of a format's inputs are powers of two.
inline bool HasExponentScale(WeightFormat format) {
  return format == WeightFormat::kQ4 || format == WeightFormat::kQ4Affine ||
         format == WeightFormat::kQ4Group16 || format == WeightFormat::kQ4AffineGroup16 ||
         format == WeightFormat::kQ2AffineGroup16 || TableOf(format) != nullptr;
}
// Returns the scale of a group of inputs of a quantized format with this largest magnitude > 0.
float InputScaleOf(WeightFormat format, float largest);

// Checks |got - want| <= tolerance * (1 + |want|), and that NaNs are at the same places.
void ExpectClose(const Floats& got, const reference::Matrix& want, double tolerance);

inline bool SameBits(const float* a, const float* b, int64_t n) {
  return std::memcmp(a, b, n * sizeof(float)) == 0;
}

// Those of this machine, and "avx512_amx_emulated" where it has all of avx512_amx but the tiles.
std::vector<std::string> IsaNames();
const CpuKernels& KernelsNamed(const std::string& isa);

class KernelTest : public ::testing::TestWithParam<std::string> {
 protected:
  Floats Random(int64_t n, float amplitude = 1.0f);
  int64_t RandomInt(int64_t low, int64_t high);

  const CpuKernels& isa() const { return *isa_; }
  // Whether this ISA rounds the inputs of products of bfloat16, and those of its attention.
  bool rounds_inputs() const { return rounds_queries() || GetParam().starts_with("avx512_amx"); }
  bool rounds_queries() const {
    return GetParam().ends_with("_bf16") || GetParam().ends_with("_i8mm");
  }
  // Returns a pool of that many threads, which lives as long as the test.
  Cpu Threads(int n);

  std::mt19937 random_{20240607};

 private:
  const CpuKernels* isa_ = &KernelsNamed(GetParam());
  std::vector<std::unique_ptr<ThreadPool>> pools_;
};

// A rows x ld matrix whose padding must not change.
struct Poisoned {
  int64_t rows, columns, ld;
  Floats data;

  Poisoned(int64_t rows, int64_t columns, int64_t padding)
      : rows(rows), columns(columns), ld(columns + padding), data(rows * ld + 1, kPoison) {}

  Floats Dense() const;
  void Fill(const Floats& dense);
  void ExpectPaddingUntouched() const;
};

}  // namespace mlc_native::kernels
