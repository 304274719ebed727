#include "kernels/self_check.h"

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

}  // namespace

bool MultipliesLike(const LinearKernels& tested, const LinearKernels& known) {
  if (tested.panel_width != known.panel_width) return false;
  const CpuKernels isa{known, {}, {}, {}, "known"};
  const std::vector<float> weights = Values(kCheckedN * kCheckedK);
  const std::vector<float> x = Values(kMostRows * kCheckedK);
  for (const WeightFormat format : kWeightFormats) {
    if (!SumsIntegers(format)) continue;
    const AlignedBuffer packed(PackedLinearBytes(isa, format, kCheckedN, kCheckedK));
    const PackedLinear w = MakePackedLinear(isa, format, kCheckedN, kCheckedK, packed.data());
    PackLinear(w, 0, {.data = weights.data(), .ld = kCheckedK, .rows = kCheckedN});
    for (const int64_t rows : kCheckedRows) {
      const std::vector<float> got = Product(tested, w, x, rows);
      const std::vector<float> want = Product(known, w, x, rows);
      if (std::memcmp(got.data(), want.data(), got.size() * sizeof(float)) != 0) return false;
    }
  }
  return true;
}

}  // namespace mlc_native::kernels
