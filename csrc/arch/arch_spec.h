// What distinguishes the families of decoders, as data: one row per `architectures` entry of
// config.json. A new family is a row here (and name tables if its tensors are called otherwise).
//
// Numbers that a config.json gives are in ModelConfig; a row says which of them the family reads
// and what holds when they are absent (transformers leaves defaults out of the file).
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <string_view>

#include "kernels/experts.h"

namespace mlc_native {

// ---- Parameters of a layer, after fusion ----

// What a linear is for: a packed matrix [rows, columns], with a bias in some families.
enum class LinearRole : uint8_t {
  kQkv,     // [q + 2 kv, hidden]: q heads, k heads, v heads. Of latent attention: what the queries
            // come from, what keys and values come from, and the rotated part of all keys
  kOut,     // [hidden, q]; of latent attention [hidden, values]
  kGateUp,  // [2 ffn, hidden]; [ffn, hidden] where the feed-forward block has no gate. It and kDown
            // are of layers without experts
  kDown,    // [hidden, ffn]
  kRouter,  // [experts, hidden]: the logits of the choice; a row more weighs the shared expert
  kExpertGateUp,  // of each expert: [2 ffn, hidden]
  kExpertDown,    // of each expert: [hidden, ffn]
  kSharedGateUp,  // of the expert that every row passes
  kSharedDown,
  kQueryUp,  // of latent attention: the queries from what they come from
  // Likewise, of each head:
  kHeadKeyUp,    // [latent, key without its rotated part]: what a query is multiplied with
  kHeadValueUp,  // [value, latent]
  // Of layers with linear attention, in place of kQkv and kOut:
  kDeltaInputs,  // [keys + keys + values + values, hidden]: queries, keys, values and output gates;
                 // in other layers with states, all that these read
  kDeltaGates,   // [2 value heads, hidden]: how much each writes, and how fast it forgets
  kDeltaOut,     // [hidden, values]
  // Of layers with inputs:
  kLayerInputGate,  // [layer input, hidden]: what a layer's input is multiplied with
  kLayerInputUp,    // [hidden, layer input]
};
inline constexpr LinearRole kLinearRoles[] = {LinearRole::kQkv,         LinearRole::kOut,
                                              LinearRole::kGateUp,      LinearRole::kDown,
                                              LinearRole::kRouter,      LinearRole::kExpertGateUp,
                                              LinearRole::kExpertDown,  LinearRole::kSharedGateUp,
                                              LinearRole::kSharedDown,  LinearRole::kQueryUp,
                                              LinearRole::kHeadKeyUp,   LinearRole::kHeadValueUp,
                                              LinearRole::kDeltaInputs, LinearRole::kDeltaGates,
                                              LinearRole::kDeltaOut,    LinearRole::kLayerInputGate,
                                              LinearRole::kLayerInputUp};
inline constexpr size_t kNumLinearRoles = std::size(kLinearRoles);
// Whether a layer has one for each expert, of which a row reads those that it chose.
constexpr bool IsOfExperts(LinearRole role) {
  return role == LinearRole::kExpertGateUp || role == LinearRole::kExpertDown;
}
// Whether it is of layers with a state in place of keys and values.
constexpr bool IsOfDelta(LinearRole role) {
  return role == LinearRole::kDeltaInputs || role == LinearRole::kDeltaGates ||
         role == LinearRole::kDeltaOut;
}
// Whether a layer has one for each head.
constexpr bool IsOfHeads(LinearRole role) {
  return role == LinearRole::kHeadKeyUp || role == LinearRole::kHeadValueUp;
}

// What a norm is for. A family has some of them.
enum class NormRole : uint8_t {
  kPreAttention,
  kPostAttention,  // of attention's output, before it is added to the residual
  kPreFfn,
  kPostFfn,
  kQ,  // of latent attention: of what the queries come from
  kK,  // likewise: of what keys and values come from
  kV,
  kPostLayerInput,  // of what kLayerInputUp gives, before it is added to the residual
  // Of experts beside a block that every row passes, the shared expert, whose input is that of
  // kPreFfn. They are of the residual, and of what each of both gives:
  kRouter,
  kPreExperts,
  kPostExperts,
  kPostShared,
};
inline constexpr size_t kNumNormRoles = 12;
// Whether only layers have it whose experts are beside a block.
constexpr bool IsOfExpertsBeside(NormRole role) { return role >= NormRole::kRouter; }

// What other vectors of a layer are for.
enum class VectorRole : uint8_t {
  kSinks,         // [q heads]: a logit of each head that only the denominator of its softmax has
  kActivation,    // [2]: the two parameters of xIELU
  kCorrection,    // [experts]: added to the scores of experts for the choice only
  kLayerScale,    // [1]: of the residual behind the layer
  kExpertScales,  // [experts]: of the weights of experts
  // Of layers with states:
  kConvolution,  // [width, channels], the oldest row first: of queries, keys and values, or a short
                 // convolution's
  kDecay,        // [value heads]: the logarithm of how fast each forgets
  kDecayBias,    // [value heads]: added to what says how fast it forgets
  kDeltaNorm,    // [value dim]: of what each value head gives; of Mamba-2 [values], of all heads
  // Of Mamba-2:
  kConvolutionBias,  // [channels]
  kSkip,             // [value heads]: how much of a head's input is added to what it gives
};
inline constexpr size_t kNumVectorRoles = 11;
// Whether it is of layers with states.
constexpr bool IsOfDelta(VectorRole role) { return role >= VectorRole::kConvolution; }

// ---- Names of tensors ----

// Names outside the layers. Those of the decoder begin with one of the prefixes, whichever the
// checkpoint uses: with or without the modules that hold the decoder.
inline constexpr std::string_view kDecoderPrefixes[] = {
    "model.", "", "language_model.model.", "model.language_model.", "model.text_model."};
inline constexpr std::string_view kHeadNames[] = {"lm_head.weight",
                                                  "language_model.lm_head.weight"};
struct TensorNames {
  std::span<const std::string_view> prefixes = kDecoderPrefixes;
  std::string_view embeddings = "embed_tokens.weight";
  std::string_view layer = "layers.";    // "<prefix>layers.7.<name of a projection or norm>"
  std::string_view final_norm = "norm";  // and ".weight"
  std::span<const std::string_view> heads = kHeadNames;  // whole names
};

enum class Rows : uint8_t {
  kQ,
  kKv,
  kValues,  // as many as kKv; layers whose keys are their values lack them
  kQkv,
  kHidden,
  kFfn,
  kGateUp,
  kExperts,
  kOne,
  kExpertFfn,
  kExpertGateUp,
  kSharedFfn,
  kSharedGateUp,
  kQueryLatent,     // of latent attention: what the queries come from
  kKeyValueLatent,  // what keys and values come from, and the rotated part of the keys
  kQueryUp,
  kKeyValueUp,
  kLayerInput,
  kQkvOfGroups,  // of each KV head: the q heads that read it, its k and its v
  kGatedQ,       // of each q head: its q, and the gate of what it attends to
  // Of layers with linear attention:
  kDeltaQkv,
  kDeltaValues,
  kDeltaHeads,           // one of each value head
  kDeltaInputsOfGroups,  // of each key head: its q, its k, and v and gates of its value heads
  kDeltaGatesOfGroups,   // likewise: what its value heads write, and how fast they forget
  kConvolutionInputs,    // of a short convolution: of each channel both gates and what they gate
  kMambaInputs,          // of Mamba-2: output gates, values, keys, queries, and a step of each head
};

// "model.layers.7.<name>.weight" (and ".bias") -> the next rows of a fused matrix. Of an expert,
// the name has a "#" for its number; without one, the tensor [experts, rows, columns] has all.
struct ProjectionName {
  std::string_view name;
  LinearRole role;
  Rows rows;
  std::string_view ending = ".weight";
  std::string_view bias_ending = ".bias";
  // Of a tensor of all experts: it is [experts, columns, rows], and its rows alternate between
  // those of the first half and those of the second (gate and up). Matrices that are stored as
  // MXFP4 are not transposed.
  bool transposed = false;
  bool alternating = false;
  // Of a transposed one: it is not where the tensor has the shape of one that is not, as in
  // transformers.
  bool may_be_plain = false;
};

// "model.layers.7.<name>.weight" (and ".bias"). "#" in the name stands for the number of a head,
// for norms of which each head has its own tensor. Without a name, the weight is ones.
struct NormName {
  std::string_view name;
  NormRole role;
  std::string_view ending = ".weight";
};

// "model.layers.7.<name>" -> the next elements of a vector.
struct VectorName {
  std::string_view name;
  VectorRole role;
};

// ---- Families ----

// The greatest dimension, so that products never overflow, and number of layers.
inline constexpr int64_t kMaxDimension = int64_t{1} << 24;
inline constexpr int64_t kMaxLayers = 4096;
inline constexpr int64_t kMaxLatentHeads = 1024;  // each has matrices of its own in a layer

// A yes or no of a family: what a field of config.json says, else `absent`; always `absent` without
// the name of a field.
struct Switch {
  std::string_view field{};
  bool absent = false;
};
inline constexpr Switch kAlways{.absent = true};

// What a norm divides by: the root of the mean of the squares (RMSNorm), or the standard deviation
// after the mean is subtracted (LayerNorm).
enum class NormKind : uint8_t { kRms, kLayer };

// Norms of q and k. The heads share a weight [head_dim], or each has its own; or q (and k) is
// normalized as one vector. kLatents: of what q, and k and v, come from.
enum class QkNorm : uint8_t { kNone, kPerHead, kPerHeadOwnWeight, kWholeProjection, kLatents };

// What scales the values on their way through a decoder, by fields of config.json. An empty name is
// a multiplier that the family lacks; an absent field is 1.
struct Multipliers {
  bool sqrt_hidden_size = false;      // scales the embeddings, rounded to the weights' type
  std::string_view embedding{};       // scales the embeddings
  std::string_view residual{};        // scales what a block adds; only with norms before blocks
  std::string_view attention{};       // scales q k^T, instead of 1 / sqrt(head_dim)
  bool attention_by_head = false;     // 1 / sqrt(head_dim) where that is absent
  bool plain_attention = false;       // q k^T is not scaled
  std::string_view logits_divisor{};  // only with norm_weight_offset 0
  std::string_view logits{};          // likewise, and without norm_bias
  double absent_logits = 0.0625;
  std::string_view attention_divisor{};  // instead of head_dim in 1 / sqrt(head_dim); absent: 256
  // Instead of fields above: the embeddings by scale_emb, the residual by scale_depth /
  // sqrt(layers) and the logits by dim_model_base / hidden_size; absent: 12, 1.4 and 256; null:
  // all 1.
  bool of_minicpm = false;
};

// Which layers attend only to the last sliding_window tokens.
enum class WindowRule : uint8_t {
  kNever,
  kAllLayers,       // unless sliding_window is null
  kAllOrByType,     // likewise; or layer_types
  kAllIfAsked,      // use_sliding_window: all layers; or layer_types
  kEvenBelowLayer,  // use_sliding_window: layers 0, 2, ... below max_window_layers; or layer_types
  kFromLayer,       // use_sliding_window: layers max_window_layers and up; or layer_types
  kWithoutRope,     // use_sliding_window: the layers without rope; or layer_types
  kEveryButNth,     // all but each n-th layer, n = sliding_window_pattern; or layer_types
  kEveryButNthIfAny,  // likewise; none where sliding_window is null
  kEveryButFirstOfN,  // all but layers 0, n, 2 n, ..., n = sliding_window_pattern; or layer_types
  kFromLayerIfAny,    // layers max_window_layers and up, unless sliding_window is null; or
                      // layer_types
  kByType,            // layer_types; absent: none
};

// Which layers have rope.
enum class RopeRule : uint8_t {
  kAllLayers,
  kFieldSays,       // no_rope_layers (0: none), else all but each no_rope_layer_interval-th
  kInWindows,       // those with a window
  kInWindowsIfAny,  // likewise; all layers where sliding_window is null
  kIfNamed,         // all layers if position_embedding_type is "rope", else none
};

// What config.json must say for the model to be of the kind that runs: each value of the field, a
// string or an integer or a list of them, is one of `values`.
struct Requirement {
  std::string_view field;
  std::span<const std::string_view> values;
  std::string_view lacks;  // what other values need, for the error
};

// Which layers have experts instead of one feed-forward block.
enum class SparseLayers : uint8_t {
  kAll,
  kEveryStep,    // each decoder_sparse_step-th layer, except those of mlp_only_layers
  kBehindFirst,  // those from first_k_dense_replace (ExpertRule::first_sparse) on
  kInterval,     // each moe_layer_interval-th one in [moe_layer_start_index, moe_layer_end_index]
  kListed,       // those that mlp_layer_types calls "sparse"; absent: all but the first one
  kListedOrBehindFirst,  // likewise; absent: as kBehindFirst
};

// How checkpoints spell the tensors of experts.
struct ExpertSpelling {
  std::span<const ProjectionName> projections{};
  std::string_view correction{};     // whole name of kCorrection; empty: the family has none
  bool correction_is_a_row = false;  // of a tensor [1, experts]
  std::string_view post_norm{};      // kPostFfn, which layers without experts lack; empty: none
};

// The experts of a family, by fields of config.json; an empty name is one that the family lacks.
struct ExpertRule {
  std::string_view enabled_by{};  // a yes or no; empty: always
  // A number may be a list with one for each layer, all the same.
  std::string_view num_experts{};  // empty: no experts; also read: num_local_experts
  bool may_have_none = false;      // where that is 0
  std::string_view num_chosen = "num_experts_per_tok";
  std::string_view ffn_size = "moe_intermediate_size";
  std::string_view shared_size{};   // of the shared expert,
  std::string_view num_shared{};    // or how many experts it is as large as
  std::string_view renormalize{};   // empty: as in `absent`
  std::string_view smallest_sum{};  // of weights that are renormalized
  std::string_view scale{};         // of the weights
  bool reads_groups = false;        // n_group, topk_group
  bool best_judges = false;         // groups only if topk_method says so, judged by their best one
  bool shared_gate = false;         // the shared expert is weighed by the sigmoid of a logit
  bool biases = false;              // of the router and of the experts
  bool clamped_swiglu = false;      // swiglu_alpha, swiglu_limit
  std::string_view first_sparse = "first_k_dense_replace";  // of kBehindFirst
  SparseLayers layers = SparseLayers::kAll;
  kernels::RouterScore score = kernels::RouterScore::kSoftmax;
  // What stands in for kGateUp and kDown in `projections`, in the spellings of checkpoints. The one
  // counts whose tensors are there with the correction, else without it, else the first.
  std::span<const ExpertSpelling> spellings{};

  struct Absent {             // values of absent fields
    int64_t num_experts = 0;  // 0: must be given
    int64_t num_chosen = 0;
    int64_t ffn_size = 0;
    int64_t shared_size = 0;
    int64_t num_shared = 0;
    bool renormalize = false;
    double smallest_sum = 1e-20;
    double scale = 1;
    int64_t num_groups = 1;
    int64_t num_chosen_groups = 1;
    int64_t first_sparse = 1;  // of kBehindFirst
  } absent{};
};

// Whether attention is latent (MLA): queries, keys and values are products of short vectors, which
// come from the hidden states. Fields: q_lora_rank (null: queries come from the hidden states),
// kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim.
struct LatentRule {
  bool exists = false;
  std::span<const ProjectionName> direct_queries{};  // the projections without q_lora_rank

  struct Absent {  // values of absent fields
    int64_t q_rank = 1536;
    int64_t kv_rank = 512;
    int64_t plain_dim = 128;
    int64_t rope_dim = 64;
    int64_t value_dim = 128;  // 0: hidden_size / num_attention_heads
  } absent{};
};

// Values of absent fields; 0 where config.json must give the number.
struct ArchDefaults {
  int64_t vocab_size = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;  // 0: as many as attention heads
  int64_t head_dim = 0;             // 0: hidden_size / num_attention_heads
  int64_t max_position_embeddings = 2048;
  double norm_eps = 1e-6;
  double rope_theta = 1e4;
  double local_rope_theta = 1e4;
  double partial_rotary_factor = 1;
  std::string_view rope_parameters{};            // JSON; empty: rope_theta alone
  int64_t original_max_position_embeddings = 0;  // 0: what the rope's parameters say
  int64_t sliding_window = 0;
  int64_t max_window_layers = 28;
  int64_t sliding_window_pattern = 0;
  bool tie_word_embeddings = false;
  double attn_soft_cap = 0;   // 0: none
  double final_soft_cap = 0;  // 0: none
};

struct ArchSpec {
  std::string_view architecture;
  // Object of config.json with the text model's fields, or "". Older files may have them outside.
  std::string_view config_section{};
  // Of a second row of the architecture: for a section of this model_type.
  std::string_view text_model_type{};
  std::span<const ProjectionName> projections;
  std::span<const NormName> norms;
  TensorNames names{};
  // Tensors of the checkpoint that are no part of the text model.
  std::span<const std::string_view> ignored_prefixes{};
  std::span<const Requirement> requirements{};
  std::string_view ffn_size_field = "intermediate_size";

  std::span<const VectorName> vectors{};

  QkNorm qk_norm = QkNorm::kNone;
  Switch has_qk_norm = kAlways;  // whether it has those of qk_norm
  bool rope_before_qk_norm = false;
  Switch has_post_norms = kAlways;  // whether it has kPostAttention and kPostFfn of `norms`
  NormKind norm_kind = NormKind::kRms;
  std::string_view norm_eps_field = "rms_norm_eps";  // empty: always that of `defaults`
  float norm_weight_offset = 0.0f;                   // y = norm(x) * (offset + weight)
  bool norm_bias = false;                            // of the norms other than those of q and k
  bool norms_lack_weights = false;                   // all of them; they are ones
  bool normalizes_embeddings = false;  // with such a norm, before they enter the residual
  Switch qkv_bias{};
  Switch out_bias{};
  Switch ffn_bias{};
  Switch head_bias{};
  bool plain_ffn = false;           // act(up(x)) without a gate
  Switch parallel_blocks{};         // both blocks of a layer read the norm in front of attention,
  bool has_parallel_norms = false;  // or each a norm of its own of the layer's input
  std::string_view activation_field = "hidden_act";
  std::string_view default_activation = "silu";
  bool gelu_is_tanh = false;  // "gelu" means "gelu_pytorch_tanh", as the first releases had it
  Multipliers multipliers{};
  bool reads_attention_soft_cap = false;  // attn_logit_softcapping
  bool reads_final_soft_cap = false;      // final_logit_softcapping
  bool reads_partial_rotary_factor = false;
  // Outside of the rope's parameters:
  std::string_view rope_theta_field = "rope_theta";
  std::string_view partial_rotary_field = "partial_rotary_factor";
  bool interleaved_rope = false;     // rotates pairs of neighbours
  bool backward_rope = false;        // rotates by the negative angles
  bool yarn_is_longrope = false;     // in its old checkpoints, as is "su"
  bool reads_rope_alpha = false;     // "dynamic" with alpha is a fixed stretch of the base
  bool reads_rope_mscales = false;   // short_mscale, long_mscale of longrope
  bool reads_mrope = false;          // positions of images, which are one number in texts
  bool reads_query_scaling = false;  // llama_4_scaling_beta
  bool reads_layer_thetas = false;   // layer_rope_theta: of each layer, 0: it has no rope
  bool proportional_rope = false;    // partial_rotary_factor is of "proportional" ropes alone
  WindowRule window_rule = WindowRule::kNever;
  bool reads_window_pattern = false;          // sliding_window_pattern, else that of `defaults`
  bool local_rope = false;                    // layers with a window have a rope of their own
  std::string_view local_rope_theta_field{};  // its theta outside rope_parameters; empty: none
  RopeRule rope_rule = RopeRule::kAllLayers;
  bool last_has_no_window = false;  // whatever the rule
  // hidden_size_per_layer_input: each token has an input for each layer; 0: none.
  bool reads_layer_inputs = false;
  bool reads_layer_sizes = false;  // layers may have sizes of their own (ReadLayerSizes)
  ExpertRule experts{};
  LatentRule latent{};
  // Some layers have linear attention (the gated delta rule): those that layer_types calls
  // "linear_attention", else all but each full_attention_interval-th. Fields: linear_num_key_heads,
  // linear_num_value_heads, linear_key_head_dim, linear_value_head_dim, linear_conv_kernel_dim.
  bool has_delta_layers = false;
  std::span<const ProjectionName> split_qkvz{};  // in a GGUF file where has_split_qkvz_proj
  // Some layers have a gated short convolution: those that layer_types calls "conv", else all but
  // those of full_attn_idxs. Fields: conv_L_cache.
  bool has_short_convolutions = false;
  bool adjusts_ffn_size = false;  // block_ff_dim, block_auto_adjust_ff_dim and what it reads
  // Some layers have Mamba-2 (ReadMamba).
  bool has_mamba_layers = false;
  bool gates_attention = false;  // by what kGatedQ has alongside the queries

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
// The row of the same architecture for a section of this model_type.
const ArchSpec* RowOfText(const ArchSpec* row, std::string_view model_type);
std::string SupportedArchitectureList();  // "LlamaForCausalLM, ..."

}  // namespace mlc_native
