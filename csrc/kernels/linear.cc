// Threading of packed linears, of one matrix, of many and of one for each head; the loops are in
// cpu/linear.inl.
#include <algorithm>

#include "kernels/cpu/table.h"
#include "kernels/experts.h"
#include "kernels/kernel_profile.h"
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

constexpr int kInputs = static_cast<int>(KernelKind::kInputs);

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int IdOf(const Cpu& cpu, const PackedLinear& w) {
  return cpu.profile == nullptr ? 0 : cpu.profile->IdOf(w);
}

// The fewest panels of a part whose panels are multiplied with m rows each.
int64_t PanelsPerPart(const PackedLinear& w, int64_t m) {
  const int64_t panel_bytes = LayoutOf(w.format).PanelBytes(w.k, w.panel_width);
  return std::min(CeilDiv(kMinWorkPerPart, m * w.k * w.panel_width),
                  CeilDiv(kMinBytesPerPart, panel_bytes));
}

void CheckWeight(const CpuKernels& isa, const PackedLinear& w) {
  MLC_CHECK(w.n > 0 && w.k > 0 && w.data != nullptr) << "n " << w.n << " k " << w.k;
  MLC_CHECK(w.panel_width == isa.panel_width) << "packed for another ISA";
}

void CheckGroups(const CpuKernels& isa, std::span<const LinearGroup> groups) {
  const PackedLinear& first = *groups.front().weight;
  int64_t begin = 0;
  for (const LinearGroup& group : groups) {
    CheckWeight(isa, *group.weight);
    MLC_CHECK(group.weight->n == first.n && group.weight->k == first.k)
        << "expert " << group.expert << ": n " << group.weight->n << " k " << group.weight->k;
    MLC_CHECK(group.begin == begin && group.end > begin) << group.begin << " to " << group.end;
    begin = group.end;
  }
}

// A group as a linear of its own, in its part of the workspace.
LinearArgs ArgsOf(const GroupedLinearArgs& a, const LinearGroup& group) {
  const size_t workspace = LinearInputBytes(group.begin, group.weight->k);
  return {.x = a.rows == nullptr ? a.x + group.begin * a.ldx : a.x,
          .ldx = a.ldx,
          .rows = a.rows == nullptr ? nullptr : a.rows + group.begin,
          .m = group.end - group.begin,
          .bias = group.bias,
          .y = a.y + group.begin * a.ldy,
          .ldy = a.ldy,
          .workspace = static_cast<std::byte*>(a.workspace) + workspace};
}

// A head as a linear of its own, in its part of the workspace.
LinearArgs ArgsOf(const HeadLinearArgs& a, const PackedLinear& w, int64_t head) {
  const size_t workspace = LinearInputBytes(head * a.m, w.k);
  return {.x = a.x + head * a.x_step,
          .ldx = a.ldx,
          .m = a.m,
          .y = a.y + head * a.y_step,
          .ldy = a.ldy,
          .workspace = static_cast<std::byte*>(a.workspace) + workspace};
}

// Counts the conversion of m rows from float32 to at least a byte, and a product with them.
void CountLinear(KernelProfile& profile, const CpuKernels& isa, const PackedLinear& w, int64_t m) {
  const auto inputs = static_cast<double>(m * w.k);
  profile.Count(KernelProfile::IdOf(KernelKind::kInputs), 5 * inputs, inputs);
  profile.Count(profile.IdOf(w), static_cast<double>(PackedLinearBytes(isa, w.format, w.n, w.k)),
                2 * inputs * static_cast<double>(w.n));
}

// Converts the rows [begin, end) of all groups.
void ConvertInputs(const CpuKernels& isa, const GroupedLinearArgs& a, int64_t begin, int64_t end) {
  auto group = std::ranges::upper_bound(a.groups, begin, {}, &LinearGroup::end);
  for (; begin < end; ++group) {
    const int64_t last = std::min(end, group->end);
    isa.linear_input(*group->weight, ArgsOf(a, *group), begin - group->begin, last - group->begin);
    begin = last;
  }
}

}  // namespace

size_t LinearInputBytes(int64_t m, int64_t k) {
  return static_cast<size_t>(m * CeilDiv(k, kMaxGroup) * kMaxGroup * kMaxInputBytes);
}

size_t LinearWorkspaceBytes(int64_t m, int64_t k) {
  return LinearInputBytes(m, k) + kLinearReadsBehind;
}

void Linear(const Cpu& cpu, const PackedLinear& w, const LinearArgs& args) {
  Linear(cpu, w, args, {});
}

void Linear(const Cpu& cpu, const PackedLinear& w, const LinearArgs& args,
            std::span<const RowStep> before) {
  CheckWeight(*cpu.isa, w);
  MLC_CHECK(args.m >= 0 && args.ldx >= w.k && args.ldy >= w.n);
  MLC_CHECK(args.rows == nullptr || before.empty()) << "steps produce the rows in order";
  if (args.m == 0) return;
  MLC_CHECK(args.workspace != nullptr);
  CheckSteps(before, args.m);
  if (cpu.profile != nullptr) {
    CountSteps(*cpu.profile, before);
    CountLinear(*cpu.profile, *cpu.isa, w, args.m);
  }
  const auto prepare = [&](int64_t begin, int64_t end, int thread) {
    RunSteps(cpu, before, begin, end, thread);
    const KernelSpan span(cpu.profile, kInputs, thread);
    cpu.isa->linear_input(w, args, begin, end);
  };
  ForRows(cpu, kInputs, args.m, ElementsPerRow(before) + w.k, prepare);
  const auto multiply = [&](int64_t begin, int64_t end, int) {
    cpu.isa->linear(w, args, begin, end);
  };
  RunLoop(cpu, IdOf(cpu, w), CeilDiv(w.n, w.panel_width), multiply, PanelsPerPart(w, args.m));
}

void GroupedLinear(const Cpu& cpu, const GroupedLinearArgs& args, std::span<const RowStep> before) {
  if (args.groups.empty()) return;
  CheckGroups(*cpu.isa, args.groups);
  const PackedLinear& w = *args.groups.front().weight;
  const auto num_groups = static_cast<int64_t>(args.groups.size());
  const int64_t m = args.groups.back().end;
  MLC_CHECK(args.ldx >= w.k && args.ldy >= w.n && args.workspace != nullptr);
  MLC_CHECK(args.rows == nullptr || before.empty()) << "steps produce the rows in order";
  CheckSteps(before, m);
  if (cpu.profile != nullptr) {
    CountSteps(*cpu.profile, before);
    for (const LinearGroup& group : args.groups) {
      CountLinear(*cpu.profile, *cpu.isa, *group.weight, group.end - group.begin);
    }
  }
  const auto prepare = [&](int64_t begin, int64_t end, int thread) {
    RunSteps(cpu, before, begin, end, thread);
    const KernelSpan span(cpu.profile, kInputs, thread);
    ConvertInputs(*cpu.isa, args, begin, end);
  };
  ForRows(cpu, kInputs, m, ElementsPerRow(before) + w.k, prepare);

  // Panel p of group g is item g * panels + p of the loop.
  const int64_t panels = CeilDiv(w.n, w.panel_width);
  const auto run = [&](int64_t begin, int64_t end, int) {
    for (int64_t item = begin; item < end;) {
      const LinearGroup& group = args.groups[static_cast<size_t>(item / panels)];
      const int64_t first = item % panels;
      const int64_t last = std::min(panels, first + end - item);
      cpu.isa->linear(*group.weight, ArgsOf(args, group), first, last);
      item += last - first;
    }
  };
  RunLoop(cpu, IdOf(cpu, w), num_groups * panels, run, PanelsPerPart(w, CeilDiv(m, num_groups)));
}

void HeadLinears(const Cpu& cpu, std::span<const PackedLinear> weights, const HeadLinearArgs& args,
                 std::span<const RowStep> before) {
  if (weights.empty() || args.m == 0) return;
  const PackedLinear& first = weights.front();
  const auto heads = static_cast<int64_t>(weights.size());
  for (const PackedLinear& w : weights) {
    CheckWeight(*cpu.isa, w);
    MLC_CHECK(w.format == first.format && w.n == first.n && w.k == first.k);
  }
  MLC_CHECK(args.m > 0 && args.x_step >= first.k && args.y_step >= first.n);
  MLC_CHECK(args.ldx >= (heads - 1) * args.x_step + first.k);
  MLC_CHECK(args.ldy >= (heads - 1) * args.y_step + first.n && args.workspace != nullptr);
  CheckSteps(before, args.m);
  if (cpu.profile != nullptr) {
    CountSteps(*cpu.profile, before);
    for (const PackedLinear& w : weights) CountLinear(*cpu.profile, *cpu.isa, w, args.m);
  }
  const auto prepare = [&](int64_t begin, int64_t end, int thread) {
    RunSteps(cpu, before, begin, end, thread);
    const KernelSpan span(cpu.profile, kInputs, thread);
    for (int64_t head = 0; head < heads; ++head) {
      cpu.isa->linear_input(first, ArgsOf(args, first, head), begin, end);
    }
  };
  ForRows(cpu, kInputs, args.m, ElementsPerRow(before) + heads * first.k, prepare);

  // Panel p of head h is item h * panels + p of the loop.
  const int64_t panels = CeilDiv(first.n, first.panel_width);
  const auto multiply = [&](int64_t begin, int64_t end, int) {
    for (int64_t item = begin; item < end;) {
      const int64_t head = item / panels;
      const int64_t panel = item % panels;
      const int64_t panel_end = std::min(panels, panel + end - item);
      const PackedLinear& w = weights[static_cast<size_t>(head)];
      cpu.isa->linear(w, ArgsOf(args, w, head), panel, panel_end);
      item += panel_end - panel;
    }
  };
  RunLoop(cpu, IdOf(cpu, first), heads * panels, multiply, PanelsPerPart(first, args.m));
}

}  // namespace mlc_native::kernels
