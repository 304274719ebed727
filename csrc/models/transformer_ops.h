// The operations of run_layers.h on the CPU's kernels, for one forward of a Transformer.
//
// Row-wise operations in front of a linear are only remembered; the linear's threads run them on
// the rows they are about to read, while these are in their caches. Implemented in
// transformer_forward.cc (a layer), transformer_linears.cc (its products), transformer_experts.cc
// (its experts), transformer_latent.cc (latent attention), transformer_key_choice.cc (a choice of
// keys), transformer_delta.cc (linear attention), transformer_layer_inputs.cc (inputs of layers),
// transformer_streams.cc (residual streams and LAuReL), transformer_entries.cc (compressed
// attention), transformer_states.cc (hidden states) and
// transformer_draft.cc (the entry of a draft head). Lives as long as the forward.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "kernels/selective_scan.h"
#include "models/decoder_ops.h"
#include "models/transformer.h"

namespace mlc_native {

// Row-wise operations that run in one loop over the rows.
class RowSteps {
 public:
  void Add(const kernels::RowStep& step) { steps_.at(size_++) = step; }
  void Clear() { size_ = 0; }
  bool empty() const { return size_ == 0; }
  std::span<const kernels::RowStep> span() const { return {steps_.data(), size_}; }

 private:
  std::array<kernels::RowStep, kNumHeadParts + 4> steps_;
  size_t size_ = 0;
};

class Transformer::Ops {
 public:
  Ops(Transformer& model, const ForwardBatch& batch)
      : model_(model),
        config_(model.config_),
        buffers_(model.buffers_),
        choices_(model.choices_),
        batch_(batch),
        num_rows_(static_cast<int64_t>(batch.token_ids.size())) {}

  void Embed();
  void Normalize(const NormWeights<const float*>& pre_norm);
  void AddAndNormalize(const NormWeights<const float*>& post_norm,
                       const NormWeights<const float*>& pre_norm);
  void AddAndKeepInput();
  void AddOutput(const NormWeights<const float*>& norm);
  bool HasInputRows(size_t layer) const {
    return !batch_.input_rows.empty() && static_cast<int64_t>(layer) < config_.num_image_layers;
  }
  void AddInputRows(size_t layer);
  void ScaleResidual(size_t layer);
  void ActivateLayerInput(size_t layer);
  void PredictStreams(size_t layer);
  void CorrectStreams(size_t layer);
  void AddToStreams(const NormWeights<const float*>& norm);
  void JoinStreams();
  void CollapseStreams(size_t layer, StreamReader block);
  void ExpandStreams(size_t layer, StreamReader block);
  void LeaveStreams();
  void AddLaurel(size_t layer);
  bool HasParallelBlocks() const { return config_.parallel_blocks; }
  size_t last_writer() const { return model_.last_writer_; }
  void Project(size_t layer, LinearRole role);
  void RotateAndWriteKv(size_t layer);
  void ChooseKeys(size_t layer);
  void Attend(size_t layer);
  void RunDeltaRule(size_t layer);
  void RunShortConvolution(size_t layer);
  void RunMamba(size_t layer);
  void ConvolveScan(size_t layer);
  void RunScan(size_t layer);
  void Activate(size_t layer);
  void ChooseExperts(size_t layer);
  void ActivateShared();
  void ActivateExperts();
  void MixLatents();
  void AddShared();
  void MixExperts();
  void MixNormalizedExperts(size_t layer);
  void CopyStream(size_t layer);
  bool KeepLastRows();
  bool CopyLastStreams();
  void Head();

  LogitsView logits() const {
    return {
        .data = buffers_.logits.data, .num_rows = num_logits_, .vocab_size = config_.vocab_size};
  }

 private:
  using Linear = CpuDecoderWeights::Linear;

  // Of the rows.
  const int32_t* positions() const {
    return (has_last_rows_ ? model_.last_positions_ : model_.positions_).data();
  }
  // Of the tables in ropes().
  const int32_t* rope_positions() const {
    if (!model_.has_row_ropes_) return positions();
    return (has_last_rows_ ? model_.last_rows_ : model_.row_numbers_).data();
  }
  const std::vector<RopeTable>& ropes() const {
    return model_.has_row_ropes_ ? model_.row_ropes_ : model_.ropes_;
  }

  void GatherEmbeddings(const Activations& out);
  void PlaceInputRows(const Activations& out) const;
  // Of a decoder whose layers have inputs (transformer_layer_inputs.cc).
  void MakeLayerInputs();
  // Of a decoder with residual streams (transformer_streams.cc): the streams from the embeddings.
  void SpreadStreams();
  kernels::StreamStep StepOfStreams(kernels::StreamOp op) const;
  kernels::StreamStep MixStep(kernels::StreamOp op) const;
  // Likewise, with what the active stream of a layer chooses.
  kernels::StreamStep RoutedStep(kernels::StreamOp op, size_t layer) const;
  // The rows of the i-th stream.
  Activations Stream(int64_t i) const {
    return {.data = buffers_.streams.data + i * config_.hidden_size,
            .width = buffers_.streams.width};
  }
  // Of a draft head (transformer_draft.cc): the residual from the tokens and the hidden states.
  void JoinTokensAndStates();
  // Writes what the head reads as the hidden states of the rows.
  void TakeStates(const Activations& out);
  // Copies the asked rows to the places of a stream. Row i of `x` is row rows[i] of the batch;
  // empty `rows`: row i.
  void CopyStates(const Activations& x, std::span<const int32_t> rows, size_t stream, float scale);
  // Of a draft head: keeps those of the rows of logits, of which `x` has all last rows.
  void KeepOwnStates(const Activations& x, float scale);

  // An RMSNorm.
  kernels::NormalizeArgs Norm(const Activations& x, const float* weight,
                              const Activations& y) const;
  // The family's.
  kernels::NormalizeArgs Norm(const Activations& x, const NormWeights<const float*>& norm,
                              const Activations& y) const;
  kernels::NormalizeArgs HeadNorm(const float* weight, float* x, int64_t heads,
                                  int64_t head_dim) const;
  // Of latent attention: the latents' norms and products run, and the steps put q, k and v
  // together (latent_heads.h).
  void MakeHeads(size_t layer, RowSteps* steps);
  kernels::NormalizeArgs LatentNorm(size_t layer, NormRole role, int64_t column, int64_t dim) const;
  // The values of the heads, from what attention gives of the latents.
  void MakeValues(size_t layer);
  // Runs the remembered operations first, and shows the observer each head.
  void RunHeads(std::span<const kernels::PackedLinear> weights,
                const kernels::HeadLinearArgs& args);
  // Of what a linear within a block reads, in place; nothing where the family has no such norm.
  // Of a choice of keys: what is rotated of a key follows the latent of its value.
  void AddKeysToValues(RowSteps* steps) const;
  // Whether there is a row that attends to chosen keys.
  bool HasChosenKeys() const { return !model_.choosing_rows_.empty(); }
  // Of compressed attention (transformer_entries.cc): the rope of the last elements of heads, which
  // are `dim` wide; what rows leave for entries, and the entries of windows that end; attention;
  // and what kOut reads.
  kernels::RopeArgs RopeOfEnds(size_t layer, const Activations& x, int64_t heads,
                               int64_t dim) const;
  void WriteCompressedKv(size_t layer);
  void WriteEntries(size_t layer);
  struct EntryParts;
  void MakeEntries(size_t layer, const EntryParts& parts);
  void ChooseEntries(size_t layer);
  void AttendToEntries(size_t layer, kernels::AttentionArgs args);
  void MakeGroups(size_t layer);
  void NormalizeWithin(size_t layer, NormRole role, const Activations& x);
  // Of linear attention: the numbers that decays of channels (0) or output gates (1) come from.
  Activations DeltaRank(int64_t index) const {
    const int64_t column = config_.delta->conv_size() + index * config_.delta->gate_rank;
    return {.data = buffers_.delta_inputs.data + column, .width = buffers_.delta_inputs.width};
  }
  // Of Mamba-1: what its kernels read and write, and the norms of what kScanInputs gives.
  kernels::ScanArgs ScanArgsOf(size_t layer) const;
  void AddScanNorms(size_t layer);
  // Rows of the gates of a layer and, behind them, of its q, k and v.
  Activations GatedQkv(size_t layer) const;
  void GateAttention(size_t layer);
  void AddHeadNorms(size_t layer, RowSteps* steps) const;
  void AddRope(size_t layer, RowSteps* steps) const;
  // Shows the observer, if there is one, what a linear is about to read.
  void Observe(const kernels::PackedLinear& weight, const kernels::InputRows& inputs);
  void RunRemembered();
  // Runs the remembered operations first.
  void RunLinear(const Linear& linear, const Activations& x, const Activations& y);
  // The same for a linear of a layer, with what adapters add.
  struct LayerLinear {
    size_t layer;
    LinearRole role;
  };
  void RunLinear(const LayerLinear& of, const Activations& x, const Activations& y);
  // The same for the rows of each chosen expert: row i of y comes from row rows[i] of x, or from
  // row i without rows.
  void CheckExperts();
  // Writes what each chosen expert reads, scaled by its weight, to where its output comes later.
  void SpreadInput();
  // Of the chosen experts alone.
  kernels::MixArgs MixOfChosen(const Activations& out) const;
  void RunExperts(size_t layer, LinearRole role, const Activations& x, const int32_t* rows,
                  const Activations& y);
  // In place, on the first ffn of 2 ffn columns, or of ffn without gates.
  void ActivateRows(const Activations& x, int64_t ffn, int64_t num_rows);

  Transformer& model_;
  const ModelConfig& config_;
  const Buffers& buffers_;
  kernels::ExpertChoices& choices_;
  const ForwardBatch& batch_;
  int64_t num_rows_;
  int64_t num_logits_ = 0;
  bool has_last_rows_ = false;          // KeepLastRows was called
  RowSteps remembered_;                 // for the next linear
  const Activations* input_ = nullptr;  // of the next block
};

}  // namespace mlc_native
