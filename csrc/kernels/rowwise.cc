// Argument checks and threading of the row-wise kernels; the loops are in cpu/rowwise.inl.
#include <cstring>

#include "kernels/cpu/table.h"
#include "kernels/kernels.h"
#include "kernels/row_loop.h"
#include "support/check.h"

namespace mlc_native::kernels {
namespace {

// ---- Checks, cost and loop of each step ----

void Check(const NormalizeArgs& a) {
  const int64_t width = a.groups * a.dim;
  MLC_CHECK(a.dim > 0 && a.groups > 0 && a.ldx >= width && a.ldy >= width &&
            (a.residual == nullptr || a.ld_residual >= width) &&
            (a.subtract_mean || a.bias == nullptr))
      << "dim " << a.dim << " groups " << a.groups;
}
int64_t Elements(const NormalizeArgs& a) { return a.groups * a.dim; }
void Run(const CpuKernels& isa, const NormalizeArgs& a, int64_t begin, int64_t end) {
  isa.normalize(a, begin, end);
}

void Check(const RopeArgs& a) {
  MLC_CHECK(a.rotary_dim % 2 == 0 && a.rotary_dim <= a.head_dim && a.ld >= a.heads * a.head_dim &&
            (a.interleaved || !a.backward))
      << "rotary_dim " << a.rotary_dim << " head_dim " << a.head_dim;
}
int64_t Elements(const RopeArgs& a) { return a.heads * a.rotary_dim; }
void Run(const CpuKernels& isa, const RopeArgs& a, int64_t begin, int64_t end) {
  isa.rope(a, begin, end);
}

void Check(const ScaleArgs& a) {
  MLC_CHECK(a.ld >= a.n && (a.positions == nullptr || !a.by_column)) << "n " << a.n;
}
int64_t Elements(const ScaleArgs& a) { return a.n; }
void Run(const CpuKernels& isa, const ScaleArgs& a, int64_t begin, int64_t end) {
  isa.scale(a, begin, end);
}

void Check(const AddArgs& a) { MLC_CHECK(a.ldx >= a.n && a.ld_sum >= a.n) << "n " << a.n; }
int64_t Elements(const AddArgs& a) { return a.n; }
void Run(const CpuKernels& isa, const AddArgs& a, int64_t begin, int64_t end) {
  isa.add(a, begin, end);
}

void Check(const MoveHeadsArgs& a) {
  MLC_CHECK(a.n > 0 && a.heads > 0 && a.to_step >= a.n &&
            (a.from == nullptr || a.from_step == 0 || a.from_step >= a.n) &&
            (a.from != a.to || a.to_step <= a.from_step))
      << "n " << a.n << " of " << a.from_step << " to " << a.to_step;
}
int64_t Elements(const MoveHeadsArgs& a) { return a.heads * a.n; }
void Run(const CpuKernels&, const MoveHeadsArgs& a, int64_t begin, int64_t end) {
  const size_t bytes = static_cast<size_t>(a.n) * sizeof(float);
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t head = 0; head < a.heads; ++head) {
      float* const to = a.to + row * a.ld_to + head * a.to_step;
      if (a.from == nullptr) {
        std::memset(to, 0, bytes);
      } else {
        std::memmove(to, a.from + row * a.ld_from + head * a.from_step, bytes);
      }
    }
  }
}

void Check(const ActivateArgs& a) {
  MLC_CHECK(a.ldx >= (a.gated ? 2 : 1) * a.ffn && a.ldo >= a.ffn) << "ffn " << a.ffn;
}
int64_t Elements(const ActivateArgs& a) {
  return 8 * a.ffn;  // an exponential and a division cost about eight plain operations
}
void Run(const CpuKernels& isa, const ActivateArgs& a, int64_t begin, int64_t end) {
  isa.activate(a, begin, end);
}

void Check(const GateArgs& a) {
  MLC_CHECK(a.per_gate > 0 && a.n % a.per_gate == 0 && a.ldx >= a.n &&
            a.ld_gate >= a.n / a.per_gate)
      << "n " << a.n;
}
int64_t Elements(const GateArgs& a) { return 8 * a.n; }  // as of an activation
void Run(const CpuKernels& isa, const GateArgs& a, int64_t begin, int64_t end) {
  isa.gate(a, begin, end);
}

void Check(const WriteKvStep& step) {
  const KvPages& kv = *step.kv;
  const WriteKvArgs& a = step.rows;
  const int64_t width = kv.kv_heads * kv.head_dim;
  MLC_CHECK(a.ldk >= width && a.ldv >= width && kv.format != KvFormat::kFloat8);
  for (int64_t i = 0; i < a.m; ++i) {
    MLC_CHECK(a.slots[i] >= 0 && a.slots[i] < kv.num_pages * kPageSize)
        << "slot " << a.slots[i] << " of " << kv.num_pages << " pages";
  }
}
int64_t Elements(const WriteKvStep& step) { return 4 * step.kv->kv_heads * step.kv->head_dim; }
void Run(const CpuKernels& isa, const WriteKvStep& step, int64_t begin, int64_t end) {
  isa.write_kv(*step.kv, step.rows, begin, end);
}

void Check(const MixArgs& a) {
  MLC_CHECK(a.num_chosen > 0 && a.ldx >= a.n && a.ldo >= a.n && a.x != a.out)
      << "num_chosen " << a.num_chosen << " n " << a.n;
  MLC_CHECK(a.shared == nullptr || (a.ld_shared >= a.n && a.shared != a.out));
}
int64_t Elements(const MixArgs& a) { return (a.num_chosen + 1) * a.n; }
void Run(const CpuKernels& isa, const MixArgs& a, int64_t begin, int64_t end) {
  isa.mix(a, begin, end);
}

void Check(const SpreadArgs& a) {
  MLC_CHECK(a.num_chosen > 0 && a.ldx >= a.n && a.ldo >= a.n && a.x != a.out)
      << "num_chosen " << a.num_chosen << " n " << a.n;
}
int64_t Elements(const SpreadArgs& a) { return a.num_chosen * a.n; }
void Run(const CpuKernels& isa, const SpreadArgs& a, int64_t begin, int64_t end) {
  isa.spread(a, begin, end);
}

void Check(const CutArgs& a) { MLC_CHECK(a.n > 0 && a.ld >= a.n) << "n " << a.n; }
int64_t Elements(const CutArgs& a) { return 3 * a.n; }
void Run(const CpuKernels& isa, const CutArgs& a, int64_t begin, int64_t end) {
  isa.cut(a, begin, end);
}

void Check(const StreamStep& a) {
  const StreamsView& s = a.streams;
  MLC_CHECK(s.count >= 2 && s.count <= kMaxStreams && s.active >= 0 && s.active < s.count)
      << s.active << " of " << s.count;
  MLC_CHECK(a.dim > 0 && s.step >= a.dim && s.ld >= a.dim) << "dim " << a.dim;
  if (!IsOfHyperConnections(a.op)) return;
  MLC_CHECK(s.step == a.dim && s.ld >= s.count * a.dim + KeptFloats(s.count) && a.rounds >= 1)
      << "dim " << a.dim << " ld " << s.ld;
}
int64_t Elements(const StreamStep& a) {
  const int64_t all = a.streams.count * a.dim;
  if (a.op == StreamOp::kCollapse) return (NumMixes(a.streams.count) + 2) * all;
  if (a.op == StreamOp::kExpand || a.op == StreamOp::kLeave) return (a.streams.count + 2) * all;
  const bool mixes_all = a.op == StreamOp::kPredict;
  return (mixes_all ? a.streams.count + 2 : 4) * a.streams.count * a.dim;
}
void Run(const CpuKernels& isa, const StreamStep& a, int64_t begin, int64_t end) {
  isa.streams(a, begin, end);
}

template <typename Args>
int64_t NumRows(const Args& args) {
  return args.m;
}
int64_t NumRows(const WriteKvStep& step) { return step.rows.m; }

// What a row of each step reads and writes, in floats: K and V as if pages were float32.
double Floats(const NormalizeArgs& a) {
  const int passes = 2 + (a.residual != nullptr ? 2 : 0) + (a.accumulate ? 1 : 0);
  return static_cast<double>(passes * a.groups * a.dim);
}
double Floats(const RopeArgs& a) { return 2 * static_cast<double>(Elements(a)); }
double Floats(const ScaleArgs& a) { return (a.by_column ? 3 : 2) * static_cast<double>(a.n); }
double Floats(const AddArgs& a) { return 3 * static_cast<double>(a.n); }
double Floats(const MoveHeadsArgs& a) {
  return (a.from == nullptr ? 1 : 2) * static_cast<double>(Elements(a));
}
double Floats(const ActivateArgs& a) { return (a.gated ? 3 : 2) * static_cast<double>(a.ffn); }
double Floats(const GateArgs& a) { return 3 * static_cast<double>(a.n); }
double Floats(const WriteKvStep& step) { return static_cast<double>(Elements(step)); }
double Floats(const MixArgs& a) { return static_cast<double>(Elements(a) + a.n); }
double Floats(const SpreadArgs& a) { return static_cast<double>(Elements(a) + a.n); }
double Floats(const CutArgs& a) { return 2 * static_cast<double>(a.n); }
double Floats(const StreamStep& a) {
  return 2 * static_cast<double>((a.streams.count + 1) * a.dim);
}

KernelKind KindOf(const NormalizeArgs&) { return KernelKind::kNormalize; }
KernelKind KindOf(const RopeArgs&) { return KernelKind::kRope; }
KernelKind KindOf(const ScaleArgs&) { return KernelKind::kScale; }
KernelKind KindOf(const AddArgs&) { return KernelKind::kAdd; }
KernelKind KindOf(const MoveHeadsArgs&) { return KernelKind::kMoveHeads; }
KernelKind KindOf(const ActivateArgs&) { return KernelKind::kActivate; }
KernelKind KindOf(const GateArgs&) { return KernelKind::kGate; }
KernelKind KindOf(const WriteKvStep&) { return KernelKind::kWriteKv; }
KernelKind KindOf(const MixArgs&) { return KernelKind::kMix; }
KernelKind KindOf(const SpreadArgs&) { return KernelKind::kSpread; }
KernelKind KindOf(const CutArgs&) { return KernelKind::kCut; }
KernelKind KindOf(const StreamStep&) { return KernelKind::kStreams; }

int IdOf(const RowStep& step) {
  return std::visit([](const auto& args) { return KernelProfile::IdOf(KindOf(args)); }, step);
}

void RunOne(const Cpu& cpu, const RowStep& step) { RunRows(cpu, {&step, 1}); }

}  // namespace

void CheckSteps(std::span<const RowStep> steps, int64_t m) {
  for (const RowStep& step : steps) {
    std::visit(
        [m](const auto& args) {
          MLC_CHECK(NumRows(args) == m) << NumRows(args) << " rows of " << m;
          Check(args);
        },
        step);
  }
}

int64_t ElementsPerRow(std::span<const RowStep> steps) {
  int64_t elements = 0;
  for (const RowStep& step : steps) {
    elements += std::visit([](const auto& args) { return Elements(args); }, step);
  }
  return elements;
}

void RunSteps(const Cpu& cpu, std::span<const RowStep> steps, int64_t begin, int64_t end,
              int thread) {
  for (const RowStep& step : steps) {
    const auto run = [&](const auto& args) {
      const KernelSpan span(cpu.profile, KernelProfile::IdOf(KindOf(args)), thread);
      Run(*cpu.isa, args, begin, end);
    };
    std::visit(run, step);
  }
}

void CountSteps(KernelProfile& profile, std::span<const RowStep> steps) {
  for (const RowStep& step : steps) {
    const auto count = [&](const auto& args) {
      const auto rows = static_cast<double>(NumRows(args));
      profile.Count(KernelProfile::IdOf(KindOf(args)), rows * sizeof(float) * Floats(args),
                    rows * static_cast<double>(Elements(args)));
    };
    std::visit(count, step);
  }
}

void RunRows(const Cpu& cpu, std::span<const RowStep> steps) {
  if (steps.empty()) return;
  const int64_t m = std::visit([](const auto& args) { return NumRows(args); }, steps.front());
  CheckSteps(steps, m);
  if (cpu.profile != nullptr) CountSteps(*cpu.profile, steps);
  ForRows(
      cpu, IdOf(steps.back()), m, ElementsPerRow(steps),
      [&](int64_t begin, int64_t end, int thread) { RunSteps(cpu, steps, begin, end, thread); });
}

void Normalize(const Cpu& cpu, const NormalizeArgs& args) { RunOne(cpu, args); }
void Rope(const Cpu& cpu, const RopeArgs& args) { RunOne(cpu, args); }
void Scale(const Cpu& cpu, const ScaleArgs& args) { RunOne(cpu, args); }
void Add(const Cpu& cpu, const AddArgs& args) { RunOne(cpu, args); }
void MoveHeads(const Cpu& cpu, const MoveHeadsArgs& args) { RunOne(cpu, args); }
void Activate(const Cpu& cpu, const ActivateArgs& args) { RunOne(cpu, args); }
void Gate(const Cpu& cpu, const GateArgs& args) { RunOne(cpu, args); }
void WriteKv(const Cpu& cpu, const KvPages& kv, const WriteKvArgs& args) {
  RunOne(cpu, WriteKvStep{&kv, args});
}

void Mix(const Cpu& cpu, const MixArgs& args) { RunOne(cpu, args); }
void Spread(const Cpu& cpu, const SpreadArgs& args) { RunOne(cpu, args); }
void Cut(const Cpu& cpu, const CutArgs& args) { RunOne(cpu, args); }

void SoftCap(const Cpu& cpu, const MatrixView& x, float cap) {
  MLC_CHECK(cap > 0) << "cap " << cap;
  if (cpu.profile != nullptr) {
    const auto elements = static_cast<double>(x.m * x.n);
    cpu.profile->Count(KernelProfile::IdOf(KernelKind::kSoftCap), 2 * sizeof(float) * elements,
                       8 * elements);
  }
  ForRows(cpu, KernelKind::kSoftCap, x.m, 8 * x.n,
          [&](int64_t begin, int64_t end) { cpu.isa->soft_cap(x, cap, begin, end); });
}

size_t KvLayerBytes(KvFormat format, int64_t num_pages, int64_t kv_heads, int64_t head_dim) {
  MLC_CHECK(format != KvFormat::kFloat8);
  return static_cast<size_t>(kv_heads * num_pages * KvPageBytes(format, head_dim));
}

void CopyPage(const KvPages& kv, int64_t from_page, int64_t to_page) {
  MLC_CHECK(from_page >= 0 && from_page < kv.num_pages && to_page >= 0 && to_page < kv.num_pages)
      << from_page << " -> " << to_page << " of " << kv.num_pages;
  if (from_page == to_page) return;
  const int64_t bytes = KvPageBytes(kv.format, kv.head_dim);
  for (void* pages : {kv.k_pages, kv.v_pages}) {
    if (pages == nullptr) continue;
    for (int64_t head = 0; head < kv.kv_heads; ++head) {
      const auto at = [&](int64_t page) {
        return static_cast<char*>(pages) +
               KvPageAt(kv.block_bytes, kv.num_pages, bytes, head, page);
      };
      std::memcpy(at(to_page), at(from_page), static_cast<size_t>(bytes));
    }
  }
}

}  // namespace mlc_native::kernels
