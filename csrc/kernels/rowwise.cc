// Argument checks and threading of the row-wise kernels; the loops are in cpu/rowwise.inl.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/table.h"
#include "kernels/kernels.h"
#include "support/check.h"

namespace mlc_native::kernels {
namespace {

// A thread is worth waking for this many elements (some 4 us of simple arithmetic).
constexpr int64_t kMinElementsPerThread = 16 * 1024;

template <typename F>
void ForRows(const Cpu& cpu, int64_t rows, int64_t elements_per_row, F fn) {
  const int64_t per_row = std::max<int64_t>(1, elements_per_row);
  const int64_t grain = (kMinElementsPerThread + per_row - 1) / per_row;
  cpu.pool->ParallelFor(rows, [&](int64_t begin, int64_t end, int) { fn(begin, end); }, grain);
}

void RunRmsNorm(const Cpu& cpu, float* residual, int64_t ld_residual, const RmsNormArgs& args) {
  const int64_t width = args.groups * args.dim;
  MLC_CHECK(args.dim > 0 && args.groups > 0 && args.ldx >= width && args.ldy >= width)
      << "dim " << args.dim << " groups " << args.groups;
  ForRows(cpu, args.m, width, [&](int64_t begin, int64_t end) {
    cpu.isa->rms_norm(args, residual, ld_residual, begin, end);
  });
}

}  // namespace

void RmsNorm(const Cpu& cpu, const RmsNormArgs& args) { RunRmsNorm(cpu, nullptr, 0, args); }

void AddRmsNorm(const Cpu& cpu, float* residual, int64_t ld_residual, const RmsNormArgs& args) {
  MLC_CHECK(residual != nullptr && ld_residual >= args.groups * args.dim);
  RunRmsNorm(cpu, residual, ld_residual, args);
}

void Rope(const Cpu& cpu, const RopeArgs& args) {
  MLC_CHECK(args.rotary_dim % 2 == 0 && args.rotary_dim <= args.head_dim &&
            args.ld >= args.heads * args.head_dim)
      << "rotary_dim " << args.rotary_dim << " head_dim " << args.head_dim;
  ForRows(cpu, args.m, args.heads * args.rotary_dim,
          [&](int64_t begin, int64_t end) { cpu.isa->rope(args, begin, end); });
}

void GatedActivation(const Cpu& cpu, const GatedActivationArgs& args) {
  MLC_CHECK(args.ldx >= 2 * args.ffn && args.ldo >= args.ffn);
  // An exponential and a division cost about eight plain operations.
  ForRows(cpu, args.m, 8 * args.ffn,
          [&](int64_t begin, int64_t end) { cpu.isa->gated_activation(args, begin, end); });
}

void Add(const Cpu& cpu, const MatrixView& x, const float* r, int64_t ldr) {
  ForRows(cpu, x.m, x.n, [&](int64_t begin, int64_t end) { cpu.isa->add(x, r, ldr, begin, end); });
}

void Scale(const Cpu& cpu, const MatrixView& x, float factor) {
  ForRows(cpu, x.m, x.n,
          [&](int64_t begin, int64_t end) { cpu.isa->scale(x, factor, begin, end); });
}

void SoftCap(const Cpu& cpu, const MatrixView& x, float cap) {
  MLC_CHECK(cap > 0) << "cap " << cap;
  ForRows(cpu, x.m, 8 * x.n,
          [&](int64_t begin, int64_t end) { cpu.isa->soft_cap(x, cap, begin, end); });
}

size_t KvLayerBytes(KvFormat format, int64_t num_pages, int64_t kv_heads, int64_t head_dim) {
  return static_cast<size_t>(kv_heads * num_pages * KvPageBytes(format, head_dim));
}

void WriteKv(const Cpu& cpu, const KvLayer& kv, const WriteKvArgs& args) {
  const int64_t width = kv.kv_heads * kv.head_dim;
  MLC_CHECK(args.ldk >= width && args.ldv >= width);
  for (int64_t i = 0; i < args.m; ++i) {
    MLC_CHECK(args.slots[i] >= 0 && args.slots[i] < kv.num_pages * kPageSize)
        << "slot " << args.slots[i] << " of " << kv.num_pages << " pages";
  }
  ForRows(cpu, args.m, 4 * width,
          [&](int64_t begin, int64_t end) { cpu.isa->write_kv(kv, args, begin, end); });
}

void CopyPage(const KvLayer& kv, int64_t from_page, int64_t to_page) {
  MLC_CHECK(from_page >= 0 && from_page < kv.num_pages && to_page >= 0 && to_page < kv.num_pages)
      << from_page << " -> " << to_page << " of " << kv.num_pages;
  if (from_page == to_page) return;
  const int64_t bytes = KvPageBytes(kv.format, kv.head_dim);
  for (void* pages : {kv.k_pages, kv.v_pages}) {
    for (int64_t head = 0; head < kv.kv_heads; ++head) {
      char* base = static_cast<char*>(pages) + head * kv.num_pages * bytes;
      std::memcpy(base + to_page * bytes, base + from_page * bytes, static_cast<size_t>(bytes));
    }
  }
}

}  // namespace mlc_native::kernels
