// Names of tensors in GGUF files, for gguf_families.cc: of families with latent attention, and of
// those of which some layers have linear attention, short convolutions or Mamba-2. Tables;
// immutable, any thread.
#pragma once

#include <algorithm>
#include <array>
#include <iterator>

#include "model_files/gguf_tensor_name.h"

namespace mlc_native {

inline constexpr GgufTensorName kGgufLfm2[] = {
    {"attn_norm", "operator_norm"},
    {"attn_output", "self_attn.out_proj"},
    {"attn_q_norm", "self_attn.q_layernorm"},
    {"attn_k_norm", "self_attn.k_layernorm"},
    {"shortconv.in_proj", "conv.in_proj"},
    {"shortconv.conv", "conv.conv", true, 3, 1},
    {"shortconv.out_proj", "conv.out_proj"},
    {"ffn_norm", "ffn_norm"},
    {"ffn_gate", "feed_forward.w1"},
    {"ffn_up", "feed_forward.w3"},
    {"ffn_down", "feed_forward.w2"},
    {"ffn_gate_inp", "feed_forward.gate"},
    {"exp_probs_b", "feed_forward.expert_bias", false, 1},
    {"ffn_gate_exps", "feed_forward.experts.#.w1"},
    {"ffn_up_exps", "feed_forward.experts.#.w3"},
    {"ffn_down_exps", "feed_forward.experts.#.w2"},
};

// Linear attention, whose convolution lacks a dimension of size 1, experts as Qwen2 MoE's, and a
// layer that guesses as DeepSeek V3's. In the first files of Qwen3-Next, what makes queries, keys,
// values and gates is one tensor.
inline constexpr GgufTensorName kGgufDelta[] = {
    {"attn_qkv", "linear_attn.in_proj_qkv", true, 0, 0, GgufValueHeads::kRowsBehindKeys},
    {"attn_gate", "linear_attn.in_proj_z", true, 0, 0, GgufValueHeads::kRows},
    {"ssm_alpha", "linear_attn.in_proj_a", true, 0, 0, GgufValueHeads::kRows},
    {"ssm_beta", "linear_attn.in_proj_b", true, 0, 0, GgufValueHeads::kRows},
    {"ssm_in", "linear_attn.in_proj_qkvz"},
    {"ssm_ba", "linear_attn.in_proj_ba"},
    {"ssm_conv1d", "linear_attn.conv1d", true, 3, 1, GgufValueHeads::kRowsBehindKeys},
    {"ssm_a", "linear_attn.A_log", false, 0, 0, GgufValueHeads::kRows, true},
    {"ssm_dt", "linear_attn.dt_bias", false, 0, 0, GgufValueHeads::kRows},
    {"ssm_norm", "linear_attn.norm"},
    {"ssm_out", "linear_attn.out_proj", true, 0, 0, GgufValueHeads::kColumns},
    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate", true, 2},
    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
    {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
    {"nextn.eh_proj", "eh_proj"},
    {"nextn.enorm", "enorm"},
    {"nextn.hnorm", "hnorm"},
    {"nextn.shared_head_norm", "shared_head.norm"},
    {"nextn.embed_tokens", "embed_tokens"},
    {"nextn.shared_head_head", "shared_head.head"},
};
// Granite 4 H, and Bamba, which the same converter writes. Some vectors are columns, and a norm has
// a row for each group.
inline constexpr GgufTensorName kGgufMamba2[] = {
    {"ssm_in", "mamba.in_proj"},
    {"ssm_conv1d", "mamba.conv1d", true, 3, 1},
    {"ssm_a", "mamba.A_log", false, 1, 0, GgufValueHeads::kNone, true},
    {"ssm_dt", "mamba.dt_bias", false},
    {"ssm_d", "mamba.D", false, 1},
    {"ssm_norm", "mamba.norm", true, 1},
    {"ssm_out", "mamba.out_proj"},
};
inline constexpr GgufTensorName kGgufBambaAlone[] = {
    {"output_norm", "model.final_layernorm"}, {"ffn_norm", "pre_ff_layernorm"},
    {"ffn_gate", "feed_forward.gate_proj"},   {"ffn_up", "feed_forward.up_proj"},
    {"ffn_down", "feed_forward.down_proj"},
};
inline constexpr auto kGgufBamba = [] {
  std::array<GgufTensorName, std::size(kGgufMamba2) + std::size(kGgufBambaAlone)> names;
  std::ranges::copy(kGgufBambaAlone, std::ranges::copy(kGgufMamba2, names.begin()).out);
  return names;
}();

// What makes keys and values of latents is one tensor, or one for the keys of all heads, each
// transposed, and one for their values.
inline constexpr GgufTensorName kGgufLatent[] = {
    {"attn_q_a", "self_attn.q_a_proj"},
    {"attn_q_a_norm", "self_attn.q_a_layernorm"},
    {"attn_q_b", "self_attn.q_b_proj"},
    {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
    {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
    {"attn_kv_b", "self_attn.kv_b_proj"},
    {"attn_k_b", "self_attn.k_b_proj.#"},
    {"attn_v_b", "self_attn.v_b_proj.#"},
};

// Latent attention to chosen keys.
inline constexpr auto kGgufIndexed = [] {
  constexpr GgufTensorName kOfIndex[] = {
      {"indexer.attn_q_b", "self_attn.indexer.wq_b"},
      {"indexer.attn_k", "self_attn.indexer.wk"},
      {"indexer.proj", "self_attn.indexer.weights_proj"},
      {"indexer.k_norm", "self_attn.indexer.k_norm"},
  };
  std::array<GgufTensorName, std::size(kOfIndex) + std::size(kGgufLatent)> names;
  std::ranges::copy(kGgufLatent, std::ranges::copy(kOfIndex, names.begin()).out);
  return names;
}();

// Latent attention, and linear attention with a decay of each channel. Convolutions have further
// dimensions of size 1 in front, and A_log is a column.
inline constexpr GgufTensorName kGgufKimiDelta[] = {
    {"ssm_conv1d_q", "self_attn.q_conv1d", true, 3},
    {"ssm_conv1d_k", "self_attn.k_conv1d", true, 3},
    {"ssm_conv1d_v", "self_attn.v_conv1d", true, 3},
    {"ssm_f_a", "self_attn.f_a_proj"},
    {"ssm_f_b", "self_attn.f_b_proj"},
    {"ssm_g_a", "self_attn.g_a_proj"},
    {"ssm_g_b", "self_attn.g_b_proj"},
    {"ssm_beta", "self_attn.b_proj"},
    {"ssm_a", "self_attn.A_log", false, 1, 0, GgufValueHeads::kNone, true},
    {"ssm_dt", "self_attn.dt_bias", false},
    {"ssm_norm", "self_attn.o_norm"},
};
inline constexpr auto kGgufKimi = [] {
  std::array<GgufTensorName, std::size(kGgufKimiDelta) + std::size(kGgufLatent)> names;
  std::ranges::copy(kGgufLatent, std::ranges::copy(kGgufKimiDelta, names.begin()).out);
  return names;
}();

// Each layer is one block alone, whatever it is called "mixer", and has one norm: Nemotron-H, and
// Mamba 2, which has a part of them.
inline constexpr GgufTensorName kGgufSingleBlocks[] = {
    {"token_embd", "model.embeddings"},
    {"output_norm", "model.norm_f"},
    {"attn_norm", "norm"},
    {"attn_q", "mixer.q_proj"},
    {"attn_k", "mixer.k_proj"},
    {"attn_v", "mixer.v_proj"},
    {"attn_output", "mixer.o_proj"},
    {"ssm_in", "mixer.in_proj"},
    {"ssm_conv1d", "mixer.conv1d", true, 3, 1},
    {"ssm_a", "mixer.A_log", false, 1, 0, GgufValueHeads::kNone, true},
    {"ssm_dt", "mixer.dt_bias", false},
    {"ssm_d", "mixer.D", false, 1},
    {"ssm_norm", "mixer.norm", true, 1},
    {"ssm_out", "mixer.out_proj"},
    {"ffn_up", "mixer.up_proj"},
    {"ffn_down", "mixer.down_proj"},
    {"ffn_gate_inp", "mixer.gate"},
    {"exp_probs_b", "mixer.gate.e_score_correction_bias", false, 1},
    {"ffn_up_exps", "mixer.experts.#.up_proj"},
    {"ffn_down_exps", "mixer.experts.#.down_proj"},
    {"ffn_latent_down", "mixer.fc1_latent_proj"},
    {"ffn_latent_up", "mixer.fc2_latent_proj"},
    {"ffn_up_shexp", "mixer.shared_experts.up_proj"},
    {"ffn_down_shexp", "mixer.shared_experts.down_proj"},
};

// Mamba-1, alone or in some layers.
inline constexpr GgufTensorName kGgufMamba1[] = {
    {"token_embd", "model.embeddings"},
    {"output_norm", "model.norm_f"},
    {"attn_norm", "norm"},
    {"ssm_in", "mixer.in_proj"},
    {"ssm_conv1d", "mixer.conv1d", true, 3, 1},
    {"ssm_x", "mixer.x_proj"},
    {"ssm_dt", "mixer.dt_proj"},
    {"ssm_a", "mixer.A_log", false, 0, 0, GgufValueHeads::kNone, true},
    {"ssm_d", "mixer.D", false},
    {"ssm_out", "mixer.out_proj"},
};
inline constexpr GgufTensorName kGgufJamba[] = {
    {"output_norm", "model.final_layernorm"},
    {"ssm_in", "mamba.in_proj"},
    {"ssm_conv1d", "mamba.conv1d", true, 3, 1},
    {"ssm_x", "mamba.x_proj"},
    {"ssm_dt", "mamba.dt_proj"},
    {"ssm_a", "mamba.A_log", false, 0, 0, GgufValueHeads::kNone, true},
    {"ssm_d", "mamba.D", false},
    {"ssm_dt_norm", "mamba.dt_layernorm"},
    {"ssm_b_norm", "mamba.b_layernorm"},
    {"ssm_c_norm", "mamba.c_layernorm"},
    {"ssm_out", "mamba.out_proj"},
    {"ffn_norm", "pre_ff_layernorm"},
    {"ffn_gate", "feed_forward.gate_proj"},
    {"ffn_up", "feed_forward.up_proj"},
    {"ffn_down", "feed_forward.down_proj"},
    {"ffn_gate_inp", "feed_forward.router"},
    {"ffn_gate_exps", "feed_forward.experts.#.gate_proj"},
    {"ffn_up_exps", "feed_forward.experts.#.up_proj"},
    {"ffn_down_exps", "feed_forward.experts.#.down_proj"},
};

}  // namespace mlc_native
