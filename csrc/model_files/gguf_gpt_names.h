// Names of tensors of families from before Llama, for the table of gguf_families.cc.
#pragma once

#include "model_files/gguf_tensor_name.h"

namespace mlc_native {

inline constexpr GgufTensorName kGgufGpt[] = {
    {"token_embd", "transformer.wte"},
    {"position_embd", "transformer.wpe"},
    {"output_norm", "transformer.ln_f"},
    {"attn_norm", "ln_1"},
    {"attn_q", "attn.q_proj"},
    {"attn_k", "attn.k_proj"},
    {"attn_v", "attn.v_proj"},
    {"attn_output", "attn.c_proj"},
    {"ffn_norm", "ln_2"},
    {"ffn_up", "mlp.c_fc"},
    {"ffn_down", "mlp.c_proj"},
};
// Where a layer has two norms of its input, attn_norm is that of the feed-forward block.
inline constexpr GgufTensorName kGgufFalcon[] = {
    {"token_embd", "transformer.word_embeddings"},
    {"output_norm", "transformer.ln_f"},
    {"attn_norm", "input_layernorm"},
    {"attn_norm_2", "ln_attn"},
    {"attn_q", "self_attention.q_proj"},
    {"attn_k", "self_attention.k_proj"},
    {"attn_v", "self_attention.v_proj"},
    {"attn_output", "self_attention.dense"},
    {"ffn_up", "mlp.dense_h_to_4h"},
    {"ffn_down", "mlp.dense_4h_to_h"},
};
inline constexpr GgufTensorName kGgufBloom[] = {
    {"token_embd", "transformer.word_embeddings"},
    {"token_embd_norm", "transformer.word_embeddings_layernorm"},
    {"output_norm", "transformer.ln_f"},
    {"attn_q", "self_attention.q_proj"},
    {"attn_k", "self_attention.k_proj"},
    {"attn_v", "self_attention.v_proj"},
    {"attn_output", "self_attention.dense"},
    {"ffn_up", "mlp.dense_h_to_4h"},
    {"ffn_down", "mlp.dense_4h_to_h"},
};
inline constexpr GgufTensorName kGgufMpt[] = {
    {"token_embd", "transformer.wte"}, {"output_norm", "transformer.norm_f"},
    {"attn_norm", "norm_1"},           {"attn_qkv", "attn.Wqkv"},
    {"attn_output", "attn.out_proj"},  {"ffn_norm", "norm_2"},
    {"ffn_up", "ffn.up_proj"},         {"ffn_down", "ffn.down_proj"},
};
inline constexpr GgufTensorName kGgufGptNeoX[] = {
    {"token_embd", "gpt_neox.embed_in"},
    {"output_norm", "gpt_neox.final_layer_norm"},
    {"output", "embed_out"},
    {"attn_q", "attention.q_proj"},
    {"attn_k", "attention.k_proj"},
    {"attn_v", "attention.v_proj"},
    {"attn_output", "attention.dense"},
    {"ffn_up", "mlp.dense_h_to_4h"},
    {"ffn_down", "mlp.dense_4h_to_h"},
};

}  // namespace mlc_native
