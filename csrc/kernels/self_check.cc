#include "kernels/self_check.h"

#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/packed_format.h"
#include "support/aligned_buffer.h"

namespace mlc_native::kernels {
namespace {

constexpr int64_t kCheckedN = 70, kCheckedK = 200, kMostRows = 41;
constexpr int64_t kCheckedRows[] = {1, 8, 16, kMostRows};
constexpr float kTolerance = 1e-4F;  // of sums of floats, which are up to about 20

// Values in [-1, 1), always the same.
std::vector<float> Values(int64_t n) {
  std::vector<float> values(static_cast<size_t>(n));
  uint32_t state = 1;
  for (float& value : values) {
    state = state * 1664525 + 1013904223;
    value = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
  }
  return values;
}

std::vector<float> Product(const LinearKernels& kernels, const PackedLinear& w,
                           const std::vector<float>& x, int64_t rows) {
  std::vector<float> y(static_cast<size_t>(rows * w.n));
  const AlignedBuffer workspace(LinearWorkspaceBytes(rows, w.k));
  const LinearArgs args{.x = x.data(),
                        .ldx = w.k,
                        .m = rows,
                        .y = y.data(),
                        .ldy = w.n,
                        .workspace = workspace.data()};
  kernels.linear_input(w, args, 0, rows);
  kernels.linear(w, args, 0, (w.n + w.panel_width - 1) / w.panel_width);
  return y;
}

// Whether each row has the bits that it has alone, and about the values that the other has.
bool KeepsRows(const LinearKernels& tested, const LinearKernels& known, const PackedLinear& w,
               const std::vector<float>& x) {
  const std::vector<float> got = Product(tested, w, x, kMostRows);
  const std::vector<float> about = Product(known, w, x, kMostRows);
  for (size_t i = 0; i < got.size(); ++i) {
    if (!(std::abs(got[i] - about[i]) < kTolerance)) return false;
  }
  for (int64_t row = 0; row < kMostRows; ++row) {
    const std::vector<float> alone(x.begin() + row * w.k, x.begin() + (row + 1) * w.k);
    const std::vector<float> want = Product(tested, w, alone, 1);
    if (std::memcmp(&got[static_cast<size_t>(row * w.n)], want.data(),
                    want.size() * sizeof(float)) != 0) {
      return false;
    }
  }
  return true;
}

bool HasBitsOf(const LinearKernels& tested, const LinearKernels& known, const PackedLinear& w,
               const std::vector<float>& x) {
  for (const int64_t rows : kCheckedRows) {
    const std::vector<float> got = Product(tested, w, x, rows);
    const std::vector<float> want = Product(known, w, x, rows);
    if (std::memcmp(got.data(), want.data(), got.size() * sizeof(float)) != 0) return false;
  }
  return true;
}

}  // namespace

bool MultipliesLike(const LinearKernels& tested, const LinearKernels& known) {
  if (tested.panel_width != known.panel_width) return false;
  const CpuKernels isa{known, {}, {}, {}, "known"};
  const std::vector<float> weights = Values(kCheckedN * kCheckedK);
  const std::vector<float> x = Values(kMostRows * kCheckedK);
  for (const WeightFormat format : kWeightFormats) {
    const AlignedBuffer packed(PackedLinearBytes(isa, format, kCheckedN, kCheckedK));
    const PackedLinear w = MakePackedLinear(isa, format, kCheckedN, kCheckedK, packed.data());
    PackLinear(w, 0, {.data = weights.data(), .ld = kCheckedK, .rows = kCheckedN});
    const auto same = SumsIntegers(format) ? HasBitsOf : KeepsRows;
    if (!same(tested, known, w, x)) return false;
  }
  return true;
}

}  // namespace mlc_native::kernels
