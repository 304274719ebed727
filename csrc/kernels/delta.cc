// Divides the gated delta rule of a batch among threads by value heads, and computes what is one
// number of a row and head; the loops are in cpu/delta_rule.inl.
#include "kernels/cpu/table.h"
#include "kernels/delta_heads.h"
#include "kernels/delta_rule.h"
#include "support/check.h"

namespace mlc_native::kernels {
namespace {

void Check(const DeltaArgs& a) {
  const DeltaShape& shape = a.shape;
  MLC_CHECK(shape.key_heads > 0 && shape.value_heads % shape.key_heads == 0 && shape.key_dim > 0 &&
            shape.value_dim > 0 && shape.conv_width > 1 && shape.conv_width <= kMaxDeltaWidth)
      << shape.value_heads << " value heads of " << shape.key_heads;
  MLC_CHECK(a.ld_inputs >= shape.channels() && a.ld_out_gates >= shape.values() &&
            a.ld_gates >= shape.gates() && a.ldo >= shape.values() && a.workspace != nullptr);
  MLC_CHECK(!shape.decays_channels ||
            (a.channel_decays != nullptr && a.ld_channel_decays >= shape.decays()));
  for (int64_t i = 0; i < a.num_sequences; ++i) CheckSequence(a.sequences[i], i);
}

// The first of the value heads that share a key head writes what its convolutions read.
void WriteConvolutions(const DeltaArgs& a, const DeltaSequence& s, int64_t head) {
  const DeltaShape& shape = a.shape;
  const DeltaConvolution convolution = a.convolved();
  const int64_t group = shape.value_heads / shape.key_heads;
  for (const DeltaWrite& write : std::span(s.writes, static_cast<size_t>(s.num_writes))) {
    if (head % group == 0) {
      const int64_t key = head / group * shape.key_dim;
      WriteChannels(convolution, s, write, key, shape.key_dim);
      WriteChannels(convolution, s, write, shape.keys() + key, shape.key_dim);
    }
    WriteChannels(convolution, s, write, 2 * shape.keys() + head * shape.value_dim,
                  shape.value_dim);
  }
}

void RunHead(const CpuKernels& isa, const DeltaArgs& a, const DeltaSequence& s, int64_t head,
             float* scratch) {
  const float rate = -std::exp(a.decay[head]);
  const auto prepare = [&](DeltaChunk* chunk, int64_t i, int64_t row) {
    const float* const gates = a.gates + row * a.ld_gates + head;
    chunk->beta[i] = a.beta_scale / (1.0f + std::exp(-gates[0]));
    if (a.shape.decays_channels) return;
    chunk->decay[i] = std::exp(rate * Softplus(gates[a.shape.value_heads] + a.decay_bias[head]));
  };
  ForChunks(a.shape, s, head, scratch, prepare,
            [&](const DeltaChunk& chunk) { isa.delta_rule(a, chunk); });
  WriteConvolutions(a, s, head);
}

}  // namespace

void CheckSequence(const DeltaSequence& s, int64_t i) {
  MLC_CHECK(s.num_rows > 0 && s.num_writes > 0 && s.writes[s.num_writes - 1].num_rows == s.num_rows)
      << "sequence " << i << " leaves no state behind its " << s.num_rows << " rows";
  int64_t last = 0;
  for (const DeltaWrite& write : std::span(s.writes, static_cast<size_t>(s.num_writes))) {
    MLC_CHECK(write.num_rows > last && write.state != nullptr && write.state != s.state);
    last = write.num_rows;
  }
}

size_t DeltaWorkspaceBytes(int num_threads, const DeltaShape& shape) {
  return static_cast<size_t>(num_threads * DeltaScratchFloats(shape)) * sizeof(float);
}

void DeltaRule(const Cpu& cpu, const DeltaArgs& args) {
  Check(args);
  if (args.num_sequences == 0) return;
  CountStates(cpu, KernelKind::kDelta, args, 7);
  const auto run = [&](const DeltaSequence& sequence, int64_t head, int thread) {
    float* const scratch =
        static_cast<float*>(args.workspace) + thread * DeltaScratchFloats(args.shape);
    RunHead(*cpu.isa, args, sequence, head, scratch);
  };
  ForHeads(cpu, KernelKind::kDelta, args.shape.value_heads, args.sequences, args.num_sequences,
           run);
}

}  // namespace mlc_native::kernels
