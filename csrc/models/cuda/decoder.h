// The decoder's forward on a CUDA device: which kernels on which memory, in the order of
// run_layers.h. It allocates nothing: its owner brings device memory and, for products of many
// rows of prompts, a faster way than Gemm.
//
// All work is put on the stream and no call waits. No launch depends on what is in device memory,
// so a forward of decode rows alone can be captured in a graph and replayed with other inputs.
// Engine's thread only.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "arch/model_config.h"
#include "kernels/cuda/adapters.h"
#include "kernels/cuda/experts.h"
#include "kernels/cuda/kernels.h"
#include "mlc_native/model.h"
#include "models/cuda/cuda_weights.h"
#include "models/cuda/device_recurrent.h"
#include "models/cuda/peers.h"
#include "models/latent_heads.h"

namespace mlc_native {

// Where a forward writes streams of HiddenStates.
struct CudaStreams {
  std::span<const int32_t> streams{};
  // The asked rows are those of the logits, in the same order.
  bool of_logits_rows = false;
  float* out = nullptr;             // [places, streams, hidden]
  const int32_t* places = nullptr;  // [num_rows], below zero: the row is not asked for
};

// Adjacent rows of first texts, or of second ones, of a model that tells them apart.
struct TextRun {
  int64_t first_row = 0;
  int64_t num_rows = 0;
  int32_t type = 0;  // ModelConfig::TextTypeOf
};

// The rows of a forward, all arrays on the device. The first num_decode_rows are computed one by
// one, the rest are the rows of `tiles`.
struct CudaBatch {
  int64_t num_rows = 0;
  int64_t num_decode_rows = 0;
  // At least the MaxDecodeSplits of the decode rows together; the default is enough for any rows.
  int64_t num_splits = std::numeric_limits<int64_t>::max();
  const int32_t* token_ids = nullptr;  // [num_rows], below zero: sampled[-1 - id]
  const int32_t* sampled = nullptr;
  std::span<const InputRows> input_rows{};  // on the host; never of launches that are replayed
  std::span<const TextRun> text_runs{};     // likewise; all rows of a model with text types
  const int32_t* positions = nullptr;       // [num_rows]
  const int32_t* rope_positions = nullptr;  // [num_rows, 3]; null: the model has no such ones
  const int64_t* slots = nullptr;           // [num_rows], below zero: an unused row
  // [num_rows] position + 1, more for rows of images that see each other; 0: an unused row
  const int32_t* lengths = nullptr;
  const int32_t* tables = nullptr;        // [num_rows] of block_tables
  const int32_t* block_tables = nullptr;  // [.., ld_block_tables]
  int64_t ld_block_tables = 0;
  const kernels::cuda::PrefillTile* tiles = nullptr;
  int64_t num_tiles = 0;
  const int32_t* logits_rows = nullptr;  // [num_logits]; null: all rows, in order
  int64_t num_logits = 0;
  CudaStreams streams{};
  // Of a draft head: DraftInput, and where the two halves of its joined rows lie.
  const float* target_states = nullptr;  // null: it reads its own
  const int32_t* state_rows = nullptr;   // [num_rows] of those that it reads
  const int32_t* joined_rows = nullptr;  // [2 * num_rows]: i, max_rows + i
  // Of layers with states.
  const kernels::cuda::DeltaSlice* delta_slices = nullptr;  // the last ones may be without rows
  int64_t num_delta_slices = 0;
  const kernels::cuda::DeltaWrite* delta_writes = nullptr;
  const int32_t* slice_of_row = nullptr;  // [num_rows], below zero: an unused row
  // [num_rows]: of each row the matrices that its adapter has, by LinearIndex; null: it has no
  // adapter. Null: no row has one.
  const kernels::cuda::AdapterMatrices* const* adapters = nullptr;

  static constexpr size_t LinearIndex(size_t layer, LinearRole role) {
    return layer * kNumLinearRoles + static_cast<size_t>(role);
  }
};

class CudaDecoder {
 public:
  // y[m, n] = x[m, k] w^T (+ bias) for many rows of prompts, whose bits may depend on their number.
  // False, or empty: not for it, and they are computed as decode rows are, in Gemv's order.
  using ManyRows = std::function<bool(const kernels::cuda::GemvArgs&, kernels::cuda::Stream)>;
  static constexpr int64_t kManyRowsAlign = 256;  // bytes, of x and y

  struct Limits {
    int64_t max_rows = 0;
    int64_t max_logits = 0;
    int64_t max_length = 0;  // of a sequence
    int64_t num_peers = 1;   // GPUs that compute the model
  };

  static size_t WorkspaceBytes(const ModelConfig& config, DType dtype, const Limits& limits);
  // The most rows of a CudaBatch's tiles; 0: PrefillAttention cannot compute a row of so many
  // heads.
  static int64_t TileRows(const ModelConfig& config);
  // How many of the batch's decode rows a call of DecodeAttention computes, on which the launches
  // of a forward depend.
  static int64_t DecodeRowsAtOnce(const ModelConfig& config, const Limits& limits,
                                  const CudaBatch& batch);

  // `workspace` and what weights and pages point at outlive the decoder. As one of several devices
  // (`peer`), config, weights and pages are those of its shard, and it has logits only if it has
  // the head.
  CudaDecoder(const ModelConfig& config, CudaDecoderWeights weights,
              std::vector<kernels::cuda::KvPages> kv, const Limits& limits, void* workspace,
              ManyRows many_rows, kernels::cuda::Stream stream, Peer peer = {});

  // Of layers with states, before the first forward.
  void SetRecurrentStates(CudaRecurrentStates states) { recurrent_ = std::move(states); }

  // The keys of the index of each layer, where layers choose keys; before the first forward.
  void SetIndices(std::vector<kernels::cuda::KvPages> indices) { indices_ = std::move(indices); }

  // Logits [num_logits, ld_logits] float32 on the device, valid until the next forward.
  float* Forward(const CudaBatch& batch);
  int64_t ld_logits() const { return LdLogits(config_); }
  // Whether rows of its batches may have adapters.
  static bool MayHaveAdapters(const ModelConfig& config, const Limits& limits) {
    return limits.num_peers == 1 && !config.draft_head;
  }
  int64_t DecodeRowsAtOnce(const CudaBatch& batch) const {
    return DecodeRowsAtOnce(config_, limits_, batch);
  }
  const ModelConfig& config() const { return config_; }
  DType dtype() const { return weights_.dtype; }
  const int32_t* target_ids() const { return weights_.target_ids; }
  const Peer& peer() const { return peer_; }

 private:
  class Ops;  // a forward in progress (decoder_ops.h)

  // What is known of each row, on the device.
  struct RowNumbers {
    int32_t* positions;
    int32_t* lengths;
    int32_t* tables;
    int64_t* slots;
  };

  // Device memory of max_rows or max_logits rows.
  struct Buffers {
    float* residual;     // [rows, hidden]
    float* input_rows;   // [rows, input]: rows in place of tokens, where layers add parts of them
    void* hidden;        // [rows, hidden]: a block's input
    void* output;        // [rows, hidden]: its output; `hidden`, except where both blocks of a
                         // layer read the same input
    void* qkv;           // [rows, gates + q + 2 kv], of latent attention [rows, q], then the values
    void* attention;     // [rows, q]; of latent attention [rows, heads * latent]
    void* state_output;  // [rows, outputs]: of layers with states; `attention`, except where a
                         // layer has both
    void* delta_inputs;  // [rows, StateInputsRow]: of layers with states, as the next one
    float* delta;
    float* delta_gates;     // of linear attention, as the next two; of Mamba-1 [rows, rank + 2
                            // states]
    float* delta_decays;    // [rows, decays]: of channels of the keys; of Mamba-1: steps
    void* delta_out_gates;  // [rows, values], where they are not among the inputs; of Mamba-1
                            // [rows, channels]: what its convolution gives
    void* scan_ranks;       // of Mamba-1 [rows, rank]: what steps come from
    void* latents;          // of latent attention (latent_heads.h), as the next one
    void* queries;
    void* index_queries;   // [rows, index heads * index size]: of a choice of keys, as what follows
    void* index_keys;      // [rows, index size]
    float* index_weights;  // [rows, index heads]
    float* key_scores;     // of ChooseKeys
    int32_t* chosen;       // [rows, chosen keys]
    int32_t* num_chosen;   // [rows]
    void* ffn;             // [rows, 2 ffn] or [rows, ffn], of the shared expert likewise. Also the
                           // projection of the layers' inputs, and their gates, and
                           // the parts [streams - 1, rows, hidden] of what residual streams become
    void* activated;       // [rows, ffn]
    float* router;         // [rows, router's rows]; what follows is of the experts, by place
    kernels::cuda::ExpertChoices choices;
    void* expert_ffn;         // [rows * chosen, 2 ffn]
    void* expert_activated;   // [rows * chosen, ffn]
    void* expert_output;      // [rows * chosen, hidden], in the memory of expert_ffn
    void* expert_inputs;      // [rows * chosen, hidden] where they are scaled
    void* expert_latents;     // [rows, latent]: what experts read, then what kExpertsOut reads
    void* shared;             // [rows, hidden]: output of the shared expert
    float* layer_inputs;      // [rows, inputs of all layers]
    float* streams;           // [streams, rows, hidden]: residual streams
    void* laurel_rank;        // [rows, rank of LAuReL]
    void* laurel;             // [rows, hidden]: what its second linear gives
    float* kept_residual;     // [logits, hidden]
    float* kept_streams;      // [streams, logits, hidden]
    void* kept_attention;     // [logits, columns of `attention`]
    void* kept_state_output;  // [logits, outputs] where a layer has both
    void* kept_input;         // [logits, hidden] where both blocks of a layer read the same input
    RowNumbers kept_rows;     // [logits] where KeepsRowNumbers
    void* halves;             // of a draft head: [2 * rows, hidden], tokens and hidden states
    void* joined;             // [rows, 2 hidden]: the same
    void* states;             // [rows, what it reads of its target]
    float* own_states;        // [logits, hidden]: of the last forward
    float* logits;            // [logits, ld_logits]; on all but the first device [logits, part]
    float* peer_logits;       // of the first device: the parts of the others, one behind the other
    void* peer_parts;         // of Peers::Sum
    float* square_sums;       // [rows, 2]: of q and k, where they are normalized as a whole, or of
                              // what Mamba-2 gives, [rows]; or both sums of gates that are cut
    void* square_parts;       // of their Peers::Sum
    float* adapters;          // of AddAdapters, where there may be adapters
    void* decode;             // DecodeAttention's
    void* splits;             // of decode rows, for each of windows_ in turn
  };
  // Rows of logits start at multiples of 32 bytes.
  static int64_t LdLogits(const ModelConfig& config) { return RoundUp8(config.vocab_size); }
  static int64_t RoundUp8(int64_t columns) { return (columns + 7) / 8 * 8; }
  // Of a row and a query head, what attention gives; of a row all heads, and what it reads of it.
  static int64_t ValueDim(const ModelConfig& config, const LayerConfig& layer) {
    return config.latent ? config.latent->kv_rank : config.head_dim_of(layer);
  }
  static int64_t AttentionSize(const ModelConfig& config, const LayerConfig& layer) {
    return config.heads_of(layer) * ValueDim(config, layer);
  }
  // Elements from one row of Buffers::latents to the next: any row may be the first of a ManyRows.
  static int64_t LatentRow(const ModelConfig& config) {
    constexpr int64_t kElements = kManyRowsAlign / 2;  // of the smallest type
    return (config.latent_size() + kElements - 1) / kElements * kElements;
  }
  // Of q, k and v together, as far as the layer has them, with the gates in front of them.
  static int64_t QkvRow(const ModelConfig& config, const LayerConfig& layer) {
    return config.latent ? config.q_size() : config.linear_rows(layer, LinearRole::kQkv);
  }
  // From one row of what a layer with a state reads to the next.
  static int64_t StateInputsRow(const ModelConfig& config) {
    return RoundUp8(config.recurrent_inputs_size());
  }
  // Of what attention of a layer gives, or what is in its place.
  static int64_t AttentionRow(const ModelConfig& config, const LayerConfig& layer) {
    if (layer.attends()) return AttentionSize(config, layer);
    return layer.is_recurrent ? config.recurrent_outputs_size() : 0;
  }
  static int64_t WidestAttentionRow(const ModelConfig& config) {
    return config.Widest([&](const LayerConfig& layer) { return AttentionRow(config, layer); });
  }
  // Whether layers behind the last writer attend, to keys and values of others.
  static bool KeepsRowNumbers(const ModelConfig& config);
  static size_t DecodeBytes(const ModelConfig& config, int64_t max_splits);
  // The windows of attention that the layers have, each once; 0: none.
  static std::vector<kernels::AttentionWindow> Windows(const ModelConfig& config);
  // Of one call of DecodeAttention. Twice as many as rows of middling length have, since a pool is
  // seldom full of longer ones; rows that do have more take several calls.
  static int64_t MaxSplitsAtOnce(const ModelConfig& config, const Limits& limits);
  static Buffers Place(const ModelConfig& config, DType dtype, const Limits& limits, void* data,
                       size_t* bytes);
  // The most keys that a row attends to.
  static int64_t MostKeys(const ModelConfig& config, const Limits& limits) {
    return config.key_choice ? std::min(limits.max_length, config.key_choice->num_chosen)
                             : limits.max_length;
  }
  // take(elements, bytes of one) is the next part of the memory.
  using Take = std::function<void*(int64_t, size_t)>;
  static void PlaceStates(const ModelConfig& config, DType dtype, const Limits& limits,
                          const Take& take, Buffers* buffers);
  static void PlaceIndex(const ModelConfig& config, DType dtype, const Limits& limits,
                         const Take& take, Buffers* buffers);
  static void PlaceFeedForward(const ModelConfig& config, DType dtype, int64_t max_rows,
                               const Take& take, Buffers* buffers);
  static void PlaceExperts(const ModelConfig& config, DType dtype, int64_t max_rows,
                           const Take& take, Buffers* buffers);
  // Of rows behind the last keys and values.
  static void PlaceKeptRows(const ModelConfig& config, DType dtype, int64_t max_logits,
                            const Take& take, Buffers* buffers);

  // From each expert to the next, in bytes.
  struct ExpertStrides {
    ptrdiff_t matrix = 0;
    ptrdiff_t bias = 0;
  };
  static ExpertStrides StridesOf(const CudaDecoderWeights::Layer& layer, LinearRole role);
  void CheckExperts() const;  // what CudaDecoderWeights says of them

  const ModelConfig config_;
  const CudaDecoderWeights weights_;
  const std::vector<kernels::cuda::KvPages> kv_;
  const Limits limits_;
  const std::vector<kernels::AttentionWindow> windows_;
  const size_t last_writer_;  // ModelConfig::last_writer
  const int64_t max_splits_;
  const ManyRows many_rows_;
  const kernels::cuda::Stream stream_;
  const Peer peer_;
  const Buffers buffers_;
  CudaRecurrentStates recurrent_;
  std::vector<kernels::cuda::KvPages> indices_;
};

}  // namespace mlc_native
