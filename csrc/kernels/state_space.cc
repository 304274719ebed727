// Divides Mamba-2 of a batch among threads: keys and queries, which heads share, by rows, the
// states by heads, and the norms by rows again. The loops are in cpu/mamba.inl.
#include "kernels/cpu/table.h"
#include "kernels/delta_heads.h"
#include "kernels/mamba.h"
#include "kernels/row_loop.h"
#include "support/check.h"

namespace mlc_native::kernels {
namespace {

void Check(const MambaArgs& a) {
  const DeltaShape& shape = a.shape;
  MLC_CHECK(shape.key_heads > 0 && shape.value_heads % shape.key_heads == 0 && shape.key_dim > 0 &&
            shape.value_dim > 0 && shape.conv_width > 1 && shape.conv_width <= kMaxDeltaWidth)
      << shape.value_heads << " heads of " << shape.key_heads << " groups";
  MLC_CHECK(a.ld_inputs >= shape.channels() + shape.values() + shape.value_heads &&
            a.ldo >= shape.values() && a.keys != nullptr && a.workspace != nullptr);
  for (int64_t i = 0; i < a.num_sequences; ++i) CheckSequence(a.sequences[i], i);
}

// The first head of a group writes what the convolutions of its key and query read.
void WriteConvolutions(const MambaArgs& a, const DeltaSequence& s, int64_t head) {
  const DeltaShape& shape = a.shape;
  const DeltaConvolution convolution = a.convolved();
  const int64_t heads = shape.value_heads / shape.key_heads;
  for (const DeltaWrite& write : std::span(s.writes, static_cast<size_t>(s.num_writes))) {
    WriteChannels(convolution, s, write, head * shape.value_dim, shape.value_dim);
    if (head % heads != 0) continue;
    const int64_t key = shape.values() + head / heads * shape.key_dim;
    WriteChannels(convolution, s, write, key, shape.key_dim);
    WriteChannels(convolution, s, write, key + shape.keys(), shape.key_dim);
  }
}

void RunHead(const CpuKernels& isa, const MambaArgs& a, const DeltaSequence& s, int64_t head,
             float* scratch) {
  const float rate = -std::exp(a.decay[head]);
  const float* const steps = a.inputs + a.shape.values() + a.shape.channels() + head;
  const auto prepare = [&](DeltaChunk* chunk, int64_t i, int64_t row) {
    const float step = std::clamp(Softplus(steps[row * a.ld_inputs] + a.step_bias[head]),
                                  a.shortest_step, a.longest_step);
    chunk->beta[i] = step;
    chunk->decay[i] = std::exp(rate * step);
  };
  ForChunks(a.shape, s, head, scratch, prepare,
            [&](const DeltaChunk& chunk) { isa.mamba(a, chunk); });
  WriteConvolutions(a, s, head);
}

}  // namespace

void Mamba(const Cpu& cpu, const MambaArgs& args) {
  Check(args);
  if (args.num_sequences == 0) return;
  CountStates(cpu, KernelKind::kMamba, args, 5);
  const DeltaShape& shape = args.shape;
  ForRowsOfSequences(cpu, KernelKind::kMamba, args, 2 * shape.keys() * shape.conv_width,
                     [&](const DeltaSequence& s, int64_t begin, int64_t end) {
                       cpu.isa->mamba_keys(args, s, begin, end);
                     });
  const auto run = [&](const DeltaSequence& sequence, int64_t head, int thread) {
    float* const scratch = static_cast<float*>(args.workspace) + thread * DeltaScratchFloats(shape);
    RunHead(*cpu.isa, args, sequence, head, scratch);
  };
  ForHeads(cpu, KernelKind::kMamba, shape.value_heads, args.sequences, args.num_sequences, run);
  if (args.norm == nullptr) return;
  ForRowsOfSequences(cpu, KernelKind::kMamba, args, 2 * shape.values(),
                     [&](const DeltaSequence& s, int64_t begin, int64_t end) {
                       cpu.isa->mamba_norm(args, s.row_begin + begin, s.row_begin + end);
                     });
}

}  // namespace mlc_native::kernels
