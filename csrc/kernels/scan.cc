// Divides Mamba-1 of a batch among threads: the convolution by rows, the states by blocks of
// channels. The loops are in cpu/selective_scan.inl.
#include "kernels/cpu/table.h"
#include "kernels/delta_heads.h"
#include "kernels/row_loop.h"
#include "kernels/selective_scan.h"
#include "support/check.h"

namespace mlc_native::kernels {
namespace {

void CheckConvolution(const ScanArgs& a) {
  const ScanShape& shape = a.shape;
  MLC_CHECK(shape.channels > 0 && shape.state_dim > 0 && shape.conv_width > 1 &&
            shape.conv_width <= kMaxDeltaWidth)
      << shape.channels << " channels, a width of " << shape.conv_width;
  MLC_CHECK(a.ld_inputs >= 2 * shape.channels && a.ld_convolved >= shape.channels);
  for (int64_t i = 0; i < a.num_sequences; ++i) CheckSequence(a.sequences[i], i);
}

void CountScan(KernelProfile& profile, const ScanArgs& a) {
  constexpr double kOperations = 8;  // of an element of a state, the exponential included
  const auto rows = static_cast<double>(NumRows(a.sequences, a.num_sequences));
  const auto states = static_cast<double>(NumStates(a.sequences, a.num_sequences));
  const auto state = static_cast<double>(ScanStateFloats(a.shape));
  const auto channels = static_cast<double>(a.shape.channels);
  profile.Count(KernelProfile::IdOf(KernelKind::kMamba),
                sizeof(float) * (states * state + rows * 4 * channels),
                rows * kOperations * channels * static_cast<double>(a.shape.state_dim));
}

void RunBlock(const CpuKernels& isa, const ScanArgs& a, const DeltaSequence& s, int64_t block,
              float* scratch) {
  const int64_t floats = a.shape.state_dim * kDeltaColumns;
  const StateOfHead state{
      .head = block, .at = ScanBlocksAt(a.shape) + block * floats, .floats = floats};
  isa.scan_decays(a, block, scratch);
  ForChunks(
      state, s, scratch, [](DeltaChunk*, int64_t, int64_t) {},
      [&](const DeltaChunk& chunk) { isa.scan(a, chunk); });
  const int64_t first = block * kDeltaColumns;
  const int64_t count = std::min(kDeltaColumns, a.shape.channels - first);
  for (const DeltaWrite& write : std::span(s.writes, static_cast<size_t>(s.num_writes))) {
    WriteChannels(a.convolved_inputs(), s, write, first, count);
  }
}

}  // namespace

size_t ScanWorkspaceBytes(int num_threads, const ScanShape& shape) {
  return static_cast<size_t>(num_threads * ScanScratchFloats(shape)) * sizeof(float);
}

void ScanConvolution(const Cpu& cpu, const ScanArgs& args) {
  CheckConvolution(args);
  ForRowsOfSequences(cpu, KernelKind::kMamba, args, args.shape.channels * args.shape.conv_width,
                     [&](const DeltaSequence& s, int64_t begin, int64_t end) {
                       cpu.isa->scan_convolution(args, s, begin, end);
                     });
}

void SelectiveScan(const Cpu& cpu, const ScanArgs& args) {
  CheckConvolution(args);
  const ScanShape& shape = args.shape;
  MLC_CHECK(args.ld_steps >= shape.channels && args.ld_keys >= 2 * shape.state_dim &&
            args.ldo >= shape.channels && args.workspace != nullptr);
  if (args.num_sequences == 0) return;
  if (cpu.profile != nullptr) CountScan(*cpu.profile, args);
  const auto run = [&](const DeltaSequence& sequence, int64_t block, int thread) {
    float* const scratch = static_cast<float*>(args.workspace) + thread * ScanScratchFloats(shape);
    RunBlock(*cpu.isa, args, sequence, block, scratch);
  };
  ForHeads(cpu, KernelKind::kMamba, ScanBlocks(shape), args.sequences, args.num_sequences, run);
}

}  // namespace mlc_native::kernels
