// Threading of packed linears; the loops are in cpu/linear.inl.
#include <algorithm>

#include "kernels/cpu/table.h"
#include "kernels/kernels.h"
#include "kernels/packed_format.h"
#include "kernels/row_loop.h"
#include "support/check.h"

namespace mlc_native::kernels {
namespace {

// A part of a linear takes at least about 5 us: this many multiply-adds, or bytes of weights.
constexpr int64_t kMinWorkPerPart = int64_t{1024} * 1024;
constexpr int64_t kMinBytesPerPart = int64_t{64} * 1024;

// The widest element of the inputs is float32 and the longest group has 64.
constexpr int64_t kMaxInputBytes = 4;
constexpr int64_t kMaxGroup = 64;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

size_t LinearWorkspaceBytes(int64_t m, int64_t k) {
  return static_cast<size_t>(m * CeilDiv(k, kMaxGroup) * kMaxGroup * kMaxInputBytes);
}

void Linear(const Cpu& cpu, const PackedLinear& w, const LinearArgs& args) {
  Linear(cpu, w, args, {});
}

void Linear(const Cpu& cpu, const PackedLinear& w, const LinearArgs& args,
            std::span<const RowStep> before) {
  MLC_CHECK(w.n > 0 && w.k > 0 && w.data != nullptr) << "n " << w.n << " k " << w.k;
  MLC_CHECK(w.panel_width == cpu.isa->panel_width) << "packed for another ISA";
  MLC_CHECK(args.m >= 0 && args.ldx >= w.k && args.ldy >= w.n && args.workspace != nullptr);
  if (args.m == 0) return;
  CheckSteps(before, args.m);
  ForRows(cpu, args.m, ElementsPerRow(before) + w.k, [&](int64_t begin, int64_t end) {
    RunSteps(*cpu.isa, before, begin, end);
    cpu.isa->linear_input(w, args, begin, end);
  });

  const int64_t panels = CeilDiv(w.n, w.panel_width);
  const int64_t panel_bytes = LayoutOf(w.format).PanelBytes(w.k, w.panel_width);
  const int64_t grain = std::min(CeilDiv(kMinWorkPerPart, args.m * w.k * w.panel_width),
                                 CeilDiv(kMinBytesPerPart, panel_bytes));
  cpu.pool->ParallelFor(
      panels, [&](int64_t begin, int64_t end, int) { cpu.isa->linear(w, args, begin, end); },
      grain);
}

}  // namespace mlc_native::kernels
