// The numbers of one decoder, from its folder, complete and checked: nothing that runs the model
// looks at the family or at JSON again. A value; any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "arch/arch_spec.h"
#include "arch/attention_config.h"
#include "arch/distance_config.h"
#include "arch/draft_layout.h"
#include "arch/expert_config.h"
#include "arch/image_models.h"
#include "arch/layer_rules.h"
#include "arch/rope.h"
#include "checkpoint/quantization.h"
#include "kernels/kernels.h"
#include "mlc_native/detail/dtype.h"
#include "mlc_native/detail/export.h"
#include "support/config_fields.h"

namespace mlc_native {

// Latent attention: the sizes of what a row's queries, keys and values come from. Pages have the
// latents instead of the keys and values of all heads: one KV head, whose key is [rope | latent]
// and whose value is the latent. A head's query is multiplied with what makes its keys, and what
// attention gives it with what makes its values.
struct LatentConfig {
  int64_t q_rank = 0;  // 0: the queries come from the hidden states
  int64_t kv_rank = 0;
  int64_t plain_dim = 0;  // of a query or key of a head: elements without rope,
  int64_t rope_dim = 0;   // and those with it, which all keys of a row share
  int64_t value_dim = 0;
  // Of a GGUF file: what makes keys and values of latents is two matrices for each head, of which
  // that of the key is transposed.
  bool splits_up_projection = false;

  int64_t query_dim() const { return plain_dim + rope_dim; }
};

// Linear attention (the gated delta rule): the sizes of the layers that have it. Each value head
// has a state [key_dim, value_dim] in place of keys and values, and the layer the last conv_width -
// 1 rows of what its convolution reads.
struct DeltaConfig {
  int64_t num_key_heads = 0;
  int64_t num_value_heads = 0;  // a multiple: so many read the same queries and keys
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  int64_t conv_width = 0;
  // Of Kimi Delta Attention: from how many numbers each the decays of the channels and the output
  // gates come, of which it takes the sigmoids. 0: a head has one decay.
  int64_t gate_rank = 0;
  float beta_scale = 1;  // of how much a row writes
  float norm_eps = 0;    // of what the heads give

  bool decays_channels() const { return gate_rank > 0; }
  int64_t keys_size() const { return num_key_heads * key_dim; }
  int64_t values_size() const { return num_value_heads * value_dim; }
  int64_t conv_size() const { return 2 * keys_size() + values_size(); }
  int64_t inputs_size() const {
    return conv_size() + (decays_channels() ? 2 * gate_rank : values_size());
  }
  int64_t decays_size() const { return num_value_heads * (decays_channels() ? key_dim : 1); }
  int64_t gates_size() const { return num_value_heads * (decays_channels() ? 1 : 2); }
};

// Gated short convolutions: the sizes of the layers that have one. Such a layer has the last width
// - 1 rows of what its convolution reads in place of keys and values.
struct ConvolutionConfig {
  int64_t channels = 0;
  int64_t width = 0;
};

// Mamba-2: the sizes of the layers that have it. Each head has a state [state_dim, head_dim] in
// place of keys and values, and the layer the last conv_width - 1 rows of what its convolution
// reads: the values of all heads, and the key and the query of each group of them.
struct MambaConfig {
  int64_t num_groups = 0;
  int64_t num_group_parts = 1;  // of several devices: those that have heads of the same group
  int64_t num_heads = 0;        // a multiple: so many read the same queries and keys
  int64_t state_dim = 0;
  int64_t head_dim = 0;
  int64_t conv_width = 0;
  bool conv_bias = false;
  bool has_norm = true;  // of what the heads give
  float shortest_step = 0;
  float longest_step = std::numeric_limits<float>::infinity();

  // Whether several devices normalize the heads of a group together.
  bool norm_has_parts() const { return has_norm && num_group_parts > 1; }
  int64_t keys_size() const { return num_groups * state_dim; }
  int64_t values_size() const { return num_heads * head_dim; }
  int64_t conv_size() const { return values_size() + 2 * keys_size(); }
  int64_t inputs_size() const { return values_size() + conv_size() + num_heads; }
};

// Mamba-1, the selective scan: the sizes of the layers that have it. Each channel has a state of
// state_dim numbers in place of keys and values, and the layer the last conv_width - 1 rows of what
// its convolution reads, the channels.
struct ScanConfig {
  int64_t channels = 0;
  int64_t state_dim = 0;
  int64_t rank = 0;  // numbers that the steps of all channels come from
  int64_t conv_width = 0;
  bool conv_bias = false;
  bool biases = false;     // of the first projection and of the last one
  bool has_norms = false;  // of what steps come from, of keys and of queries
  float norm_eps = 0;

  int64_t inputs_size() const { return 2 * channels; }
  int64_t step_inputs_size() const { return rank + 2 * state_dim; }
};

// What rows of the matrices of all layers, and their biases, are multiplied with as they are
// loaded, in place of multiplying what they give.
struct MatrixScales {
  float attention_in = 1;  // of queries, keys and values, but not of their biases
  float keys = 1;
  float attention_out = 1;
  std::array<float, 5> mamba_in = {1, 1, 1, 1, 1};  // gates, values, keys, queries, steps
  float mamba_out = 1;
  float gates = 1;  // of feed-forward blocks
  float down = 1;
};

// Inputs of the layers: each layer gets something of its own of a row's token. It is a row of a
// table and a product of the token's embedding, both of which are for all layers, added and scaled
// by the root of a half; the product is normalized first. A layer multiplies it with a gate of the
// residual, and adds what follows to the residual.
inline constexpr float kRootOfHalf = 0.70710678f;
struct LayerInputConfig {
  int64_t size = 0;        // of a layer
  int64_t vocab_size = 0;  // of the table
  float norm_eps = 0;      // of the product
  // Whether tokens that the table lacks have the input of the first one.
  bool is_short = false;
};

// Residual streams (AltUp): a row has several hidden states in place of one, of which a layer reads
// and corrects one (kernels/residual_streams.h).
struct ResidualStreamConfig {
  int64_t count = 0;
  int64_t active = 0;         // the one that layers read
  bool scales_active = true;  // by kStreamScale, for the gate of the layer's input
};

// The query at position p is scaled by 1 + strength * log(1 + floor((p + first) / period)).
struct QueryScaling {
  float strength = 0;  // 0: not at all
  int64_t period = 1;
  int64_t first = 0;
  bool without_rope = false;  // only in layers that have no rope
};

// Multipliers of a family are folded into numbers that every decoder has. With a residual
// multiplier m the residual is kept divided by m: its norms give the same with eps / m^2, the
// embeddings are divided by m, and what a block adds needs no factor. A factor of the logits is one
// of the final norm's weight.
struct MLC_NATIVE_PRIVATE_API ModelConfig {
  const ArchSpec* arch = nullptr;               // static
  const ImageModel* image_model = nullptr;      // static; where the text model is another family's
  std::span<const ProjectionName> projections;  // static; of this checkpoint
  std::span<const NormName> own_norms;          // static; empty: those of the family
  float norm_weight_offset = 0;                 // what its norms lack

  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t ffn_size = 0;
  // These, head_dim and ffn_size: of layers without sizes of their own.
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t num_kv_parts = 1;  // of several devices: those that have different KV heads
  int64_t head_dim = 0;
  int64_t stored_value_dim = 0;  // elements of a head's values that are not 0; 0: all of head_dim
  int64_t max_positions = 0;

  NormKind norm_kind = NormKind::kRms;
  float norm_eps = 0;           // of norms within a block: of its output, of q and k
  float residual_norm_eps = 0;  // of norms of the residual
  kernels::Activation activation = kernels::Activation::kSilu;
  bool qkv_bias = false;
  bool out_bias = false;
  bool ffn_bias = false;
  bool head_bias = false;
  QkNorm qk_norm = QkNorm::kNone;
  bool has_post_norms = true;    // those of the family
  bool parallel_blocks = false;  // both blocks of a layer read the norm in front of attention
  bool tie_word_embeddings = false;
  bool has_head = true;      // false: the checkpoint has none, so that logits mean nothing
  bool has_classes = false;  // it has a matrix from the last state to logits of classes
  RowSight sight = RowSight::kBefore;
  int64_t num_text_types = 0;  // rows of ArchSpec::text_types
  float embedding_scale = 1;   // see EmbeddingScale
  // The first layers, behind each of which a part of a row in place of a token is added (DeepStack
  // of Qwen3-VL). Fewer than all layers.
  int64_t num_image_layers = 0;
  float residual_scale = 1;  // the family's residual is the residual times this
  float attention_scale = 0;
  QueryScaling query_scaling{};
  float final_norm_scale = 1;    // of the final norm's weight
  float attention_soft_cap = 0;  // 0: none
  DistanceConfig distances{};
  float final_soft_cap = 0;  // 0: none

  std::vector<RopeConfig> ropes;
  std::vector<LayerConfig> layers;

  std::optional<ExpertConfig> experts;        // of the layers that have them
  std::optional<LatentConfig> latent;         // num_kv_heads and head_dim are those of pages
  std::optional<KeyChoiceConfig> key_choice;  // with latent attention
  std::optional<CompressionConfig> compression;
  std::optional<DeltaConfig> delta;              // of the layers with linear attention
  std::optional<ConvolutionConfig> convolution;  // of the layers with a short convolution
  std::optional<MambaConfig> mamba;              // of the layers with Mamba-2
  std::optional<ScanConfig> scan;                // of the layers with Mamba-1
  std::optional<MatrixScales> matrix_scales;
  AttentionGates attention_gates = AttentionGates::kNone;
  std::optional<LayerInputConfig> layer_inputs;
  std::optional<ResidualStreamConfig> residual_streams;  // not without layer_inputs
  std::optional<HyperConnectionConfig> hyper_connections;
  int64_t laurel_rank = 0;  // 0: layers have no LAuReL

  std::optional<DType> dtype;                // what the folder says of the weights
  std::optional<Quantization> quantization;  // of the stored matrices

  std::optional<DraftHeadConfig> draft_head;  // of a draft head

  // As config.json has it.
  std::string_view architecture() const {
    return image_model == nullptr ? arch->architecture : image_model->architecture;
  }
  // Tensors of the checkpoint that are no part of the text model.
  std::span<const std::string_view> ignored_prefixes() const {
    return image_model == nullptr ? arch->ignored_prefixes : PartsForImages();
  }
  std::span<const NormName> norms() const { return own_norms.empty() ? arch->norms : own_norms; }
  // What a draft head reads of its target in a row; 0 of another decoder.
  int64_t draft_input_size() const {
    return draft_head ? draft_head->num_target_states() * draft_head->target_hidden_size : 0;
  }
  // Whether attention reads the tokens' embeddings alongside the hidden states.
  bool attends_to_joined() const { return draft_head && draft_head->layout->joins_in_attention; }
  // Whether layers have states in place of keys and values; what those read and give in a row.
  bool has_states() const { return delta || convolution || mamba || scan; }
  int64_t recurrent_inputs_size() const;
  int64_t recurrent_outputs_size() const;
  // What an expert reads and gives in a row.
  int64_t expert_input_size() const {
    return experts->latent_size != 0 ? experts->latent_size : hidden_size;
  }
  bool scales_queries(const LayerConfig& layer) const {
    return query_scaling.strength != 0 &&
           !(query_scaling.without_rope && layer.rope != LayerConfig::kNoRope);
  }
  // Those of a layer.
  int64_t heads_of(const LayerConfig& layer) const {
    return layer.own_heads != 0 ? layer.own_heads : num_heads;
  }
  int64_t head_dim_of(const LayerConfig& layer) const {
    return layer.own_head_dim != 0 ? layer.own_head_dim : head_dim;
  }
  int64_t kv_heads_of(const LayerConfig& layer) const {
    return layer.own_kv_heads != 0 ? layer.own_kv_heads : num_kv_heads;
  }
  int64_t ffn_size_of(const LayerConfig& layer) const {
    return layer.own_ffn_size != 0 ? layer.own_ffn_size : ffn_size;
  }
  int64_t q_size(const LayerConfig& layer) const { return heads_of(layer) * head_dim_of(layer); }
  int64_t kv_size(const LayerConfig& layer) const {
    return kv_heads_of(layer) * head_dim_of(layer);
  }
  // Of a row's queries, and of its keys and values as far as the layer makes them.
  int64_t qkv_size(const LayerConfig& layer) const {
    return q_size(layer) + (layer.has_own_kv() ? 2 * kv_size(layer) : 0);
  }
  int64_t values_size(const LayerConfig& layer) const {
    if (compression) return compression->out_size();
    return latent ? num_heads * latent->value_dim : q_size(layer);
  }
  // The last layer that has keys and values of its own, or a state.
  size_t last_writer() const;
  // Of the layer that has most of them.
  int64_t most_heads() const {
    return Widest([&](const LayerConfig& layer) { return heads_of(layer); });
  }
  // The largest of what `size` gives of the layers; 0 without layers.
  template <typename Size>
  int64_t Widest(const Size& size) const {
    int64_t widest = 0;
    for (const LayerConfig& layer : layers) widest = std::max<int64_t>(widest, size(layer));
    return widest;
  }
  // Whether no layer has sizes of its own. Without a layer, sizes are those of such a decoder.
  bool has_equal_layers() const;
  int64_t q_size() const { return num_heads * head_dim; }
  int64_t kv_size() const { return num_kv_heads * head_dim; }
  int64_t qkv_size() const { return q_size() + 2 * kv_size(); }
  bool gates_attention() const { return attention_gates != AttentionGates::kNone; }
  // How many elements of what a head attends to have a gate together.
  int64_t elements_per_gate() const {
    return attention_gates == AttentionGates::kOfHeads ? head_dim : 1;
  }
  int64_t attention_gates_size(const LayerConfig& layer) const {
    return gates_attention() ? q_size(layer) / elements_per_gate() : 0;
  }
  // Of latent attention: columns of kQkv's output that queries come from, all of them, those of
  // kQueryUp's, of what would make all keys and values, and of all values.
  int64_t query_latent_size() const {
    if (compression) return compression->q_rank;
    return latent->q_rank > 0 ? latent->q_rank : num_heads * latent->query_dim();
  }
  int64_t latent_size() const { return query_latent_size() + latent->kv_rank + latent->rope_dim; }
  int64_t query_up_size() const { return compression ? q_size() : num_heads * latent->query_dim(); }
  int64_t key_value_up_size() const { return num_heads * (latent->plain_dim + latent->value_dim); }
  int64_t values_size() const { return values_size({}); }
  // Of compressed attention: channels of what a token leaves for entries, for those of the index,
  // and all numbers and weights of both.
  int64_t entry_channels(const LayerConfig& layer) const {
    return (layer.chooses_entries ? 2 : 1) * head_dim;
  }
  int64_t index_channels() const { return 2 * compression->index.head_dim; }
  int64_t token_row_size(const LayerConfig& layer) const {
    if (layer.tokens_per_entry == 0) return 0;
    return 2 * (entry_channels(layer) + (layer.chooses_entries ? index_channels() : 0));
  }
  const KeyChoiceConfig& index() const { return compression ? compression->index : *key_choice; }
  // How many linears of the role the layer has: 0, 1, or one of each expert.
  int64_t num_linears(const LayerConfig& layer, LinearRole role) const;
  int64_t linear_rows(const LayerConfig& layer, LinearRole role) const;
  int64_t linear_columns(const LayerConfig& layer, LinearRole role) const;
  bool has_bias(LinearRole role) const;
  bool has_norm(const LayerConfig& layer, NormRole role) const;
  // Whether blocks have norms of what their last linear reads.
  bool has_norms_within() const;
  // Elements of a row that a norm within a block is of.
  int64_t norm_within_size(const LayerConfig& layer, NormRole role) const {
    return role == NormRole::kAttentionOut ? values_size(layer) : ffn_size_of(layer);
  }
  // The shape of its weight.
  std::vector<int64_t> norm_shape(const LayerConfig& layer, NormRole role) const;
  // What the queries at positions [0, num_positions) are multiplied with; empty: nothing.
  std::vector<float> QueryScales(int64_t num_positions) const;
  // What the embeddings are multiplied with in a decoder whose weights have this type.
  float EmbeddingScale(DType weights) const;
  // The row of ArchSpec::text_types of a token of a second text, or of the only one.
  int32_t TextTypeOf(bool is_second) const { return is_second && num_text_types > 1 ? 1 : 0; }
  // Numbers of a row in place of a token: of the embedding, and of what the first layers add.
  int64_t input_size() const { return (1 + num_image_layers) * hidden_size; }
  // ModelMetadata::max_whole_rows: those that all windows hold.
  std::optional<int64_t> max_whole_rows() const;
  // Whether images have positions of their own.
  bool has_row_positions() const;
  // What rows that are given in their place (InputRows) are multiplied with.
  float InputScale() const;
  // Likewise of the rows of the layers' inputs.
  float LayerInputScale(DType weights) const;
  // Elements of a row's inputs of all layers.
  int64_t layer_inputs_size() const {
    return layer_inputs ? layer_inputs->size * static_cast<int64_t>(layers.size()) : 0;
  }
};

// The parts of ReadModelConfig for a Hugging Face folder: its config.json, and what follows from
// the family and from the fields of the text model (`given`), which are in `root` or are those of
// an object in it. `sizes`: what holds where they are absent.
ConfigFields ReadConfigJson(const std::string& folder);
ModelConfig ReadDecoder(const ArchSpec& arch, const ConfigFields& root, const ConfigFields& given,
                        int64_t longest, const TextSizes& sizes = {});

// Sets activation, biases, norms and multipliers of a config whose family and sizes are known.
// Throws LoadError.
void ReadLayerMath(const ConfigFields& fields, bool gelu_is_tanh, ModelConfig& config);

// Of a family with fields of them, sets what the layers have of
// their own. Requires: the decoder's sizes and the windows of its layers are known. Throws
// LoadError.
//
// Fields: v_head_dim of a family with a default of it; swa_num_key_value_heads (absent: twice as
// many as others have) of one with arch.reads_window_kv_heads; arch.layer_heads_field, with the
// number of query heads of each layer. Otherwise: per_layer_config, with an object for each layer
// whose head_dim or num_key_value_heads is its own, as transformers writes it; or global_head_dim
// and, with attention_k_eq_v, num_global_key_value_heads, of the layers without a window. The
// projection of keys gives the values, too, in layers without a window if attention_k_eq_v.
//
// With arch.shares_last_keys, the last num_kv_shared_layers read the keys and values of the last
// layer of their kind in front of them; in families with arch.reads_layer_sizes they have
// feed-forward blocks of twice the size if use_double_wide_mlp. With arch.reads_ffn_sizes,
// intermediate_size may be a list.
void ReadLayerSizes(const ConfigFields& fields, ModelConfig& config);

// Of a family with arch.cuts_gates, sets which layers cut their gates. Throws LoadError.
//
// Field: activation_sparsity_pattern, of each layer the share of gates that are zero if they are
// distributed normally, 0: they are not cut. Absent: 0.95 in the first 10 layers of more than 10.
// Of a GGUF file's metadata, activation_sparsity_deviations: gate_cut of each, -1e30: none.
void ReadGateCuts(const ConfigFields& fields, ModelConfig& config);

// Of a family with arch.has_residual_streams, sets config.residual_streams. Requires: the inputs of
// the layers are known. Throws LoadError.
//
// Fields: altup_num_inputs, altup_active_idx, altup_correct_scale.
void ReadResidualStreams(const ConfigFields& fields, ModelConfig& config);

// Of a family with arch.key_choice, sets config.key_choice and which layers choose. Requires: the
// decoder's sizes are known. Throws LoadError.
void ReadKeyChoice(const ConfigFields& fields, ModelConfig& config);

// Of a family with arch.has_compressed_attention, sets config.compression and
// config.hyper_connections, and what its layers have of both; which layers have experts of their
// tokens; and the rope of each layer. Requires: the decoder's sizes are known. Throws LoadError.
//
// Fields: q_lora_rank, o_groups, o_lora_rank, index_n_heads, index_head_dim, index_topk;
// layer_types or compress_ratios (0, 4 and 128 tokens per entry); compress_rates, with
// compress_rate_csa and compress_rate_hca over them; mlp_layer_types or num_hash_layers; hc_mult,
// hc_sinkhorn_iters, hc_eps.
void ReadCompression(const ConfigFields& fields, ModelConfig& config);
// Requires: the ropes are known, too.
void CheckIndexRope(const ConfigFields& fields, const ModelConfig& config);

// Of a family with arch.is_falcon, sets which norms the layers have, and whether their blocks are
// parallel. Throws LoadError.
//
// Fields: new_decoder_architecture, parallel_attn (which the former makes true), and
// num_ln_in_parallel_attn, the number of norms of a layer's input.
void ReadFalcon(const ConfigFields& fields, ModelConfig& config);

// Of a family with arch.has_delta_layers, sets config.delta if layers have linear attention, and
// which ones. Throws LoadError.
void ReadDelta(const ConfigFields& fields, ModelConfig& config);

// Of a family with arch.has_short_convolutions, sets config.convolution and which layers have one,
// and the size of feed-forward blocks. Throws LoadError.
void ReadShortConvolutions(const ConfigFields& fields, ModelConfig& config);

// Of a family with arch.mamba, sets config.mamba and which layers have it. Requires: the decoder's
// sizes are known, and the kinds of layers that are one block. Throws LoadError.
//
// Other layers have it where layer_types calls them "mamba" or "linear_attention"; without
// layer_types, all but those of attn_layer_indices. Fields: those of arch.mamba, time_step_limit.
void ReadMamba(const ConfigFields& fields, ModelConfig& config);

// Likewise of a family with arch.scan, config.scan. Fields: those of arch.scan.
void ReadScan(const ConfigFields& fields, ModelConfig& config);

// Of a family with arch.reads_matrix_scales or Multipliers::values, sets config.matrix_scales.
// Throws LoadError.
//
// Fields of the former: attention_in_multiplier, key_multiplier, attention_out_multiplier,
// ssm_in_multiplier, ssm_multipliers (five), ssm_out_multiplier, mlp_multipliers (of the gates, and
// of what down gives).
void ReadMatrixScales(const ConfigFields& fields, ModelConfig& config);

// Of a family with arch.has_single_blocks: a layer for each entry of layers_block_type, or for each
// letter of hybrid_override_pattern, with the blocks that it has; with arch.has_mamba_alone,
// num_hidden_layers. Throws LoadError.
std::vector<LayerConfig> ReadBlocks(const ConfigFields& fields, const ArchSpec& arch);

// Of a family with arch.reads_layer_inputs, sets config.layer_inputs. Requires: its norm_eps is
// known. Throws LoadError.
void ReadLayerInputs(const ConfigFields& fields, ModelConfig& config);

// Reads config.json, or mlc-chat-config.json of an MLC folder. `longest`: the longest sequence that
// will be served, on which longrope depends. Throws LoadError: missing or damaged, an architecture
// or a feature that is not supported, numbers that do not fit together.
MLC_NATIVE_PRIVATE_API ModelConfig
ReadModelConfig(const std::string& folder, int64_t longest = std::numeric_limits<int64_t>::max());

}  // namespace mlc_native
