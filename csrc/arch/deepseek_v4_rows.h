// The row of arch_table.cc of DeepSeek V4: compressed attention, hyper-connections, and layers
// whose tokens have experts of their own. Names are those of the hub, which transformers writes,
// too.
#pragma once

#include "arch/tensor_names.h"

namespace mlc_native {

inline constexpr ProjectionName kV4Projections[] = {
    {"attn.wq_a", LinearRole::kQkv, Rows::kQueryLatent},
    {"attn.wkv", LinearRole::kQkv, Rows::kKv},
    {"attn.wq_b", LinearRole::kQueryUp, Rows::kQueryUp},
    {"attn.wo_a", LinearRole::kGroupOut, Rows::kGroupOut},
    {"attn.wo_b", LinearRole::kOut, Rows::kHidden},
    {"attn.compressor.wkv", LinearRole::kTokenRows, Rows::kEntryChannels},
    {"attn.compressor.wgate", LinearRole::kTokenRows, Rows::kEntryChannels},
    {"attn.indexer.compressor.wkv", LinearRole::kTokenRows, Rows::kIndexChannels},
    {"attn.indexer.compressor.wgate", LinearRole::kTokenRows, Rows::kIndexChannels},
    {"attn.indexer.wq_b", LinearRole::kIndexQueries, Rows::kIndexQueries},
    {"attn.indexer.weights_proj", LinearRole::kIndexWeights, Rows::kIndexWeights},
};
inline constexpr NormName kV4Norms[] = {
    {"attn_norm", NormRole::kPreAttention},
    {"ffn_norm", NormRole::kPreFfn},
    {"attn.q_norm", NormRole::kQ},
    {"attn.norm", NormRole::kK},
    {"", NormRole::kQueryHeads},
    {"attn.compressor.norm", NormRole::kEntries},
    {"attn.indexer.compressor.norm", NormRole::kIndexEntries},
};
inline constexpr VectorName kV4Vectors[] = {
    {"attn.attn_sink", VectorRole::kSinks},
    {"hc_attn_fn", VectorRole::kAttentionMix},
    {"hc_attn_base", VectorRole::kAttentionMixBase},
    {"hc_attn_scale", VectorRole::kAttentionMixScales},
    {"hc_ffn_fn", VectorRole::kFfnMix},
    {"hc_ffn_base", VectorRole::kFfnMixBase},
    {"hc_ffn_scale", VectorRole::kFfnMixScales},
    {"attn.compressor.ape", VectorRole::kEntryBias},
    {"attn.indexer.compressor.ape", VectorRole::kIndexEntryBias},
    {"ffn.gate.tid2eid", VectorRole::kTokenExperts},
};
inline constexpr ProjectionName kV4Experts[] = {
    {"ffn.gate", LinearRole::kRouter, Rows::kExperts},
    {"ffn.experts.#.w1", LinearRole::kExpertGateUp, Rows::kExpertFfn},
    {"ffn.experts.#.w3", LinearRole::kExpertGateUp, Rows::kExpertFfn},
    {"ffn.experts.#.w2", LinearRole::kExpertDown, Rows::kHidden},
    {"ffn.shared_experts.w1", LinearRole::kSharedGateUp, Rows::kSharedFfn},
    {"ffn.shared_experts.w3", LinearRole::kSharedGateUp, Rows::kSharedFfn},
    {"ffn.shared_experts.w2", LinearRole::kSharedDown, Rows::kHidden},
};
inline constexpr ExpertSpelling kV4Spellings[] = {{kV4Experts, "ffn.gate.bias"}};
// What transformers writes, and the hub's, which has no "model." in front of names.
inline constexpr std::string_view kV4Prefixes[] = {"", "model."};
inline constexpr std::string_view kV4Heads[] = {"head.weight", "lm_head.weight"};
inline constexpr OtherName kV4OtherNames[] = {
    {"embed_tokens.weight", "embed.weight"},
    {"hc_head.hc_", "hc_head_"},
};
// Layers that only draft.
inline constexpr std::string_view kV4Ignored[] = {"mtp.", "model.mtp."};
inline constexpr std::string_view kV4Silu[] = {"silu", "null"};
inline constexpr std::string_view kV4No[] = {"false", "null"};
inline constexpr Requirement kV4Requirements[] = {
    {"hidden_act", kV4Silu, "another activation"},
    {"attention_bias", kV4No, "biases"},
    {"mlp_bias", kV4No, "biases"},
};
inline constexpr ConfigFields::Spelling kV4Fields[] = {{"rotary_dim", "qk_rope_head_dim"}};

inline constexpr ArchSpec kDeepSeekV4Rows[] = {
    {.architecture = "DeepseekV4ForCausalLM",
     .projections = kV4Projections,
     .norms = kV4Norms,
     .names = {.prefixes = kV4Prefixes, .heads = kV4Heads},
     .other_names = kV4OtherNames,
     .ignored_prefixes = kV4Ignored,
     .requirements = kV4Requirements,
     .field_spellings = kV4Fields,
     .ffn_size_field = "moe_intermediate_size",
     .vectors = kV4Vectors,
     .qk_norm = QkNorm::kLatents,
     .reads_partial_rotary_factor = true,
     .interleaved_rope = true,
     .window_rule = WindowRule::kAllLayers,
     .experts = {.num_experts = "n_routed_experts",
                 .num_shared = "n_shared_experts",
                 .scale = "routed_scaling_factor",
                 .scoring = "scoring_func",
                 .clamped_silu = true,
                 .spellings = kV4Spellings,
                 .absent = {.num_experts = 256,
                            .num_chosen = 6,
                            .ffn_size = 2048,
                            .num_shared = 1,
                            .renormalize = true,
                            .scale = 1.5}},
     .has_compressed_attention = true,
     .defaults = {.vocab_size = 129280,
                  .ffn_size = 2048,
                  .num_attention_heads = 64,
                  .num_key_value_heads = 1,
                  .head_dim = 512,
                  .max_position_embeddings = 1048576,
                  .rotary_dim = 64,
                  .sliding_window = 128}},
};

}  // namespace mlc_native
