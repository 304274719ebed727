// Rows of arch_table.cc: families from before Llama, with LayerNorm, biases and a feed-forward
// block without a gate. Some have learned positions in place of rope, and most have names of their
// own for the fields of config.json.
#pragma once

#include "arch/dense_rows.h"
#include "arch/tensor_names.h"

namespace mlc_native {

// ---- Names ----

inline constexpr ConfigFields::Spelling kGptFields[] = {
    {"hidden_size", "n_embd"},
    {"intermediate_size", "n_inner"},
    {"num_attention_heads", "n_head"},
    {"num_hidden_layers", "n_layer"},
    {"max_position_embeddings", "n_positions"},
};
inline constexpr ConfigFields::Spelling kGptNeoFields[] = {
    {"num_attention_heads", "num_heads"},
    {"num_hidden_layers", "num_layers"},
    {"sliding_window", "window_size"},
};
inline constexpr ConfigFields::Spelling kFalconFields[] = {
    {"intermediate_size", "ffn_hidden_size"}, {"num_attention_heads", "n_head"},
    {"num_hidden_layers", "n_layer"},         {"num_key_value_heads", "num_kv_heads"},
    {"num_key_value_heads", "n_head_kv"},
};
inline constexpr ConfigFields::Spelling kOptFields[] = {{"intermediate_size", "ffn_dim"}};

inline constexpr ConfigFields::Spelling kBloomFields[] = {
    {"hidden_size", "n_embed"},
    {"num_attention_heads", "n_head"},
    {"num_hidden_layers", "n_layer"},
    {"max_position_embeddings", "seq_length"},
};
inline constexpr ConfigFields::Spelling kMptFields[] = {
    {"hidden_size", "d_model"},
    {"num_attention_heads", "n_heads"},
    {"num_hidden_layers", "n_layers"},
    {"max_position_embeddings", "max_seq_len"},
};

inline constexpr std::string_view kTransformerPrefixes[] = {"transformer.", ""};
inline constexpr std::string_view kOptPrefixes[] = {"model.decoder.", "decoder."};
inline constexpr TensorNames kGptNames = {.prefixes = kTransformerPrefixes,
                                          .embeddings = "wte.weight",
                                          .layer = "h.",
                                          .final_norm = "ln_f"};

inline constexpr NormName kGptNorms[] = {
    {"ln_1", NormRole::kPreAttention},
    {"ln_2", NormRole::kPreFfn},
};
inline constexpr NormName kFirstGptNorm[] = {{"ln_1", NormRole::kPreAttention}};
inline constexpr NormName kMptNorms[] = {
    {"norm_1", NormRole::kPreAttention},
    {"norm_2", NormRole::kPreFfn},
};
inline constexpr NormName kOptNorms[] = {
    {"self_attn_layer_norm", NormRole::kPreAttention},
    {"final_layer_norm", NormRole::kPreFfn},
};

constexpr ProjectionName Transposed(ProjectionName name) {
  name.transposed = true;
  return name;
}
inline constexpr ProjectionName kGpt2Projections[] = {
    Transposed({"attn.c_attn", LinearRole::kQkv, Rows::kQkv}),
    Transposed({"attn.c_proj", LinearRole::kOut, Rows::kHidden}),
    Transposed({"mlp.c_fc", LinearRole::kGateUp, Rows::kFfn}),
    Transposed({"mlp.c_proj", LinearRole::kDown, Rows::kHidden}),
};
inline constexpr ProjectionName kSeparateGptQkv[] = {
    {"attn.q_proj", LinearRole::kQkv, Rows::kQ},
    {"attn.k_proj", LinearRole::kQkv, Rows::kKv},
    {"attn.v_proj", LinearRole::kQkv, Rows::kValues},
};
inline constexpr ProjectionName kFusedGptQkv[] = {
    {"attn.c_attn", LinearRole::kQkv, Rows::kQkvOfGroups}};
inline constexpr ProjectionName kBehindGptQkv[] = {
    {"attn.c_proj", LinearRole::kOut, Rows::kHidden},
    {"mlp.c_fc", LinearRole::kGateUp, Rows::kFfn},
    {"mlp.c_proj", LinearRole::kDown, Rows::kHidden},
};
inline constexpr auto kBigCodeProjections = Join(kFusedGptQkv, kBehindGptQkv);
inline constexpr ProjectionName kGptNeoProjections[] = {
    {"attn.attention.q_proj", LinearRole::kQkv, Rows::kQ},
    {"attn.attention.k_proj", LinearRole::kQkv, Rows::kKv},
    {"attn.attention.v_proj", LinearRole::kQkv, Rows::kValues},
    {"attn.attention.out_proj", LinearRole::kOut, Rows::kHidden},
    {"mlp.c_fc", LinearRole::kGateUp, Rows::kFfn},
    {"mlp.c_proj", LinearRole::kDown, Rows::kHidden},
};
inline constexpr auto kSplitGptProjections = Join(kSeparateGptQkv, kBehindGptQkv);

inline constexpr ProjectionName kFusedFalconQkv[] = {
    {"self_attention.query_key_value", LinearRole::kQkv, Rows::kQkvOfGroups}};
inline constexpr ProjectionName kSeparateFalconQkv[] = {
    {"self_attention.q_proj", LinearRole::kQkv, Rows::kQ},
    {"self_attention.k_proj", LinearRole::kQkv, Rows::kKv},
    {"self_attention.v_proj", LinearRole::kQkv, Rows::kValues},
};
inline constexpr ProjectionName kBehindFalconQkv[] = {
    {"self_attention.dense", LinearRole::kOut, Rows::kHidden},
    {"mlp.dense_h_to_4h", LinearRole::kGateUp, Rows::kFfn},
    {"mlp.dense_4h_to_h", LinearRole::kDown, Rows::kHidden},
};
inline constexpr auto kFalconProjections = Join(kFusedFalconQkv, kBehindFalconQkv);
inline constexpr auto kSplitFalconProjections = Join(kSeparateFalconQkv, kBehindFalconQkv);

inline constexpr ProjectionName kFusedCodeGenQkv[] = {
    {"attn.qkv_proj", LinearRole::kQkv, Rows::kQvkOfFour}};
inline constexpr ProjectionName kBehindGptJQkv[] = {
    {"attn.out_proj", LinearRole::kOut, Rows::kHidden},
    {"mlp.fc_in", LinearRole::kGateUp, Rows::kFfn},
    {"mlp.fc_out", LinearRole::kDown, Rows::kHidden},
};
inline constexpr auto kGptJProjections = Join(kSeparateGptQkv, kBehindGptJQkv);
inline constexpr auto kCodeGenProjections = Join(kFusedCodeGenQkv, kBehindGptJQkv);

inline constexpr ProjectionName kBehindOptQkv[] = {
    {"self_attn.out_proj", LinearRole::kOut, Rows::kHidden},
    {"fc1", LinearRole::kGateUp, Rows::kFfn},
    {"fc2", LinearRole::kDown, Rows::kHidden},
};
inline constexpr auto kOptProjections = Join(kSeparateQkv, kBehindOptQkv);

inline constexpr ProjectionName kMptProjections[] = {
    {"attn.Wqkv", LinearRole::kQkv, Rows::kQkv},
    {"attn.out_proj", LinearRole::kOut, Rows::kHidden},
    {"ffn.up_proj", LinearRole::kGateUp, Rows::kFfn},
    {"ffn.down_proj", LinearRole::kDown, Rows::kHidden},
};

inline constexpr std::string_view kNoOrAbsent[] = {"false", "null"};
inline constexpr std::string_view kYesOrAbsent[] = {"true", "null"};
inline constexpr std::string_view kAbsentOnly[] = {"null"};
inline constexpr Requirement kGptRequirements[] = {
    {"scale_attn_weights", kYesOrAbsent, "scores that are not scaled"},
    {"scale_attn_by_inverse_layer_idx", kNoOrAbsent, "scores that are scaled by their layer"},
    {"add_cross_attention", kNoOrAbsent, "an encoder"},
};
inline constexpr Requirement kOptRequirements[] = {
    {"do_layer_norm_before", kYesOrAbsent, "norms of the residual behind the blocks"},
    {"_remove_final_layer_norm", kNoOrAbsent, "logits without a norm"},
    {"layer_norm_elementwise_affine", kYesOrAbsent, "norms without weights"},
    {"word_embed_proj_dim", kAbsentOnly, "projections of the embeddings", "hidden_size"},
};
inline constexpr Requirement kFalconRequirements[] = {
    {"alibi", kNoOrAbsent, "attention biases by distance that are rounded to bfloat16"},
};
inline constexpr Requirement kBloomRequirements[] = {
    {"apply_residual_connection_post_layernorm", kNoOrAbsent, "norms that give the residual"},
};
inline constexpr std::string_view kMultiHead[] = {"multihead_attention", "null"};
inline constexpr std::string_view kFourfold[] = {"4", "null"};
inline constexpr Requirement kMptRequirements[] = {
    {"alibi", kYesOrAbsent, "learned positions"},
    {"attn_type", kMultiHead, "another kind of attention"},
    {"qk_ln", kNoOrAbsent, "norms of q and k"},
    {"prefix_lm", kNoOrAbsent, "attention in both directions over prompts"},
    {"no_bias", kYesOrAbsent, "biases"},
    {"expansion_ratio", kFourfold, "feed-forward blocks of another size"},
    {"logit_scale", kAbsentOnly, "a scale of the logits"},
};

// ---- Rows ----

constexpr ArchSpec OfGpts(std::string_view architecture) {
  return {
      .architecture = architecture,
      .projections = kGpt2Projections,
      .norms = kGptNorms,
      .names = kGptNames,
      .field_spellings = kGptFields,
      .norm_kind = NormKind::kLayer,
      .norm_eps_field = "layer_norm_epsilon",
      .norm_bias = true,
      .ffn_bias = kAlways,
      .plain_ffn = true,
      .activation_field = "activation_function",
      .default_activation = "gelu_new",
      .defaults = {.ffn_per_hidden = 4, .norm_eps = 1e-5},
  };
}

constexpr ArchSpec Gpt2() {
  ArchSpec spec = OfGpts("GPT2LMHeadModel");
  spec.split_projections = kSplitGptProjections;
  spec.requirements = kGptRequirements;
  spec.positions = {.name = "wpe.weight"};
  spec.qkv_bias = kAlways;
  spec.out_bias = kAlways;
  spec.rope_rule = RopeRule::kNoLayer;
  spec.defaults.vocab_size = 50257;
  spec.defaults.num_attention_heads = 12;
  spec.defaults.max_position_embeddings = 1024;
  spec.defaults.tie_word_embeddings = true;
  return spec;
}

constexpr ArchSpec GptBigCode() {
  ArchSpec spec = Gpt2();
  spec.architecture = "GPTBigCodeForCausalLM";
  spec.projections = kBigCodeProjections;
  spec.reads_multi_query = true;
  spec.default_activation = "gelu_pytorch_tanh";
  return spec;
}

constexpr ArchSpec GptNeo() {
  ArchSpec spec = OfGpts("GPTNeoForCausalLM");
  spec.field_spellings = kGptNeoFields;
  spec.projections = kGptNeoProjections;
  spec.positions = {.name = "wpe.weight"};
  spec.out_bias = kAlways;
  spec.multipliers = {.plain_attention = true};
  spec.window_rule = WindowRule::kLocal;
  spec.rope_rule = RopeRule::kNoLayer;
  spec.defaults.vocab_size = 50257;
  spec.defaults.num_attention_heads = 16;
  spec.defaults.sliding_window = 256;
  spec.defaults.tie_word_embeddings = true;
  return spec;
}

constexpr ArchSpec GptJ(std::string_view architecture,
                        std::span<const ProjectionName> projections) {
  ArchSpec spec = OfGpts(architecture);
  spec.projections = projections;
  spec.norms = kFirstGptNorm;
  spec.head_bias = kAlways;
  spec.parallel_blocks = kAlways;
  spec.reads_partial_rotary_factor = true;
  spec.interleaved_rope = true;
  spec.defaults.vocab_size = 50400;
  spec.defaults.rotary_dim = 64;
  spec.defaults.num_attention_heads = 16;
  return spec;
}

// The embeddings have a norm, and each head adds a slope times the distance to its scores.
constexpr ArchSpec Bloom() {
  ArchSpec spec = OfGpts("BloomForCausalLM");
  spec.projections = kFalconProjections;
  spec.split_projections = kSplitFalconProjections;
  spec.norms = kPreNorms;
  spec.names = {.prefixes = kTransformerPrefixes,
                .embeddings = "word_embeddings.weight",
                .layer = "h.",
                .final_norm = "ln_f",
                .embedding_norm = "word_embeddings_layernorm"};
  spec.requirements = kBloomRequirements;
  spec.field_spellings = kBloomFields;
  spec.has_norm_before_layers = true;
  spec.qkv_bias = kAlways;
  spec.out_bias = kAlways;
  spec.activation_field = "activation";
  spec.default_activation = "gelu_pytorch_tanh";
  spec.distance_rule = DistanceRule::kAlibi;
  spec.rope_rule = RopeRule::kNoLayer;
  spec.defaults.vocab_size = 250880;
  spec.defaults.num_attention_heads = 8;
  spec.defaults.tie_word_embeddings = true;
  return spec;
}

constexpr ArchSpec Mpt(std::string_view architecture) {
  ArchSpec spec = OfGpts(architecture);
  spec.attention_section = "attn_config";
  spec.projections = kMptProjections;
  spec.norms = kMptNorms;
  spec.names.layer = "blocks.";
  spec.names.final_norm = "norm_f";
  spec.requirements = kMptRequirements;
  spec.field_spellings = kMptFields;
  spec.norm_bias = false;
  spec.ffn_bias = {};
  spec.multipliers = {.attention = "softmax_scale", .attention_by_head = true};
  spec.activation_field = "activation";
  spec.default_activation = "gelu";
  spec.distance_rule = DistanceRule::kAlibi;
  spec.rope_rule = RopeRule::kNoLayer;
  spec.defaults.vocab_size = 50368;
  spec.defaults.num_attention_heads = 16;
  spec.defaults.tie_word_embeddings = true;
  return spec;
}

inline constexpr ArchSpec kGptRows[] = {
    Gpt2(),
    GptBigCode(),
    GptNeo(),
    GptJ("GPTJForCausalLM", kGptJProjections),
    GptJ("CodeGenForCausalLM", kCodeGenProjections),
    Bloom(),
    Mpt("MptForCausalLM"),
    Mpt("MPTForCausalLM"),
    {.architecture = "OPTForCausalLM",
     .projections = kOptProjections,
     .norms = kOptNorms,
     .names = {.prefixes = kOptPrefixes, .final_norm = "final_layer_norm"},
     .requirements = kOptRequirements,
     .field_spellings = kOptFields,
     .positions = {.name = "embed_positions.weight", .first = 2},
     .norm_kind = NormKind::kLayer,
     .norm_eps_field = "",
     .norm_bias = true,
     .qkv_bias = {.field = "enable_bias", .absent = true},
     .out_bias = {.field = "enable_bias", .absent = true},
     .ffn_bias = {.field = "enable_bias", .absent = true},
     .plain_ffn = true,
     .activation_field = "activation_function",
     .default_activation = "relu",
     .rope_rule = RopeRule::kNoLayer,
     .defaults = {.vocab_size = 50272,
                  .ffn_size = 3072,
                  .num_attention_heads = 12,
                  .norm_eps = 1e-5,
                  .tie_word_embeddings = true}},
    {.architecture = "FalconForCausalLM",
     .projections = kFalconProjections,
     .split_projections = kSplitFalconProjections,
     .norms = kPreNorms,
     .names = {.prefixes = kTransformerPrefixes,
               .embeddings = "word_embeddings.weight",
               .layer = "h.",
               .final_norm = "ln_f"},
     .requirements = kFalconRequirements,
     .field_spellings = kFalconFields,
     .reads_multi_query = true,
     .norm_kind = NormKind::kLayer,
     .norm_eps_field = "layer_norm_epsilon",
     .norm_bias = true,
     .qkv_bias = {.field = "bias"},
     .out_bias = {.field = "bias"},
     .ffn_bias = {.field = "bias"},
     .plain_ffn = true,
     .parallel_blocks = {.field = "parallel_attn", .absent = true},
     .has_parallel_norms = true,
     .is_falcon = true,
     .activation_field = "activation",
     .default_activation = "gelu",
     .defaults = {.vocab_size = 65024,
                  .ffn_per_hidden = 4,
                  .num_attention_heads = 71,
                  .norm_eps = 1e-5,
                  .tie_word_embeddings = true}},
};

}  // namespace mlc_native
