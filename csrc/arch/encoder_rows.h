// Rows of arch_table.cc: encoders, whose rows see their whole text. They make embeddings and
// classify texts, and generate nothing: what fills masks in their checkpoints is not read.
#pragma once

#include "arch/tensor_names.h"

namespace mlc_native {

// ---- Names ----

inline constexpr std::string_view kBertPrefixes[] = {"bert.", ""};
inline constexpr std::string_view kRobertaPrefixes[] = {"roberta.", ""};
inline constexpr std::string_view kDistilBertPrefixes[] = {"distilbert.", ""};
inline constexpr std::string_view kMpnetPrefixes[] = {"mpnet.", ""};
inline constexpr std::string_view kDebertaPrefixes[] = {"deberta.", ""};
inline constexpr std::string_view kNoPrefix[] = {""};
inline constexpr std::string_view kNomicPrefixes[] = {"nomic_bert.", "bert.", ""};
inline constexpr std::string_view kGtePrefixes[] = {"gte.", "new.", ""};

constexpr TensorNames BertNames(std::span<const std::string_view> prefixes) {
  return {.prefixes = prefixes,
          .embeddings = "embeddings.word_embeddings.weight",
          .layer = "encoder.layer.",
          .final_norm = "output.LayerNorm",
          .embedding_norm = "embeddings.LayerNorm"};
}

inline constexpr ProjectionName kBertProjections[] = {
    {"attention.self.query", LinearRole::kQkv, Rows::kQ},
    {"attention.self.key", LinearRole::kQkv, Rows::kKv},
    {"attention.self.value", LinearRole::kQkv, Rows::kValues},
    {"attention.output.dense", LinearRole::kOut, Rows::kHidden},
    {"intermediate.dense", LinearRole::kGateUp, Rows::kFfn},
    {"output.dense", LinearRole::kDown, Rows::kHidden},
};
inline constexpr ProjectionName kDistilBertProjections[] = {
    {"attention.q_lin", LinearRole::kQkv, Rows::kQ},
    {"attention.k_lin", LinearRole::kQkv, Rows::kKv},
    {"attention.v_lin", LinearRole::kQkv, Rows::kValues},
    {"attention.out_lin", LinearRole::kOut, Rows::kHidden},
    {"ffn.lin1", LinearRole::kGateUp, Rows::kFfn},
    {"ffn.lin2", LinearRole::kDown, Rows::kHidden},
};
inline constexpr ProjectionName kMpnetProjections[] = {
    {"attention.attn.q", LinearRole::kQkv, Rows::kQ},
    {"attention.attn.k", LinearRole::kQkv, Rows::kKv},
    {"attention.attn.v", LinearRole::kQkv, Rows::kValues},
    {"attention.attn.o", LinearRole::kOut, Rows::kHidden},
    {"intermediate.dense", LinearRole::kGateUp, Rows::kFfn},
    {"output.dense", LinearRole::kDown, Rows::kHidden},
};
inline constexpr ProjectionName kDebertaProjections[] = {
    {"attention.self.query_proj", LinearRole::kQkv, Rows::kQ},
    {"attention.self.key_proj", LinearRole::kQkv, Rows::kKv},
    {"attention.self.value_proj", LinearRole::kQkv, Rows::kValues},
    {"attention.output.dense", LinearRole::kOut, Rows::kHidden},
    {"intermediate.dense", LinearRole::kGateUp, Rows::kFfn},
    {"output.dense", LinearRole::kDown, Rows::kHidden},
};
inline constexpr ProjectionName kT5Projections[] = {
    {"layer.0.SelfAttention.q", LinearRole::kQkv, Rows::kQ},
    {"layer.0.SelfAttention.k", LinearRole::kQkv, Rows::kKv},
    {"layer.0.SelfAttention.v", LinearRole::kQkv, Rows::kValues},
    {"layer.0.SelfAttention.o", LinearRole::kOut, Rows::kHidden},
    {"layer.1.DenseReluDense.wi", LinearRole::kGateUp, Rows::kFfn},
    {"layer.1.DenseReluDense.wo", LinearRole::kDown, Rows::kHidden},
};
inline constexpr ProjectionName kModernBertProjections[] = {
    {"attn.Wqkv", LinearRole::kQkv, Rows::kQkv},
    {"attn.Wo", LinearRole::kOut, Rows::kHidden},
    {"mlp.Wi", LinearRole::kGateUp, Rows::kGateUp},
    {"mlp.Wo", LinearRole::kDown, Rows::kHidden},
};
// transformers writes these names, too.
inline constexpr ProjectionName kNomicProjections[] = {
    {"attn.Wqkv", LinearRole::kQkv, Rows::kQkv},
    {"attn.out_proj", LinearRole::kOut, Rows::kHidden},
    {"mlp.fc12", LinearRole::kGateUp, Rows::kFfn},
    {"mlp.fc11", LinearRole::kGateUp, Rows::kFfn},
    {"mlp.fc2", LinearRole::kDown, Rows::kHidden},
};
inline constexpr ProjectionName kGteProjections[] = {
    {"attention.qkv_proj", LinearRole::kQkv, Rows::kQkv},
    {"attention.o_proj", LinearRole::kOut, Rows::kHidden},
    {"mlp.up_gate_proj", LinearRole::kGateUp, Rows::kUpGate, ".weight", ""},
    {"mlp.down_proj", LinearRole::kDown, Rows::kHidden},
};

inline constexpr NormName kBertNorms[] = {
    {"output.LayerNorm", NormRole::kPreAttention, ".weight", /*of_layer_before=*/true},
    {"attention.output.LayerNorm", NormRole::kPreFfn},
};
inline constexpr NormName kMpnetNorms[] = {
    {"output.LayerNorm", NormRole::kPreAttention, ".weight", /*of_layer_before=*/true},
    {"attention.LayerNorm", NormRole::kPreFfn},
};
inline constexpr NormName kT5Norms[] = {
    {"layer.0.layer_norm", NormRole::kPreAttention},
    {"layer.1.layer_norm", NormRole::kPreFfn},
};
inline constexpr NormName kDistilBertNorms[] = {
    {"output_layer_norm", NormRole::kPreAttention, ".weight", /*of_layer_before=*/true},
    {"sa_layer_norm", NormRole::kPreFfn},
};
inline constexpr NormName kModernBertNorms[] = {
    {"attn_norm", NormRole::kPreAttention},
    {"mlp_norm", NormRole::kPreFfn},
};
inline constexpr NormName kNomicNorms[] = {
    {"norm2", NormRole::kPreAttention, ".weight", /*of_layer_before=*/true},
    {"norm1", NormRole::kPreFfn},
};
inline constexpr NormName kGteNorms[] = {
    {"mlp_ln", NormRole::kPreAttention, ".weight", /*of_layer_before=*/true},
    {"attn_ln", NormRole::kPreFfn},
};

// Of checkpoints that TensorFlow has made.
inline constexpr OtherName kBertHub[] = {{"LayerNorm.weight", "LayerNorm.gamma"},
                                         {"LayerNorm.bias", "LayerNorm.beta"}};

inline constexpr ConfigFields::Spelling kDistilBertFields[] = {
    {"hidden_size", "dim"},
    {"intermediate_size", "hidden_dim"},
    {"num_hidden_layers", "n_layers"},
    {"num_attention_heads", "n_heads"},
    {"hidden_act", "activation"},
};
inline constexpr ConfigFields::Spelling kT5Fields[] = {
    {"hidden_size", "d_model"},           {"head_dim", "d_kv"},
    {"intermediate_size", "d_ff"},        {"num_hidden_layers", "num_layers"},
    {"num_attention_heads", "num_heads"}, {"max_position_embeddings", "n_positions"},
};
inline constexpr ConfigFields::Spelling kDebertaFields[] = {{"head_dim", "attention_head_size"}};
inline constexpr ConfigFields::Spelling kModernBertFields[] = {
    {"sliding_window", "local_attention"}};
// Those of the hub; transformers' own are as everywhere.
inline constexpr ConfigFields::Spelling kNomicFields[] = {
    {"hidden_size", "n_embd"},
    {"intermediate_size", "n_inner"},
    {"num_hidden_layers", "n_layer"},
    {"num_attention_heads", "n_head"},
    {"max_position_embeddings", "n_positions"},
    {"layer_norm_eps", "layer_norm_epsilon"},
};

inline constexpr std::string_view kAbsolutePositions[] = {"absolute", "null"};
inline constexpr std::string_view kRopePositions[] = {"rope", "null"};
inline constexpr std::string_view kNotAsDecoder[] = {"false", "null"};
inline constexpr std::string_view kRobertaPadding[] = {"1", "null"};
inline constexpr std::string_view kNoNumber[] = {"0", "null"};
inline constexpr std::string_view kNothing[] = {"null"};
inline constexpr std::string_view kSwiglu[] = {"swiglu", "null"};
inline constexpr Requirement kBertRequirements[] = {
    {"position_embedding_type", kAbsolutePositions, "attention biases by distance"},
    {"is_decoder", kNotAsDecoder, "attention to the tokens before alone"},
    {"add_cross_attention", kNotAsDecoder, "a second encoder"},
};
inline constexpr Requirement kRobertaRequirements[] = {
    {"position_embedding_type", kAbsolutePositions, "attention biases by distance"},
    {"is_decoder", kNotAsDecoder, "attention to the tokens before alone"},
    {"add_cross_attention", kNotAsDecoder, "a second encoder"},
    {"pad_token_id", kRobertaPadding, "another row of the first position"},
};
inline constexpr Requirement kModernBertRequirements[] = {
    {"norm_bias", kNotAsDecoder, "norms with biases"},
};
inline constexpr Requirement kGteRequirements[] = {
    {"position_embedding_type", kRopePositions, "other positions than those of a rope"},
    {"is_decoder", kNotAsDecoder, "attention to the tokens before alone"},
};
inline constexpr Requirement kNomicRequirements[] = {
    {"prenorm", kNotAsDecoder, "norms in front of blocks"},
    {"parallel_block", kNotAsDecoder, "blocks beside each other"},
    {"causal", kNotAsDecoder, "attention to the tokens before alone"},
    {"use_rms_norm", kNotAsDecoder, "RMSNorm"},
    {"activation_function", kSwiglu, "another feed-forward block"},
    {"rotary_emb_interleaved", kNotAsDecoder, "a rotation of neighbours"},
    {"rotary_emb_scale_base", kNothing, "a scale of queries and keys by position"},
    {"qkv_proj_bias", kNotAsDecoder, "biases"},
    {"mlp_fc1_bias", kNotAsDecoder, "biases"},
    {"mlp_fc2_bias", kNotAsDecoder, "biases"},
    {"moe_every_n_layers", kNoNumber, "experts"},
};

// transformers has as many buckets whatever the field says.
inline constexpr std::string_view kMpnetBuckets[] = {"32", "null"};
inline constexpr Requirement kMpnetRequirements[] = {
    {"relative_attention_num_buckets", kMpnetBuckets, "other buckets of distances"},
    {"pad_token_id", kRobertaPadding, "another row of the first position"},
};
inline constexpr std::string_view kOnlyTrue[] = {"true"};
inline constexpr std::string_view kOnlyFalse[] = {"false"};
inline constexpr Requirement kDebertaRequirements[] = {
    {"relative_attention", kOnlyTrue, "attention without distances"},
    {"position_biased_input", kOnlyFalse, "positions that are added to embeddings"},
    {"share_att_key", kOnlyTrue, "matrices for distances of their own"},
    {"conv_kernel_size", kNoNumber, "a convolution behind the first layer"},
    {"embedding_size", kNothing, "a matrix from embeddings to hidden states", "hidden_size"},
};
// What position_biased_input would add.
inline constexpr std::string_view kDebertaIgnored[] = {"deberta.embeddings.position_embeddings.",
                                                       "embeddings.position_embeddings."};
inline constexpr std::string_view kReluOnly[] = {"relu", "null"};
inline constexpr Requirement kT5Requirements[] = {
    {"feed_forward_proj", kReluOnly, "gates in feed-forward blocks"},
};
// The embeddings once more.
inline constexpr std::string_view kT5Ignored[] = {"encoder.embed_tokens."};

// ---- Rows ----

constexpr ArchSpec Bert(std::string_view architecture, std::span<const std::string_view> prefixes) {
  return {
      .architecture = architecture,
      .projections = kBertProjections,
      .norms = kBertNorms,
      .names = BertNames(prefixes),
      .other_names = kBertHub,
      .requirements = kBertRequirements,
      .positions = {.name = "embeddings.position_embeddings.weight"},
      .text_types = "embeddings.token_type_embeddings.weight",
      .norm_kind = NormKind::kLayer,
      .norm_eps_field = "layer_norm_eps",
      .norm_bias = true,
      .norms_give_residual = true,
      .qkv_bias = kAlways,
      .out_bias = kAlways,
      .ffn_bias = kAlways,
      .plain_ffn = true,
      .default_activation = "gelu",
      .is_encoder = true,
      .classifier = {.dense = "bert.pooler.dense", .activation = "Tanh"},
      .rope_rule = RopeRule::kNoLayer,
      .defaults = {.vocab_size = 30522,
                   .ffn_size = 3072,
                   .num_attention_heads = 12,
                   .max_position_embeddings = 512,
                   .norm_eps = 1e-12,
                   .tie_word_embeddings = true},
  };
}

// The positions of the first rows are of padding.
constexpr ArchSpec Roberta(std::string_view architecture) {
  ArchSpec spec = Bert(architecture, kRobertaPrefixes);
  spec.requirements = kRobertaRequirements;
  spec.positions.first = 2;
  spec.positions.is_counted = true;
  spec.classifier = {
      .dense = "classifier.dense", .activation = "Tanh", .classes = "classifier.out_proj"};
  spec.defaults.vocab_size = 50265;
  spec.defaults.max_position_embeddings = 510;
  return spec;
}

// Its layers share biases by distance.
constexpr ArchSpec Mpnet() {
  ArchSpec spec = Roberta("MPNetForMaskedLM");
  spec.projections = kMpnetProjections;
  spec.norms = kMpnetNorms;
  spec.names.prefixes = kMpnetPrefixes;
  spec.names.distances = "encoder.relative_attention_bias.weight";
  spec.other_names = {};
  spec.requirements = kMpnetRequirements;
  spec.text_types = "";
  spec.distance_rule = DistanceRule::kBuckets;
  spec.defaults.vocab_size = 30527;
  return spec;
}

// Its layers make vectors of the distances from a table that they share.
constexpr ArchSpec DebertaV2() {
  ArchSpec spec = Bert("DebertaV2ForMaskedLM", kDebertaPrefixes);
  spec.projections = kDebertaProjections;
  spec.names.distances = "encoder.rel_embeddings.weight";
  spec.names.distance_norm = "encoder.LayerNorm";
  spec.other_names = {};
  spec.ignored_prefixes = kDebertaIgnored;
  spec.requirements = kDebertaRequirements;
  spec.field_spellings = kDebertaFields;
  spec.positions = {};
  spec.may_lack_text_types = true;
  spec.classifier = {.dense = "pooler.dense", .activation_field = "pooler_hidden_act"};
  spec.distance_rule = DistanceRule::kVectors;
  spec.defaults.vocab_size = 128100;
  spec.defaults.ffn_size = 6144;
  spec.defaults.num_attention_heads = 24;
  spec.defaults.type_vocab_size = 0;
  spec.defaults.norm_eps = 1e-7;
  return spec;
}

// The encoder of a T5, which knows positions by biases alone.
constexpr ArchSpec T5() {
  return {
      .architecture = "T5EncoderModel",
      .projections = kT5Projections,
      .norms = kT5Norms,
      .names = {.prefixes = kNoPrefix,
                .embeddings = "shared.weight",
                .layer = "encoder.block.",
                .final_norm = "encoder.final_layer_norm",
                .distances =
                    "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"},
      .ignored_prefixes = kT5Ignored,
      .requirements = kT5Requirements,
      .field_spellings = kT5Fields,
      .norm_eps_field = "layer_norm_epsilon",
      .plain_ffn = true,
      .activation_field = "feed_forward_proj",
      .default_activation = "relu",
      .multipliers = {.plain_attention = true},
      .is_encoder = true,
      .distance_rule = DistanceRule::kBuckets,
      .rope_rule = RopeRule::kNoLayer,
      .defaults = {.vocab_size = 32128,
                   .ffn_size = 2048,
                   .num_attention_heads = 8,
                   .head_dim = 64,
                   .max_position_embeddings = 512,
                   .tie_word_embeddings = true},
  };
}

constexpr ArchSpec DistilBert() {
  ArchSpec spec = Bert("DistilBertForMaskedLM", kDistilBertPrefixes);
  spec.projections = kDistilBertProjections;
  spec.norms = kDistilBertNorms;
  spec.names.layer = "transformer.layer.";
  spec.names.final_norm = "output_layer_norm";
  spec.field_spellings = kDistilBertFields;
  spec.text_types = "";
  spec.norm_eps_field = "";
  spec.classifier = {.dense = "pre_classifier", .activation = "ReLU"};
  return spec;
}

// The layout is that of the hub, with its config.json or that of transformers.
constexpr ArchSpec NomicBert() {
  return {
      .architecture = "NomicBertForMaskedLM",
      .projections = kNomicProjections,
      .norms = kNomicNorms,
      .names = {.prefixes = kNomicPrefixes,
                .embeddings = "embeddings.word_embeddings.weight",
                .layer = "encoder.layers.",
                .final_norm = "norm2",
                .embedding_norm = "emb_ln"},
      .requirements = kNomicRequirements,
      .field_spellings = kNomicFields,
      .text_types = "embeddings.token_type_embeddings.weight",
      .norm_kind = NormKind::kLayer,
      .norm_eps_field = "layer_norm_eps",
      .norm_bias = true,
      .norms_give_residual = true,
      .rope_theta_field = "rotary_emb_base",
      .partial_rotary_field = "rotary_emb_fraction",
      .is_encoder = true,
      .classifier = {.dense = "nomic_bert.pooler.dense", .activation = "Tanh"},
      .defaults = {.vocab_size = 30528,
                   .ffn_size = 3072,
                   .num_attention_heads = 12,
                   .max_position_embeddings = 2048,
                   .trained_positions = 2048,
                   .norm_eps = 1e-12,
                   .rope_theta = 1e3,
                   .tie_word_embeddings = true},
  };
}

// As transformers writes it.
constexpr ArchSpec Gte() {
  ArchSpec spec = Bert("GteForMaskedLM", kGtePrefixes);
  spec.projections = kGteProjections;
  spec.norms = kGteNorms;
  spec.names.final_norm = "mlp_ln";
  spec.other_names = {};
  spec.requirements = kGteRequirements;
  spec.positions = {};
  spec.may_lack_text_types = true;
  spec.plain_ffn = false;
  spec.classifier.dense = "gte.pooler.dense";
  spec.rope_rule = RopeRule::kAllLayers;
  spec.defaults.vocab_size = 250048;
  spec.defaults.max_position_embeddings = 8192;
  spec.defaults.type_vocab_size = 1;
  spec.defaults.rope_theta = 1.6e5;
  return spec;
}

inline constexpr ArchSpec kEncoderRows[] = {
    Bert("BertForMaskedLM", kBertPrefixes),
    Roberta("RobertaForMaskedLM"),
    Roberta("XLMRobertaForMaskedLM"),
    Roberta("CamembertForMaskedLM"),
    DistilBert(),
    Mpnet(),
    DebertaV2(),
    T5(),
    NomicBert(),
    Gte(),
    {.architecture = "ModernBertForMaskedLM",
     .projections = kModernBertProjections,
     .norms = kModernBertNorms,
     .names = {.embeddings = "embeddings.tok_embeddings.weight",
               .final_norm = "final_norm",
               .embedding_norm = "embeddings.norm"},
     .requirements = kModernBertRequirements,
     .field_spellings = kModernBertFields,
     .norm_kind = NormKind::kLayer,
     .norm_eps_field = "norm_eps",
     .qkv_bias = kAttentionBias,
     .out_bias = kAttentionBias,
     .ffn_bias = kMlpBias,
     .activation_field = "hidden_activation",
     .default_activation = "gelu",
     .rope_theta_field = "global_rope_theta",
     .is_encoder = true,
     .classifier = {.dense = "head.dense",
                    .activation_field = "classifier_activation",
                    .norm = "head.norm",
                    .pooling_field = "classifier_pooling"},
     .window_rule = WindowRule::kEveryButFirstOfN,
     .window_pattern_field = "global_attn_every_n_layers",
     .local_rope = true,
     .local_rope_theta_field = "local_rope_theta",
     .defaults = {.vocab_size = 50368,
                  .ffn_size = 1152,
                  .num_attention_heads = 12,
                  .max_position_embeddings = 8192,
                  .norm_eps = 1e-5,
                  .rope_theta = 1.6e5,
                  .sliding_window = 128,
                  .sliding_window_pattern = 3,
                  .tie_word_embeddings = true}},
    {.architecture = "EuroBertForMaskedLM",
     .projections = kSeparateProjections,
     .norms = kPreNorms,
     .qkv_bias = kAttentionBias,
     .out_bias = kAttentionBias,
     .ffn_bias = kMlpBias,
     .is_encoder = true,
     .classifier = {.dense = "dense",
                    .activation = "GELU",
                    .pooling_field = "classifier_pooling",
                    .absent_pooling = "late"},
     .defaults = {.vocab_size = 128256,
                  .ffn_size = 3072,
                  .num_attention_heads = 12,
                  .max_position_embeddings = 8192,
                  .norm_eps = 1e-5}},
};

}  // namespace mlc_native
