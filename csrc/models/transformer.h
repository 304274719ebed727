// The decoder: one forward for all families, driven by ModelConfig (and, through it, by the rows of
// arch_spec.cc). Activations are float32; KV pages have a format of their own.
//
// Every output row depends on its own sequence only, bit by bit (the contract of kernels.h).
// Forward allocates nothing. Used by the engine's thread only; its pool works inside Forward.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "arch/model_config.h"
#include "arch/rope.h"
#include "models/kv_storage.h"
#include "models/model.h"
#include "support/thread_pool.h"
#include "weights/weights.h"

namespace mlc_native {

class Transformer : public Model {
 public:
  // cpu.isa: what the weights were packed for.
  Transformer(ModelConfig config, DecoderWeights weights, kernels::KvFormat kv_format,
              const kernels::CpuKernels& isa, std::unique_ptr<ThreadPool> pool);

  const ModelMetadata& metadata() const override { return metadata_; }
  void Allocate(int64_t num_pages, int64_t max_num_rows, int64_t max_num_logits) override;
  LogitsView Forward(const ForwardBatch& batch) override;
  void CopyPages(std::span<const PageCopy> copies) override;

 private:
  // Row-major activations [rows, width] within the workspace.
  struct Activations {
    float* data = nullptr;
    int64_t width = 0;
  };

  void DescribeMetadata();
  void PlacePositions(const ForwardBatch& batch);
  void Embed(const ForwardBatch& batch);
  void Attention(size_t layer, int64_t num_sequences);
  void RotateAndWriteKv(size_t layer);
  void FeedForward(size_t layer);
  void KeepRows(std::span<const int32_t> rows);
  LogitsView Head();

  // Row-wise steps that run in one loop over the rows.
  struct Steps {
    std::array<kernels::RowStep, 4> steps;
    size_t size = 0;

    void Add(const kernels::RowStep& step) { steps.at(size++) = step; }
    std::span<const kernels::RowStep> span() const { return {steps.data(), size}; }
  };

  void Project(const LayerWeights& layer, Matrix matrix, const Activations& x, const Activations& y,
               const Steps& before) const;
  // From the output of a block, in hidden_, to the input of the next: it joins the residual, which
  // is normed into hidden_. Null: the family has no such norm; then the input is the residual.
  void Join(const float* post_norm, const float* pre_norm, Steps* steps) const;
  const Activations& InputAfter(const float* pre_norm) const {
    return pre_norm != nullptr ? hidden_ : residual_;
  }
  kernels::RmsNormArgs Norm(const Activations& x, const float* weight, const Activations& y) const;
  kernels::RmsNormArgs HeadNorm(const float* weight, float* x, int64_t heads) const;

  const ModelConfig config_;
  const DecoderWeights weights_;
  const kernels::KvFormat kv_format_;
  const std::unique_ptr<ThreadPool> pool_;
  const kernels::Cpu cpu_;
  float embedding_scale_ = 1.0f;
  ModelMetadata metadata_;

  // Set by Allocate.
  KvStorage kv_;
  std::vector<RopeTable> ropes_;
  TensorStorage workspace_;
  int64_t num_positions_ = 0;  // of the rope tables
  int64_t max_num_rows_ = 0;
  int64_t max_num_logits_ = 0;
  Activations residual_;       // [rows, hidden]
  Activations hidden_;         // [rows, hidden]: input of a projection, output of the next one
  Activations qkv_;            // [rows, q + 2 kv]
  Activations attention_;      // [rows, q]
  Activations ffn_;            // [rows, 2 ffn], where qkv_ and attention_ were
  Activations linear_inputs_;  // workspace of the projections
  Activations logits_;         // [logits rows, vocab]
  void* attention_workspace_ = nullptr;
  std::vector<int32_t> positions_;  // [rows]
  std::vector<int64_t> slots_;      // [rows] page * kKvPageSize + offset
  std::vector<kernels::AttentionSequence> sequences_;

  int64_t num_rows_ = 0;  // of the forward in progress
};

}  // namespace mlc_native
