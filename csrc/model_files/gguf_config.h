// What config.json and tokenizer_config.json of a model would say, made of the metadata of a GGUF
// file: the keys of llama.cpp under the names of transformers. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "model_files/gguf_file.h"

namespace mlc_native {

// How a family is stored.
struct GgufFamily {
  std::string_view name;          // general.architecture
  std::string_view architecture;  // of config.json
  // The rows of a head of q and k alternate between its halves, for a rotation of neighbours.
  bool interleaves_heads = false;
  // What two tensors of a layer are, which differ among families.
  std::string_view ffn_norm = "post_attention_layernorm";
  std::string_view ffn_up = "mlp.up_proj";
  bool has_experts = false;
  bool adds_one_to_norms = false;  // they are stored as norm_weight_offset + weight
};

// Throws LoadError for a family that is not supported, and says which are.
MLC_NATIVE_PRIVATE_API const GgufFamily& FamilyOf(const GgufFile& file);

std::string GgufConfigJson(const GgufFile& file);
std::string GgufTokenizerConfigJson(const GgufFile& file);

}  // namespace mlc_native
