// What distinguishes the families of decoders, as data: one row per `architectures` entry of
// config.json. A new family is a row here (and name tables if its tensors are called otherwise).
//
// Numbers that a config.json gives are in ModelConfig; a row says which of them the family reads
// and what holds when they are absent (transformers leaves defaults out of the file).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "arch/arch_rules.h"
#include "arch/layer_roles.h"
#include "arch/spellings.h"
#include "support/config_fields.h"

namespace mlc_native {

struct MambaFields;  // mamba_fields.h
struct ScanFields;   // likewise

struct ArchSpec {
  std::string_view architecture;
  // Object of config.json with the text model's fields, or "". Older files may have them outside.
  // "a.b": the object b of the object a.
  std::string_view config_section{};
  // Of a second row of the architecture: for a section of this model_type.
  std::string_view text_model_type{};
  // Object within it with the fields of attention, or "".
  std::string_view attention_section{};
  std::span<const ProjectionName> projections;
  // Of a GGUF file that splits what folders have in one tensor: where has_split_projections.
  std::span<const ProjectionName> split_projections{};
  std::span<const NormName> norms;
  TensorNames names{};
  // What some checkpoints have in place of parts of names.
  std::span<const OtherName> other_names{};
  // Tensors of the checkpoint that are no part of the text model.
  std::span<const std::string_view> ignored_prefixes{};
  std::span<const Requirement> requirements{};
  // Fields that config.json may call otherwise.
  std::span<const ConfigFields::Spelling> field_spellings{};
  std::string_view ffn_size_field = "intermediate_size";
  std::string_view own_ffn_size_field{};  // where it is given, instead of that; empty: none

  std::span<const VectorName> vectors{};
  PositionTable positions{};
  // A table [type_vocab_size, hidden], of which a row is added to the embeddings: the first to
  // those of a text, the second to those of a second text behind it. Empty: none.
  std::string_view text_types{};
  bool may_lack_text_types = false;  // where type_vocab_size is 0
  // multi_query: one KV head, else as many as attention heads; unless new_decoder_architecture.
  bool reads_multi_query = false;

  QkNorm qk_norm = QkNorm::kNone;
  Switch has_qk_norm = kAlways;  // whether it has those of qk_norm
  bool rope_before_qk_norm = false;
  bool qk_norm_needs_rope = false;  // layers without rope have none
  Switch has_post_norms = kAlways;  // whether it has kPostAttention and kPostFfn of `norms`
  // Layers with states have kPreAttention and kPreFfn of them, and the others those two.
  bool norms_follow_states = false;
  NormKind norm_kind = NormKind::kRms;
  bool is_rms_with_eps = false;  // kRms where rms_norm_eps is given, with this epsilon
  std::string_view norm_eps_field = "rms_norm_eps";  // empty: always that of `defaults`
  float norm_weight_offset = 0.0f;                   // y = norm(x) * (offset + weight)
  bool norm_bias = false;                            // of the norms other than those of q and k
  bool norms_lack_weights = false;                   // all of them; they are ones
  // What the norms in front of blocks give is the residual, too, so that they follow what the block
  // before adds (Post-LN).
  bool norms_give_residual = false;
  bool normalizes_embeddings = false;  // with such a norm, before they enter the residual
  // names.embedding_norm is in front of the first layer, which has all of `norms`.
  bool has_norm_before_layers = false;
  Switch qkv_bias{};
  Switch out_bias{};
  Switch ffn_bias{};
  Switch head_bias{};
  bool plain_ffn = false;           // act(up(x)) without a gate
  Switch parallel_blocks{};         // both blocks of a layer read the norm in front of attention,
  bool has_parallel_norms = false;  // or each a norm of its own of the layer's input
  bool is_falcon = false;           // ReadFalcon
  std::string_view activation_field = "hidden_act";
  std::string_view default_activation = "silu";
  bool gelu_is_tanh = false;  // "gelu" means "gelu_pytorch_tanh", as the first releases had it
  Multipliers multipliers{};
  bool reads_attention_soft_cap = false;  // attn_logit_softcapping
  bool reads_final_soft_cap = false;      // final_logit_softcapping
  bool reads_partial_rotary_factor = false;
  // Outside of the rope's parameters:
  std::string_view rope_theta_field = "rope_theta";
  std::string_view partial_rotary_field = "partial_rotary_factor";  // empty: none
  bool interleaved_rope = false;                                    // rotates pairs of neighbours
  bool backward_rope = false;        // rotates by the negative angles
  bool yarn_is_longrope = false;     // in its old checkpoints, as is "su"
  bool reads_rope_alpha = false;     // "dynamic" with alpha is a fixed stretch of the base
  bool reads_rope_mscales = false;   // short_mscale, long_mscale of longrope
  bool rows_see_each_other = false;  // those of an image, in both directions
  bool reads_bidirectional = false;  // use_bidirectional_attention: those of a text
  // Rows see their whole text, always, and what is behind the final norm are embeddings. A window
  // has so many tokens, half of them on each side.
  bool is_encoder = false;
  ClassifierNames classifier{};
  bool reads_mrope = false;         // positions of images, which are one number in texts
  bool reads_layer_thetas = false;  // layer_rope_theta: of each layer, 0: it has no rope
  bool proportional_rope = false;   // partial_rotary_factor is of "proportional" ropes alone
  QueryScalingRule query_scaling = QueryScalingRule::kNone;
  DistanceRule distance_rule = DistanceRule::kNone;
  WindowRule window_rule = WindowRule::kNever;
  std::string_view window_pattern_field{};    // of sliding_window_pattern; empty: `defaults`
  bool local_rope = false;                    // layers with a window have a rope of their own
  std::string_view local_rope_theta_field{};  // its theta outside rope_parameters; empty: none
  RopeRule rope_rule = RopeRule::kAllLayers;
  bool last_has_no_window = false;  // whatever the rule
  // hidden_size_per_layer_input: each token has an input for each layer; 0: none.
  bool reads_layer_inputs = false;
  bool reads_layer_sizes = false;        // layers may have sizes of their own (ReadLayerSizes)
  bool reads_ffn_sizes = false;          // intermediate_size may be a list of those of the layers
  bool shares_last_keys = false;         // num_kv_shared_layers
  bool cuts_gates = false;               // activation_sparsity_pattern
  bool has_residual_streams = false;     // ReadResidualStreams
  bool reads_window_kv_heads = false;    // layers with a window have KV heads of their own
  bool has_sinks_in_windows = false;     // and no others
  bool reads_window_before = false;      // sliding_window_size, where given: without the row itself
  std::string_view layer_heads_field{};  // of query heads of each layer; empty: all have as many
  ExpertRule experts{};
  LatentRule latent{};
  KeyChoiceRule key_choice{};
  bool has_compressed_attention = false;  // and hyper-connections (ReadCompression)
  // Some layers have linear attention (the gated delta rule): those that layer_types calls
  // "linear_attention", else all but each full_attention_interval-th. Fields: linear_num_key_heads,
  // linear_num_value_heads, linear_key_head_dim, linear_value_head_dim, linear_conv_kernel_dim.
  bool has_delta_layers = false;
  // Theirs is Kimi Delta Attention: each channel of the keys has a decay of its own. Fields:
  // linear_attn_config with full_attn_layers, kda_layers (from 1 on), num_heads, head_dim and
  // short_conv_kernel_size; else layer_types (absent: all but layers 4, 8, ...), linear_num_heads,
  // linear_head_dim and linear_conv_kernel_dim.
  bool decays_channels = false;
  // Absent ones follow from attention: as many heads, keys of 3/4 of hidden_size in all, values of
  // twice the size. A row writes twice as much, unless linear_allow_neg_eigval says no.
  bool is_olmo_delta = false;
  double delta_norm_eps = 0;  // of what the heads give; 0: as other norms
  // Some layers have a gated short convolution: those that layer_types calls "conv", else all but
  // those of full_attn_idxs. Fields: conv_L_cache.
  bool has_short_convolutions = false;
  bool adjusts_ffn_size = false;       // block_auto_adjust_ff_dim and what it reads
  const MambaFields* mamba = nullptr;  // some layers have Mamba-2
  bool attends_beside_mamba = false;   // all layers have both, beside each other
  const ScanFields* scan = nullptr;    // some layers have Mamba-1
  bool reads_matrix_scales = false;    // ReadMatrixScales
  // Each layer is one block alone: attention, Mamba-1 or Mamba-2, a feed-forward block or experts
  // (ReadBlocks).
  bool has_single_blocks = false;
  bool has_mamba_alone = false;  // all of these blocks are Mamba, num_hidden_layers of them
  AttentionGates attention_gates = AttentionGates::kNone;  // of kAttentionGates or kGatedQ
  Switch has_attention_gates = kAlways;                    // whether it has them
  // In place of both: true or "per-head", or "per-element"; absent: true.
  std::string_view attention_gates_field{};
  bool softplus_gates = false;  // they multiply by their softplus, not by their sigmoid

  ArchDefaults defaults{};
};

// How MLC-LLM names a family and its fused tensors; its norms carry norm_weight_offset already.
struct MlcFamily {
  std::string_view model_type;
  std::string_view architecture;
  std::span<const ProjectionName> projections;
};

const MlcFamily* FindMlcFamily(std::string_view model_type);  // nullptr: not supported
std::string MlcModelTypeList();                               // "llama, ..."

std::span<const ArchSpec> SupportedArchitectures();
const ArchSpec* FindArchitecture(std::string_view architecture);  // nullptr: not supported
// The row of a family by the name of its decoder alone, such as Qwen3Model, which checkpoints of
// models that embed texts have. nullptr: it is none.
const ArchSpec* FindDecoder(std::string_view architecture);
// The row of a family by the name of its classifier, such as Qwen3ForSequenceClassification, which
// has a matrix for classes in place of the head. `has_sections`: the text model has a part of the
// config.json of its own. nullptr: it is none.
const ArchSpec* FindClassifier(std::string_view architecture, bool has_sections);
// The row of the same architecture for a section of this model_type.
const ArchSpec* RowOfText(const ArchSpec* row, std::string_view model_type);
std::string SupportedArchitectureList();  // "LlamaForCausalLM, ..."

}  // namespace mlc_native
