// Rules by which families of decoders differ, as data: which layers have a window, rope or experts,
// what scales the values, and what holds where config.json is silent. Names are those of fields of
// config.json; ReadModelConfig applies them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "arch/spellings.h"
#include "kernels/experts.h"

namespace mlc_native {

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

// A table whose rows are added to the embeddings of tokens, by their positions. It is a tensor of
// the decoder, and has a row for each of max_position_embeddings positions.
struct PositionTable {
  std::string_view name{};  // empty: the family has none
  int64_t first = 0;        // the row of position 0
  bool is_counted = false;  // max_position_embeddings counts the rows in front of it, too
};

// The classifier of a family of encoders: what the first token's state, or the mean of all, goes
// through up to the logits. Names are whole, without ".weight"; an empty one is of nothing.
struct ClassifierNames {
  std::string_view dense{};             // a matrix [hidden, hidden]
  std::string_view activation{};        // of what it gives, by its name in torch
  std::string_view activation_field{};  // or the field of config.json with its name
  std::string_view norm{};              // of that
  std::string_view classes = "classifier";
  std::string_view pooling_field{};  // "cls" or "bos", the first token, or "mean"
  std::string_view absent_pooling = "cls";
};

// What a norm divides by: the root of the mean of the squares (RMSNorm), or the standard deviation
// after the mean is subtracted (LayerNorm).
enum class NormKind : uint8_t { kRms, kLayer };

// What a row of attention sees: rows up to its own; of an image, all of that image, too; or all
// rows of its text, of models that make embeddings.
enum class RowSight : uint8_t { kBefore, kOfImages, kAll };

// Norms of q and k. The heads share a weight [head_dim], or each has its own; or q (and k) is
// normalized as one vector. kLatents: of what q, and k and v, come from.
enum class QkNorm : uint8_t { kNone, kPerHead, kPerHeadOwnWeight, kWholeProjection, kLatents };

// What multiplies the output of attention: the sigmoids (or softplus) of as many numbers, or of one
// for each head, which come from the layer's input.
enum class AttentionGates : uint8_t { kNone, kOfElements, kOfHeads };

// What scales the values on their way through a decoder, by fields of config.json. An empty name is
// a multiplier that the family lacks; an absent field is 1.
struct Multipliers {
  bool sqrt_hidden_size = false;      // scales the embeddings, rounded to the weights' type
  std::string_view root_if{};         // a yes or no: likewise, not rounded
  std::string_view embedding{};       // scales the embeddings
  bool of_tokens_only = false;        // but no rows in their places
  std::string_view residual{};        // scales what a block adds; only with norms before blocks
  std::string_view attention{};       // scales q k^T, instead of 1 / sqrt(head_dim)
  bool attention_by_head = false;     // 1 / sqrt(head_dim) where that is absent
  bool plain_attention = false;       // q k^T is not scaled
  std::string_view logits_divisor{};  // only with norm_weight_offset 0
  std::string_view logits{};          // likewise, and without norm_bias
  double absent_logits = 0.0625;
  std::string_view values{};  // scales the values of attention; null: 1
  double absent_values = 1;
  std::string_view attention_divisor{};  // instead of head_dim in 1 / sqrt(head_dim); absent: 256
  // Instead of fields above: the embeddings by scale_emb, the residual by scale_depth /
  // sqrt(layers) and the logits by dim_model_base / hidden_size; absent: 12, 1.4 and 256; null:
  // all 1.
  bool of_minicpm = false;
};

// What attention adds to the scores of a head by the distance of query and key.
enum class DistanceRule : uint8_t {
  kNone,
  kAlibi,    // a slope times it; the slopes are powers of 2^-alibi_bias_max
  kBuckets,  // of a table that all layers share, TensorNames::distances, the entry of its bucket:
             // of relative_attention_num_buckets, up to relative_attention_max_distance
  kVectors,  // products with vectors, which the matrices of q and k make of the row of a table that
             // all layers share (DistanceRows)
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
  kEveryButNthIfAny,   // likewise; none where sliding_window is null
  kEveryButNthOfKind,  // as kEveryButNth of the layers behind the first first_k_dense_replace ones,
                       // of which n = prefix_dense_sliding_window_pattern; or layer_types
  kEveryButFirstAndNth,  // as kEveryButNth, but the first one; or layer_types
  kEveryButFirstOfN,  // all but layers 0, n, 2 n, ..., n = sliding_window_pattern; or layer_types
  kFromLayerIfAny,    // layers max_window_layers and up, unless sliding_window is null; or
                      // layer_types
  kByType,            // layer_types; absent: none
  kEveryFourth,       // layers 4, 8, 12, ...; or layer_types
  kEveryButSecondOfFour,  // all but layers 0, 1, 5, 9, ... and the last one; or layer_types
  kLocal,                 // those that attention_types calls "local"; absent: every other one
  kChunksWithRope,  // attention_chunk_size, and a chunk of so many tokens instead: the layers with
                    // rope; or layer_types ("chunked_attention")
};

// What scales the queries by position.
enum class QueryScalingRule : uint8_t {
  kNone,
  kRopeSays,     // llama_4_scaling_beta of the rope's parameters: in all layers
  kWithoutRope,  // attn_scale and floor_scale, unless attn_temperature_tuning says no: in layers
                 // without rope
};

// Which layers have rope.
enum class RopeRule : uint8_t {
  kAllLayers,
  kFieldSays,         // no_rope_layers (0: none), else all but each no_rope_layer_interval-th
  kInWindows,         // those with a window
  kInWindowsIfAny,    // likewise; all layers where sliding_window is null
  kInWindowsOrDense,  // those with a window, and those without experts where
                      // prefix_dense_sliding_window_pattern is 1
  kNoLayer,
  kIfNamed,     // all layers if position_embedding_type is "rope", else none
  kUnlessNull,  // all layers, none where rope_theta of rope_parameters is null
};

// What config.json must say for the model to be of the kind that runs: each value of the field, a
// string or an integer or a list of them, is one of `values`, or that of another field.
struct Requirement {
  std::string_view field;
  std::span<const std::string_view> values;
  std::string_view lacks;      // what other values need, for the error
  std::string_view same_as{};  // a field of config.json
};

// Which layers have experts instead of one feed-forward block.
enum class SparseLayers : uint8_t {
  kAll,
  kEveryStep,    // each decoder_sparse_step-th layer, except those of mlp_only_layers
  kBehindFirst,  // those from first_k_dense_replace (ExpertRule::first_sparse) on
  kInterval,     // each moe_layer_interval-th one in [moe_layer_start_index, moe_layer_end_index]
  kListed,       // those that mlp_layer_types calls "sparse"; absent: all but the first one
  kListedOrBehindFirst,  // likewise; absent: as kBehindFirst
  kInterleaved,          // those of moe_layers; absent: each interleave_moe_layer_step-th
  kPeriod,               // those that mlp_layer_types calls "sparse"; absent: layer
                         // expert_layer_offset, and each expert_layer_period-th behind it
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
  bool one_is_none = false;        // where that is 0 or 1
  std::string_view num_chosen = "num_experts_per_tok";
  std::string_view ffn_size = "moe_intermediate_size";
  std::string_view shared_size{};   // of the shared expert,
  std::string_view num_shared{};    // or how many experts it is as large as
  std::string_view latent_size{};   // of a projection of the input that experts read; null: none
  std::string_view renormalize{};   // empty: as in `absent`
  std::string_view smallest_sum{};  // of weights that are renormalized
  std::string_view scale{};         // of the weights
  std::string_view logit_cap{};     // of the router's logits; 0: none
  std::string_view score_name{};    // "sigmoid", or "softmax" of those chosen; absent: this
  std::string_view scoring{};       // "sqrtsoftplus", "sigmoid" or "softmax"; absent: the first
  std::string_view combination{};   // with the shared expert: "average" or "sum"; absent: the first
  bool reads_groups = false;        // n_group, topk_group
  bool best_judges = false;         // groups only if topk_method says so, judged by their best one
  bool shared_gate = false;         // the shared expert is weighed by the sigmoid of a logit
  bool biases = false;              // of the router and of the experts
  bool clamped_swiglu = false;      // swiglu_alpha, swiglu_limit
  bool clamped_silu = false;        // swiglu_limit, absent: 10
  bool scales_inputs = false;       // the weights are of what experts read, not of what they give
  std::string_view first_sparse = "first_k_dense_replace";  // of kBehindFirst
  SparseLayers layers = SparseLayers::kAll;
  kernels::RouterScore score = kernels::RouterScore::kSoftmax;
  bool judges_logits = false;  // RouterRule
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
    int64_t num_dense = 0;     // of kEveryStep: the first ones are those of mlp_only_layers
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

// Whether each query attends to the keys that score best by an index (DeepSeek's sparse attention).
// The index reads what the queries of latent attention come from. Fields: index_topk,
// index_head_dim, index_n_heads.
struct KeyChoiceRule {
  bool exists = false;
  bool interleaved_rope = false;  // of the index, whatever that of the heads
  // Layers may share the choice of a layer in front of them: those that indexer_types calls
  // "shared" or whose letter of index_topk_pattern is S, else all but each index_topk_freq-th from
  // layer index_skip_topk_offset - 1 on.
  bool may_share = false;

  struct Absent {  // values of absent fields
    int64_t num_heads = 64;
    int64_t head_dim = 128;
    int64_t num_chosen = 2048;
  } absent{};
};

// Values of absent fields; 0 where config.json must give the number.
struct ArchDefaults {
  int64_t vocab_size = 0;
  int64_t ffn_size = 0;
  int64_t ffn_per_hidden = 0;  // in place of ffn_size: how many times hidden_size
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;  // 0: as many as attention heads
  int64_t head_dim = 0;             // 0: hidden_size / num_attention_heads
  int64_t value_head_dim = 0;       // at most head_dim; 0: that, and there is no field
  int64_t max_position_embeddings = 2048;
  int64_t trained_positions = 0;  // max_trained_positions; 0: the family has none
  int64_t type_vocab_size = 2;
  double norm_eps = 1e-6;
  double rope_theta = 1e4;
  double local_rope_theta = 1e4;
  double partial_rotary_factor = 1;
  int64_t rotary_dim = 0;  // in place of partial_rotary_factor: at most so many elements of a head
  std::string_view rope_parameters{};            // JSON; empty: rope_theta alone
  int64_t original_max_position_embeddings = 0;  // 0: what the rope's parameters say
  int64_t sliding_window = 0;
  int64_t max_window_layers = 28;
  int64_t sliding_window_pattern = 0;
  int64_t conv_width = 3;  // of short convolutions
  int64_t num_kv_shared_layers = 0;
  int64_t laurel_rank = 0;  // 0: the family has no LAuReL
  bool tie_word_embeddings = false;
  double attn_soft_cap = 0;   // 0: none
  double final_soft_cap = 0;  // 0: none
};

}  // namespace mlc_native
