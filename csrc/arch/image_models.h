// Models that see images and whose text model is one of another family, which the model_type of
// their text_config names. Their text model runs. Static tables; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace mlc_native {

// What holds where a text_config lacks the sizes, because transformers leaves its defaults out of
// the file; 0 where config.json must give the number.
struct TextSizes {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t ffn_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
};

// A family whose decoder is the text model of others.
struct TextFamily {
  std::string_view model_type;
  std::string_view architecture;  // of its row in arch_table.cc
  TextSizes sizes;
};

struct ImageModel {
  std::string_view architecture;
  std::string_view text_model_type;  // where text_config has none
  // Whether the head is that of the text's family, which may scale or cap the logits or have a
  // bias; else it only multiplies.
  bool has_head_of_text = false;
};

inline constexpr std::string_view kTextSection = "text_config";

std::span<const ImageModel> ImageModels();
const ImageModel* FindImageModel(std::string_view architecture);  // nullptr: none of them
// Names of tensors of such a model that are no part of its text model begin with these.
std::span<const std::string_view> PartsForImages();

const TextFamily* FindTextFamily(std::string_view model_type);  // nullptr: not supported
std::string TextFamilyList();                                   // "llama, ..."

}  // namespace mlc_native
