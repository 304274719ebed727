// Names of tensors of encoders, for the table of gguf_families.cc.
#pragma once

#include <string_view>

#include "model_files/gguf_tensor_name.h"

namespace mlc_native {

inline constexpr std::string_view kGgufBertName = "bert";
inline constexpr std::string_view kGgufModernBertName = "modern-bert";
inline constexpr std::string_view kGgufEuroBertName = "eurobert";
inline constexpr std::string_view kGgufNomicBertName = "nomic-bert";

// RoBERTa's tables of positions begin with that of the first token here, as BERT's do in folders,
// so all have BERT's names. A tensor with one row may be stored as a vector.
inline constexpr GgufTensorName kGgufBert[] = {
    {"token_embd", "bert.embeddings.word_embeddings"},
    {"position_embd", "bert.embeddings.position_embeddings"},
    {"token_types", "bert.embeddings.token_type_embeddings", true, 2},
    {"token_embd_norm", "bert.embeddings.LayerNorm"},
    {"cls", "bert.pooler.dense"},
    {"cls.output", "classifier", true, 2},
    {"attn_q", "attention.self.query"},
    {"attn_k", "attention.self.key"},
    {"attn_v", "attention.self.value"},
    {"attn_output", "attention.output.dense"},
    {"attn_output_norm", "attention.output.LayerNorm"},
    {"ffn_up", "intermediate.dense"},
    {"ffn_down", "output.dense"},
    {"layer_output_norm", "output.LayerNorm"},
};
inline constexpr GgufTensorName kGgufModernBert[] = {
    {"token_embd", "model.embeddings.tok_embeddings"},
    {"token_embd_norm", "model.embeddings.norm"},
    {"output_norm", "model.final_norm"},
    {"cls", "head.dense"},
    {"cls.norm", "head.norm"},
    {"cls.output", "classifier", true, 2},
    {"attn_norm", "attn_norm"},
    {"attn_qkv", "attn.Wqkv"},
    {"attn_output", "attn.Wo"},
    {"ffn_norm", "mlp_norm"},
    {"ffn_up", "mlp.Wi"},
    {"ffn_down", "mlp.Wo"},
};
inline constexpr GgufTensorName kGgufNomicBert[] = {
    {"token_embd", "embeddings.word_embeddings"},
    {"token_types", "embeddings.token_type_embeddings", true, 2},
    {"token_embd_norm", "emb_ln"},
    {"attn_qkv", "attn.Wqkv"},
    {"attn_output", "attn.out_proj"},
    {"attn_output_norm", "norm1"},
    {"ffn_gate", "mlp.fc12"},
    {"ffn_up", "mlp.fc11"},
    {"ffn_down", "mlp.fc2"},
    {"layer_output_norm", "norm2"},
};

}  // namespace mlc_native
