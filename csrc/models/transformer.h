// The decoder on the CPU: one forward for all families, driven by ModelConfig (and, through it, by
// the rows of arch_table.cc), in the order of run_layers.h. Activations are float32; KV pages have
// a format of their own.
//
// Every output row depends on its own sequence only, bit by bit (the contract of kernels.h).
// Forward allocates nothing. Used by the engine's thread only; its pool works inside Forward.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "arch/rope.h"
#include "kernels/compression.h"
#include "kernels/experts.h"
#include "kernels/kernel_profile.h"
#include "kernels/key_choice.h"
#include "mlc_native/model.h"
#include "models/cpu_adapter.h"
#include "models/kv_storage.h"
#include "models/latent_heads.h"
#include "models/linear_observer.h"
#include "models/recurrent_storage.h"
#include "support/thread_pool.h"
#include "weights/cpu_weights.h"

namespace mlc_native {

class Transformer : public Model {
 public:
  // isa: what the weights were packed for.
  Transformer(ModelConfig config, CpuDecoderWeights weights, kernels::KvFormat kv_format,
              const kernels::CpuKernels& isa, std::unique_ptr<ThreadPool> pool);

  // Of the vectors of distances that a model makes of its weights; 0: it has none.
  static size_t DistanceVectorBytes(const ModelConfig& config);

  const ModelMetadata& metadata() const override { return metadata_; }
  const ModelConfig& config() const { return config_; }
  const CpuDecoderWeights& weights() const { return weights_; }
  void Allocate(int64_t num_pages, int64_t max_num_rows, int64_t max_num_logits) override;
  void AllocateRecurrent(int64_t num_slots) override;
  LogitsView Forward(const ForwardBatch& batch) override;
  void CopyPages(std::span<const PageCopy> copies) override;
  std::shared_ptr<const AdapterLoader> adapter_loader() const override;

  // Called by every forward from now on; it must outlive them.
  void set_observer(LinearObserver* observer) { observer_ = observer; }

  // Measures kernels from now on, and forgets what it has.
  void StartKernelProfile();
  // Returns what KernelProfile::Json does since then, and measures no more. "{}": was not started.
  std::string StopKernelProfile();

 private:
  class Ops;  // a forward in progress (transformer_ops.h)

  // Row-major activations [rows, width] within the workspace.
  struct Activations {
    float* data = nullptr;
    int64_t width = 0;
  };
  struct Buffers {
    Activations residual;   // [rows, hidden]
    Activations hidden;     // [rows, hidden]: a block's input
    Activations output;     // [rows, hidden]: its output; in the memory of `hidden`, except
                            // where both blocks of a layer read the same input
    Activations gated_qkv;  // [rows, gates of q + q + 2 kv], the most of both that layers have
    Activations qkv;        // [rows, q + 2 kv], within it
    Activations attention;  // [rows, q]
    Activations latents;    // of latent attention (latent_heads.h), as the next two
    Activations queries;
    Activations index_queries;  // of a choice of keys, as the next two
    Activations index_keys;
    Activations index_weights;
    Activations values;      // in the memory of qkv
    Activations token_rows;  // of compressed attention: what the rows leave for entries,
    Activations entries;     // the entries of windows that end, and their index's
    Activations index_entries;
    Activations delta_inputs;     // of linear attention, in the memory of qkv, as what follows
    Activations delta_gates;      // of Mamba-1: what steps come from, keys and queries
    Activations delta_decays;     // of channels of the keys; of Mamba-1: steps
    Activations delta_out_gates;  // within delta_inputs, or behind what comes before; of Mamba-1:
                                  // what its convolution gives
    Activations delta_output;
    Activations ffn;             // [rows, 2 ffn] or [rows, ffn], in the memory of qkv and attention
    Activations router;          // [rows, experts]: logits
    Activations shared;          // [rows, hidden]: what the shared expert gives
    Activations shared_ffn;      // [rows, 2 ffn of the shared expert]
    Activations expert_ffn;      // [choices, 2 ffn of an expert], in the memory of shared_ffn
    Activations expert_output;   // [choices, what an expert gives], in the memory of expert_ffn
    Activations expert_latents;  // [rows, latent]: what experts read, then what kExpertsOut reads
    Activations layer_inputs;    // [rows, inputs of all layers]
    Activations projected_inputs;  // likewise, in the memory of qkv and attention
    Activations layer_gate;        // [rows, 2 inputs of a layer], in the memory of qkv
    Activations streams;           // [rows, streams * hidden]
    Activations stream_parts;  // [rows, (streams - 1) * hidden], in the memory of qkv and attention
    Activations laurel_rank;   // [rows, rank of LAuReL], likewise
    Activations laurel;        // [rows, hidden]: what its second linear gives
    Activations joined;        // of a draft head: [rows, 2 hidden], tokens and hidden states
    Activations states;        // of a draft head: [rows, what it reads of its target]
    Activations own_states;    // of a draft head: [logits rows, hidden], of the last forward
    Activations linear_inputs;  // workspace of the linears
    Activations logits;         // [logits rows, vocab]
    void* attention_workspace = nullptr;
    void* delta_workspace = nullptr;
    void* choice_workspace = nullptr;  // of a choice of keys
    void* entry_workspace = nullptr;   // of compressed attention
  };

  // What makes the keys and values of each head of a layer with latent attention.
  struct HeadMatrices {
    std::vector<kernels::PackedLinear> keys;
    std::vector<kernels::PackedLinear> values;
  };

  // The windows of compressed attention that end in a batch, of the layers whose rows choose
  // entries, and of those whose rows see all.
  struct EndingWindows {
    kernels::EntryShape shape;
    std::vector<kernels::WindowEnd> ends;
    std::vector<int32_t> first_positions;  // of the windows
    std::vector<int64_t> slots;            // of their last tokens
  };

  void DescribeMetadata();
  int64_t BytesOfExperts() const;
  // Of keys of 8 bits (transformer_key_balance.cc).
  void BalanceKeys();
  // The largest magnitude of each channel of the keys of random rows x, which are overwritten.
  std::vector<float> LargestKeys(size_t layer, const Activations& x, const Activations& qkv,
                                 void* workspace) const;
  // A norm of the heads of q, k or v, in place.
  struct Heads {
    int64_t count = 0;
    int64_t dim = 0;
  };
  kernels::NormalizeArgs HeadNorm(const float* weight, const Activations& x, int64_t num_rows,
                                  const Heads& heads) const;
  void PlaceBlock(float* data, int64_t max_num_rows);
  void PlaceIndex(float* data, int64_t max_num_rows);
  void PlaceStateRows(float* data, int64_t max_num_rows);
  void AllocateAdapterRows(int64_t max_num_rows);
  void PlacePositions(const ForwardBatch& batch);
  void AddSequences(const ForwardBatch& batch, const SequenceSlice& slice);
  int64_t LastKeyOf(const ForwardBatch& batch, const SequenceSlice& slice, int32_t row) const;
  void PlaceRopes(const ForwardBatch& batch);
  // Whether a row can have more keys than it attends to.
  bool ChoosesKeys() const {
    return config_.key_choice && num_positions_ > config_.key_choice->num_chosen;
  }
  kernels::KeyChoiceShape ChoiceShape() const;
  // What attention adds by distance (transformer_distances.cc).
  void MakeDistances();
  void MakeDistanceVectors();
  kernels::DistanceBias distance_bias() const;
  kernels::DistanceVectors distance_vectors(size_t layer) const;
  // Which rows attend to chosen keys, and which to all.
  void PlaceChoosingRows(const ForwardBatch& batch);
  // Of compressed attention: sizes, memory, and what ends and chooses in a batch.
  void ReadTokenExperts();
  void GroupHeads();
  size_t EntryBytes() const;
  void AllocateEntries(int64_t max_num_rows);
  void PlaceEntryBlock(float* data, int64_t max_num_rows);
  void PlaceEntryRows(const ForwardBatch& batch);
  void AddEndingWindows(const SequenceSlice& slice, const kernels::AttentionSequence& sequence);
  kernels::EntryShape ShapeOfEntries(bool chosen) const;
  kernels::KeyChoiceShape ShapeOfIndex() const;
  EndingWindows& WindowsOf(const LayerConfig& layer) {
    return layer.chooses_entries ? sparse_windows_ : heavy_windows_;
  }
  void CheckRecurrentSlots(const ForwardBatch& batch) const;
  // Which states of a layer the sequences read and write.
  void PlaceStates(const ForwardBatch& batch, size_t layer);
  void ChooseLastRows(const ForwardBatch& batch);
  void PlaceLastRows(const ForwardBatch& batch);

  const ModelConfig config_;
  const CpuDecoderWeights weights_;
  const size_t last_writer_;  // the last layer that writes keys and values, or a state
  const std::vector<HeadPart> head_parts_;
  std::vector<HeadMatrices> head_matrices_;  // by layer; empty without latent attention
  const kernels::KvFormat kv_format_;
  const std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<kernels::KernelProfile> profile_;  // null: kernels are not measured
  kernels::Cpu cpu_;
  std::vector<float> distances_;  // DistanceBias::table; empty: none
  // Of each layer the tables of DistanceVectors, one behind the other.
  TensorStorage distance_vectors_;
  int64_t distance_reach_ = 0;          // of these
  LinearObserver* observer_ = nullptr;  // null: none
  ModelMetadata metadata_;

  // Set by Allocate.
  KvStorage kv_;
  std::vector<RopeTable> ropes_;
  std::vector<float> query_scales_;  // by position; empty: none
  // By layer: what q and k are multiplied by (key_balance.h); empty: nothing is.
  std::vector<std::vector<float>> balances_;
  TensorStorage workspace_;
  int64_t num_positions_ = 0;  // of the rope tables
  int64_t max_num_rows_ = 0;
  int64_t max_num_logits_ = 0;
  Buffers buffers_;
  std::vector<int32_t> positions_;   // [rows]
  std::vector<int32_t> text_types_;  // [rows], of a model that tells two texts apart
  // Where rope puts the rows of a batch, if it has images: tables of the rows themselves.
  bool has_row_ropes_ = false;
  std::vector<RopeTable> row_ropes_;
  std::vector<RowPosition> row_positions_;
  std::vector<int32_t> row_numbers_;  // 0, 1, 2, ...
  std::vector<int64_t> slots_;        // [rows] page * kKvPageSize + offset
  std::vector<kernels::AttentionSequence> sequences_;
  // Of a choice of keys: its sizes, the keys that the last choosing layer took, and the rows that
  // they are for.
  kernels::KeyChoiceShape choice_shape_;
  std::vector<int32_t> chosen_;
  std::vector<kernels::AttentionSequence> choosing_rows_;  // each is a sequence of its own
  std::vector<kernels::AttentionSequence> other_rows_;
  // Of compressed attention: all rows, each a sequence of its own, and, in choosing_rows_ and
  // other_rows_, those that have more entries than they attend to, and the others.
  std::vector<kernels::AttentionSequence> single_rows_;
  EndingWindows sparse_windows_;
  EndingWindows heavy_windows_;
  // By layer: the matrices of the groups of heads, and the experts of each token, or none.
  std::vector<std::vector<kernels::PackedLinear>> group_matrices_;
  std::vector<std::vector<int32_t>> token_experts_;
  std::vector<int32_t> last_ids_;  // the tokens of last_rows_, of a model with such experts
  RecurrentStorage recurrent_;
  std::vector<kernels::DeltaSequence> delta_sequences_;
  std::vector<kernels::DeltaWrite> delta_writes_;
  kernels::ExpertChoices choices_;
  AdapterRows adapter_rows_;
  std::vector<int32_t> last_rows_;  // rows of the batch that are computed to the end, ascending
  // Of these rows, where they go through more layers; as positions_ and sequences_.
  std::vector<int32_t> last_positions_;
  std::vector<kernels::AttentionSequence> last_sequences_;
};

}  // namespace mlc_native
