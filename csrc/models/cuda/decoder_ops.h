// The operations of run_layers.h as launches of the CUDA kernels, for one forward of a CudaDecoder.
//
// Implemented in decoder_forward.cc (a layer), decoder_input_rows.cc, decoder_attention.cc,
// decoder_latent.cc, decoder_key_choice.cc, decoder_delta.cc, decoder_experts.cc,
// decoder_layer_inputs.cc, decoder_streams.cc, decoder_states.cc, decoder_draft.cc and
// decoder_adapters.cc. Lives as long as the forward.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/cuda/residual_streams.h"
#include "kernels/cuda/selective_scan.h"
#include "models/cuda/decoder.h"

namespace mlc_native {

class CudaDecoder::Ops {
 public:
  using Norm = NormWeights<const void*>;

  Ops(const CudaDecoder& decoder, const CudaBatch& batch)
      : decoder_(decoder),
        config_(decoder.config_),
        weights_(decoder.weights_),
        buffers_(decoder.buffers_),
        stream_(decoder.stream_),
        batch_(batch),
        num_rows_(batch.num_rows),
        fixed_rows_(batch.num_decode_rows),
        rows_(RowsOf(batch)),
        residual_(buffers_.residual),
        attention_(buffers_.attention),
        state_output_(buffers_.state_output),
        input_(buffers_.hidden),
        streams_(StreamsAt(buffers_.streams, decoder.limits_.max_rows * config_.hidden_size)),
        listed_(decoder.windows_.size(), kNotListed) {}

  void Embed();
  void Normalize(const Norm& pre_norm) {
    if (!config_.attends_to_joined()) LaunchAddNorm(TakeAdded(), pre_norm, input_);
  }
  void AddAndNormalize(const Norm& post_norm, const Norm& pre_norm);
  void AddAndKeepInput() { LaunchAddNorm({FinishBlock({})}, {}, nullptr); }
  void AddOutput(const Norm& norm);
  void ScaleResidual(size_t layer);
  bool HasInputRows(size_t layer) const {
    return !batch_.input_rows.empty() && static_cast<int64_t>(layer) < config_.num_image_layers;
  }
  void AddInputRows(size_t layer);
  void ActivateLayerInput(size_t layer);
  void PredictStreams(size_t layer);
  void CorrectStreams(size_t layer);
  void AddToStreams(const Norm& norm);
  void JoinStreams();
  void AddLaurel(size_t layer);
  size_t last_writer() const { return decoder_.last_writer_; }
  bool HasParallelBlocks() const { return config_.parallel_blocks; }
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
  void MixExperts();
  void MixLatents();
  void AddShared();
  void MixNormalizedExperts(size_t layer);
  void CopyStream(size_t layer);
  bool KeepLastRows();
  bool CopyLastStreams();
  void Head();
  void HeadOfPeers(kernels::cuda::GemvArgs args) const;

 private:
  using Linear = CudaDecoderWeights::Linear;
  // A product of a layer's linear.
  struct LayerProduct {
    size_t layer;
    LinearRole role;
    kernels::cuda::GemvArgs args;
  };
  static constexpr int64_t kNotListed = -1;
  enum class LastRows { kNone, kOfLogits, kAll };

  // What the residual is about to get.
  struct Added {
    const void* output = nullptr;  // null: nothing
    Norm norm{};
    const void* scale = nullptr;  // of the sum
  };
  // As CudaBatch's; null behind the last attention, where all rows are used.
  struct Rows {
    const int32_t* positions = nullptr;
    const int32_t* rope_positions = nullptr;
    const int32_t* lengths = nullptr;
    const int32_t* tables = nullptr;
    const int64_t* slots = nullptr;
  };
  static Rows RowsOf(const CudaBatch& batch) {
    return {batch.positions, batch.rope_positions, batch.lengths, batch.tables, batch.slots};
  }

  // `data` with an offset of so many elements.
  static void* Advance(const void* data, int64_t elements, DType dtype) {
    return static_cast<char*>(const_cast<void*>(data)) +
           elements * static_cast<int64_t>(DTypeSize(dtype));
  }

  void GatherEmbeddings() const;
  // Of rows in place of tokens (decoder_input_rows.cc).
  void PlaceInputRows(const InputRows& rows) const;
  void AddTextType(const TextRun& run) const;
  // Of a decoder whose layers have inputs (decoder_layer_inputs.cc).
  void MakeLayerInputs();
  void LaunchLayerInputGate(size_t layer);
  // Of a decoder with residual streams (decoder_streams.cc): the streams from the embeddings.
  void SpreadStreams();
  kernels::cuda::StreamArgs StepOfStreams(kernels::StreamOp op) const;
  // Likewise, with what the active stream of a layer chooses.
  kernels::cuda::StreamArgs RoutedStep(kernels::StreamOp op, size_t layer) const;
  float* Stream(int64_t i) const { return streams_.data + i * streams_.step; }
  // Those whose stream i begins at data + i * step.
  kernels::StreamsView StreamsAt(float* data, int64_t step) const;
  void KeepStreams();
  // Of the first ffn columns of what the linear has left.
  void CutGates(const kernels::cuda::GemvArgs& linear, int64_t ffn, float deviations) const;
  // Of a draft head (decoder_draft.cc): the residual from the tokens and the hidden states.
  void JoinTokensAndStates();
  // Writes what the head reads as the hidden states of the rows.
  void TakeStates(void* out);
  // out = norm(x), or x without a weight, in the decoder's type.
  void Round(const float* x, const void* weight, int64_t dim, int64_t num_rows, void* out) const;
  // Normalizes some columns of rows of this width in place, if there is a weight.
  void NormalizeColumns(void* x, int64_t width, const void* weight, int64_t begin,
                        int64_t columns) const;
  // residual = x; then, with a weight, x = norm(x).
  void KeepAsResidual(void* x, const void* weight) const;

  // Copies what is asked of a stream (decoder_states.cc).
  void CopyRows(const void* rows, DType dtype, float scale, size_t stream) const;
  // Of a draft head: keeps its states of the rows of logits.
  void KeepOwnStates() const;
  bool KeepLogitsRows();
  void PickRows();
  void KeepAllRows();
  // Whether the rows are those of logits alone, each by itself.
  bool has_kept_rows() const {
    return last_rows_ == LastRows::kOfLogits && batch_.logits_rows != nullptr;
  }

  Added TakeAdded() { return std::exchange(added_, {}); }
  void LaunchAddNorm(const Added& added, const Norm& pre_norm, void* input) const;
  // Of one of several devices, whose blocks have computed parts of a sum: makes the whole sum of
  // values in the shape of a block's output.
  void SumOverPeers(void* values) const;  // of rows of hidden_size
  void SumOverPeers(void* values, int64_t width) const;
  // Whether products add to the residual, and normalize it, by themselves.
  bool HasNormsInProducts() const;
  // Launches the linear that ends a block, if it was left to do, and returns what is to be added to
  // the residual; null: the linear has added it.
  const void* FinishBlock(const Norm& post_norm);
  kernels::cuda::GemvArgs LinearArgs(const Linear& linear, const void* x, void* y) const;
  // Of the input, which it normalizes if that was left to do.
  kernels::cuda::GemvArgs LinearOfInput(const Linear& linear, void* y);
  kernels::cuda::GemvArgs LatentsOfInput(const Linear& linear);
  kernels::cuda::GemvArgs StateInputs(const Linear& linear);
  void LaunchLinear(const kernels::cuda::GemvArgs& args) const;
  // The same with what adapters add.
  void LaunchLinear(const LayerProduct& product) const;
  // A linear that what comes next may become a part of, unless rows have adapters. The next
  // operation launches it.
  void Defer(const LayerProduct& product);
  LayerProduct TakeDeferred();
  // Whether a row of the batch has an adapter. What a linear gives is then stored before anything
  // else is done with it, which changes no bit of rows without an adapter.
  bool HasAdapters() const { return batch_.adapters != nullptr; }
  // Adds what adapters add to what the product has left, if there are any (decoder_adapters.cc).
  void AddAdapters(const LayerProduct& product) const;
  // out = the activation of ffn, which the deferred linear leaves, or 2 ffn columns.
  void ActivateDeferred(const kernels::cuda::ActivationRule& rule, const void* xielu, int64_t ffn,
                        void* out, const std::optional<float>& cut = {});
  // A product in float32, of a linear whose matrix is, too.
  void LaunchFloatLinear(size_t layer, LinearRole role, float* y) const;
  // Of layers with states, and of attention whose output is gated (decoder_delta.cc).
  float* StatesOf(size_t layer) const;
  // Of the numbers that decays of channels or output gates come from.
  kernels::cuda::GemvArgs OfDeltaRank(const Linear& linear, LinearRole role) const;
  // Of Mamba-1: kScanInputs and kScanSteps, and what its kernels read and write.
  kernels::cuda::GemvArgs OfScan(const Linear& linear, LinearRole role) const;
  void NormalizeScan(size_t layer) const;
  kernels::cuda::ScanArgs ScanArgsOf(size_t layer) const;
  void GateAttention(size_t layer) const;
  // Rows of q of a layer, behind the gates.
  void* Qkv(size_t layer) const {
    return Advance(buffers_.qkv, config_.attention_gates_size(config_.layers[layer]),
                   weights_.dtype);
  }
  // The linear of each chosen expert. Row i of y comes from row rows[i] of x, or from row i without
  // rows.
  kernels::cuda::GroupedGemvArgs ExpertArgs(size_t layer, LinearRole role, const void* x,
                                            const int32_t* rows, void* y) const;
  // The gates and ups, which ActivateExperts launches.
  void DeferExperts(size_t layer);
  kernels::cuda::ActivationRule ExpertActivation() const;
  // Of the chosen experts alone.
  kernels::cuda::MixArgs MixOfChosen() const;
  // Rows of all heads: row i of head h begins at data + i * ld + h * step.
  struct RowsOfHeads {
    void* data;
    int64_t ld;
    int64_t step;
  };
  // Of latent attention (decoder_latent.cc): q, and the keys of the pages, from the latents.
  void WriteLatents(size_t layer) const;
  void NormalizeQueryLatents(size_t layer) const;
  // The product of each head with its own matrix.
  void ProjectHeads(size_t layer, LinearRole role, const RowsOfHeads& x,
                    const RowsOfHeads& y) const;
  // The values of all heads, from attention's output.
  const void* MakeValues(size_t layer) const;
  struct RopeOfLayer {
    int64_t rotary_dim = 0;  // 0: no rope
    CudaRope tables{};
  };
  RopeOfLayer RopeOf(size_t layer) const;
  void NormalizeWholeProjections(size_t layer) const;
  // Of what a linear within a block reads, [rows, its columns], in place; nothing where the family
  // has no such norm.
  void NormalizeWithin(size_t layer, NormRole role, void* x) const;
  // Of two parts of each row, which follow one another.
  void SumSquaresOverPeers(const void* x, int64_t ld, int64_t first, int64_t second) const;
  bool HasTiles(size_t layer) const;
  void AttendDecode(size_t layer, int64_t first, int64_t num_rows);
  kernels::cuda::AttentionArgs MakeAttentionArgs(size_t layer) const;

  const CudaDecoder& decoder_;
  const ModelConfig& config_;
  const CudaDecoderWeights& weights_;
  const Buffers& buffers_;
  const kernels::cuda::Stream stream_;
  const CudaBatch& batch_;
  int64_t num_rows_;
  int64_t fixed_rows_;  // the first ones, whose bits do not depend on other rows
  Rows rows_;
  float* residual_;
  void* attention_;
  void* state_output_;
  void* input_;                           // of the next block
  kernels::StreamsView streams_;          // without a count: the model has none
  LastRows last_rows_ = LastRows::kNone;  // that are kept
  Added added_;                           // by the next norm
  std::optional<LayerProduct> deferred_;
  std::optional<Norm> deferred_norm_;  // of the residual: the input of the next linear
  std::optional<kernels::cuda::GroupedGemvArgs> deferred_experts_;
  // For each of windows_: the first of the rows whose splits are listed.
  std::vector<int64_t> listed_;
};

}  // namespace mlc_native
