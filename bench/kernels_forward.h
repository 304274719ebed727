// Every kernel of a forward pass of Qwen3-0.6B, without the engine around it. Included by
// kernels.cc only.
#pragma once

#include <cstring>
#include <utility>
#include <vector>

#include "kernels_machine.h"

namespace mlc_native::kernels {
namespace {

// All kernels of one forward pass of Qwen3-0.6B's shape with bfloat16 KV pages, in order, on
// constant data: what a model on top of them can reach. Decode: m sequences of 512 tokens. Prefill:
// 512 rows of one sequence, logits of the last.
class Forward {
 public:
  Forward(int64_t rows, bool prefill, WeightFormat format)
      : format_(format),
        rows_(rows),
        logits_rows_(prefill ? 1 : rows),
        hidden_(rows * kHidden, 0.5f),
        normed_(hidden_),
        qkv_(rows * kQkv),
        attention_(rows * kHeads * kHeadDim),
        ffn_(rows * 2 * kFfn),
        logits_(logits_rows_ * kVocab),
        weight_(kHidden, 1.0f),
        angles_((kContext + 1) * kHeadDim / 2, 0.5f) {
    for (int layer = 0; layer < kLayers; ++layer) {
      for (auto [n, k] : {std::pair{kQkv, kHidden},
                          {kHidden, kHeads * kHeadDim},
                          {2 * kFfn, kHidden},
                          {kHidden, kFfn}}) {
        AddLinear(n, k);
      }
    }
    AddLinear(kVocab, kHidden);
    const int64_t pages = kContext / kPageSize * (prefill ? 1 : rows);
    for (int layer = 0; layer < kLayers; ++layer) {
      const size_t bytes = KvLayerBytes(DType::kBFloat16, pages, kKvHeads, kHeadDim);
      void* k_pages = Constant(bytes);
      kv_.push_back({.dtype = DType::kBFloat16,
                     .kv_heads = kKvHeads,
                     .head_dim = kHeadDim,
                     .num_pages = pages,
                     .k_pages = k_pages,
                     .v_pages = Constant(bytes)});
    }
    for (int64_t page = 0; page < pages; ++page) table_.push_back(static_cast<int32_t>(page));
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t position = prefill ? row : kContext - 1;
      positions_.push_back(static_cast<int32_t>(position));
      slots_.push_back(prefill ? row : row * kContext + position);
      if (prefill && row > 0) continue;
      sequences_.push_back({.row_begin = row,
                            .num_rows = prefill ? rows : 1,
                            .first_position = position,
                            .block_table = table_.data() + row * (kContext / kPageSize)});
    }
    linear_workspace_ = AlignedBuffer(LinearWorkspaceBytes(rows, kFfn));
    workspace_ = AlignedBuffer(
        AttentionWorkspaceBytes(TheMachine().pool->num_threads(), kHeads, kKvHeads, kHeadDim));
  }

  void Run() {
    for (int layer = 0; layer < kLayers; ++layer) RunLayer(layer);
    Norm(hidden_, normed_, logits_rows_, 1, kHidden, kHidden);
    Apply(linears_.back(), normed_, logits_, logits_rows_);
  }

  double WeightBytes() const { return weight_bytes_; }
  double Operations() const {
    double operations = 0;
    for (const PackedLinear& w : linears_) {
      operations += 2.0 * w.n * w.k * static_cast<double>(w.n == kVocab ? logits_rows_ : rows_);
    }
    return operations;
  }

 private:
  static constexpr int kLayers = 28;
  static constexpr int64_t kHidden = 1024, kHeads = 16, kKvHeads = 8, kHeadDim = 128, kFfn = 3072;
  static constexpr int64_t kVocab = 151936, kContext = 512;
  static constexpr int64_t kQkv = (kHeads + 2 * kKvHeads) * kHeadDim;

  void* Constant(size_t bytes) {
    buffers_.emplace_back(bytes);
    std::memset(buffers_.back().data(), 0x3b, bytes);  // 0.0028 in bfloat16
    return buffers_.back().data();
  }
  void AddLinear(int64_t n, int64_t k) {
    const CpuKernels& isa = *TheMachine().isa;
    const size_t bytes = PackedLinearBytes(isa, format_, n, k);
    linears_.push_back(MakePackedLinear(isa, format_, n, k, Constant(bytes)));
    weight_bytes_ += static_cast<double>(bytes);
  }
  void Apply(const PackedLinear& w, const std::vector<float>& x, std::vector<float>& y,
             int64_t rows, int64_t ldx = 0) {
    Linear(cpu_, w,
           {.x = x.data(),
            .ldx = ldx > 0 ? ldx : w.k,
            .m = rows,
            .y = y.data(),
            .ldy = w.n,
            .workspace = linear_workspace_.data()});
  }
  void Norm(std::vector<float>& x, std::vector<float>& y, int64_t rows, int64_t groups, int64_t dim,
            int64_t ld) {
    RmsNorm(cpu_, {.x = x.data(),
                   .ldx = ld,
                   .y = y.data(),
                   .ldy = ld,
                   .weight = weight_.data(),
                   .m = rows,
                   .groups = groups,
                   .dim = dim});
  }

  void RunLayer(int layer) {
    const PackedLinear* w = &linears_[4 * layer];
    Norm(hidden_, normed_, rows_, 1, kHidden, kHidden);
    Apply(w[0], normed_, qkv_, rows_);
    Norm(qkv_, qkv_, rows_, kHeads + kKvHeads, kHeadDim, kQkv);
    Rope(cpu_, {.x = qkv_.data(),
                .ld = kQkv,
                .m = rows_,
                .heads = kHeads + kKvHeads,
                .head_dim = kHeadDim,
                .rotary_dim = kHeadDim,
                .positions = positions_.data(),
                .cos = angles_.data(),
                .sin = angles_.data()});
    const float* k = qkv_.data() + kHeads * kHeadDim;
    WriteKv(cpu_, kv_[layer],
            {.k = k,
             .ldk = kQkv,
             .v = k + kKvHeads * kHeadDim,
             .ldv = kQkv,
             .m = rows_,
             .slots = slots_.data()});
    PagedAttention(cpu_, kv_[layer],
                   {.q = qkv_.data(),
                    .ldq = kQkv,
                    .out = attention_.data(),
                    .ldo = kHeads * kHeadDim,
                    .q_heads = kHeads,
                    .scale = 0.088f,
                    .sequences = sequences_.data(),
                    .num_sequences = static_cast<int64_t>(sequences_.size()),
                    .workspace = workspace_.data()});
    Apply(w[1], attention_, normed_, rows_);
    const MatrixView hidden{.data = hidden_.data(), .ld = kHidden, .m = rows_, .n = kHidden};
    Add(cpu_, hidden, normed_.data(), kHidden);
    Norm(hidden_, normed_, rows_, 1, kHidden, kHidden);
    Apply(w[2], normed_, ffn_, rows_);
    GatedActivation(cpu_, {.x = ffn_.data(),
                           .ldx = 2 * kFfn,
                           .out = ffn_.data(),
                           .ldo = 2 * kFfn,
                           .m = rows_,
                           .ffn = kFfn});
    Apply(w[3], ffn_, normed_, rows_, 2 * kFfn);
    Add(cpu_, hidden, normed_.data(), kHidden);
  }

  const Cpu cpu_ = TheMachine().cpu();
  const WeightFormat format_;
  const int64_t rows_, logits_rows_;
  double weight_bytes_ = 0;
  std::vector<AlignedBuffer> buffers_;
  std::vector<PackedLinear> linears_;
  std::vector<KvLayer> kv_;
  std::vector<float> hidden_, normed_, qkv_, attention_, ffn_, logits_, weight_, angles_;
  std::vector<int32_t> table_, positions_;
  std::vector<int64_t> slots_;
  std::vector<AttentionSequence> sequences_;
  AlignedBuffer workspace_, linear_workspace_;
};

}  // namespace
}  // namespace mlc_native::kernels
