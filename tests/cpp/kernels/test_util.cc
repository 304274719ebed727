#include "kernels/test_util.h"

#include <algorithm>

#include "kernels/amx_emulator.h"
#include "kernels/cpu/table.h"

namespace mlc_native::kernels {
#if defined(__x86_64__)
namespace {
constexpr const char* kEmulatedAmx = "avx512_amx_emulated";
}
#endif

reference::Matrix ToDouble(const Floats& x) { return {x.begin(), x.end()}; }

float RoundTo(DType dtype, float x) {
  char element[4];
  StoreElement(dtype, element, 0, x);
  return LoadElement(dtype, element, 0);
}

float InputScaleOf(WeightFormat format, float largest) {
  if (!HasExponentScale(format)) return largest / 127.0f;
  int exponent = 0;
  std::frexp(largest * (128.0f / 127.0f), &exponent);
  return std::ldexp(1.0f, exponent - 7);
}

void ExpectClose(const Floats& got, const reference::Matrix& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const double allowed = tolerance * (1 + std::abs(want[i]));
    if (std::abs(got[i] - want[i]) <= allowed) continue;  // the assertion takes much longer
    ASSERT_NEAR(got[i], want[i], allowed) << "at " << i;
  }
}

Floats KernelTest::Random(int64_t n, float amplitude) {
  std::uniform_real_distribution<float> uniform(-amplitude, amplitude);
  Floats x(n);
  for (float& value : x) value = uniform(random_);
  return x;
}

int64_t KernelTest::RandomInt(int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random_);
}

Cpu KernelTest::Threads(int n) {
  while (static_cast<int>(pools_.size()) < n) {
    pools_.push_back(std::make_unique<ThreadPool>(static_cast<int>(pools_.size()) + 1));
  }
  return {isa_, pools_[n - 1].get()};
}

std::vector<std::string> IsaNames() {
  const auto available = AvailableIsas();
  std::vector<std::string> names(available.begin(), available.end());
#if defined(__x86_64__)
  const auto has = [&](const char* isa) { return std::ranges::find(names, isa) != names.end(); };
  if (has("avx512_bf16") && !has("avx512_amx")) names.emplace_back(kEmulatedAmx);
#endif
  return names;
}

const CpuKernels& KernelsNamed(const std::string& isa) {
#if defined(__x86_64__)
  static const CpuKernels amx = {avx512_amx::kLinear, avx512_vnni::kAttention, avx512_vnni::kRows,
                                 avx512_vnni::kDelta, kEmulatedAmx};
  if (isa == kEmulatedAmx) {
    EmulateAmx();
    return amx;
  }
#endif
  return SelectCpuKernels(isa);
}

Floats Poisoned::Dense() const {
  Floats dense;
  for (int64_t i = 0; i < rows; ++i) {
    dense.insert(dense.end(), &data[i * ld], &data[i * ld] + columns);
  }
  return dense;
}

void Poisoned::Fill(const Floats& dense) {
  for (int64_t i = 0; i < rows; ++i) {
    std::copy(&dense[i * columns], &dense[i * columns] + columns, &data[i * ld]);
  }
}

void Poisoned::ExpectPaddingUntouched() const {
  for (int64_t i = 0; i < rows * ld; ++i) {
    if (i % ld < columns) continue;
    ASSERT_EQ(data[i], kPoison) << "row " << i / ld << " column " << i % ld;
  }
  ASSERT_EQ(data.back(), kPoison);
}

}  // namespace mlc_native::kernels
