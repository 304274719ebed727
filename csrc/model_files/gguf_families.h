// GgufFamily is how llama.cpp stores a family: the names of its keys and tensors, and what its
// converter does to the values. A table of rows. Immutable; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "mlc_native/detail/export.h"
#include "model_files/gguf_file.h"
#include "model_files/gguf_tensor_name.h"

namespace mlc_native {

// Values of the key expert_gating_func: how the scores of experts become weights.
enum class GgufGating : int64_t { kNone, kSoftmax, kSigmoid, kSoftmaxOfChosen };

// Where a family has Mamba-2, or Mamba-1.
enum class GgufMamba : uint8_t {
  kNone,
  kSomeLayers,        // those without KV heads, of which there is a list
  kBesideAttention,   // in all layers
  kSingleBlocks,      // in layers without KV heads and without a feed-forward block
  kAlone,             // in all layers, which have nothing else
  kScanAlone,         // likewise Mamba-1
  kScanInSomeLayers,  // Mamba-1, in those without KV heads, of which there is a list
};

// How a family reads the rows of an image.
enum class GgufImageRows : uint8_t {
  kAsTokens,
  kSections,   // positions of three numbers, each of which turns a section of the pairs of a head
  kInTurns,    // likewise, and they take turns
  kInOneStep,  // they see each other
};

struct GgufFamily {
  std::string_view name;          // general.architecture
  std::string_view architecture;  // of config.json
  // A row in front of another one of the same name: it is for files where this key is true.
  std::string_view where_true{};
  // Where the metadata has this key, other than 0, the architecture is another one.
  std::string_view variant_key{};
  std::string_view variant{};
  // The architecture where the scores of experts are sigmoids, which `gating` is not.
  std::string_view of_sigmoids{};
  // Likewise where queries are scaled by their positions.
  std::string_view of_scaled_queries{};
  std::string_view layers = "model.layers.";  // how tensors in layers begin in a folder
  // q, k and v are one tensor in a folder; here they are three, or one in another order.
  bool splits_qkv = false;
  // The rows of a head of q and k alternate between its halves, for a rotation of neighbours.
  bool interleaves_heads = false;
  bool is_latent = false;         // attention: the sizes of its heads have keys of their own
  bool chooses_keys = false;      // with latent attention: queries attend to chosen keys
  bool layers_differ = false;     // in their sizes (gguf_layer_sizes.h)
  bool has_streams = false;       // residual ones (gguf_streams.h)
  bool has_convolutions = false;  // in layers without KV heads, of which there is a list
  bool is_chunked = false;        // Llama 4 (WriteChunks)
  GgufMamba mamba = GgufMamba::kNone;
  GgufImageRows image_rows = GgufImageRows::kAsTokens;
  bool is_hybrid = false;  // most layers have linear attention
  // Likewise, those without KV heads, of which there is a list; each channel of the keys has a
  // decay of its own (Kimi Linear).
  bool decays_channels = false;
  bool lacks_ropes = false;             // whatever keys of ropes say
  bool tiles_value_heads = false;       // of linear attention: they have the order of TiledHeads
  bool adds_one_to_norms = false;       // they are stored as norm_weight_offset + weight
  bool truncates_yarn = true;           // what "truncate" of config.json says
  bool sees_both_directions = false;    // rows see those behind them
  bool is_encoder = false;              // gguf_encoders.h; `variant` is that with classes
  bool may_lack_windows = false;        // no layer has one, unless a key says how long it is
  bool sections_reorder_heads = false;  // q and k, where rope.dimension_sections is given
  std::string_view norm_eps = "attention.layer_norm_rms_epsilon";
  GgufGating gating = GgufGating::kNone;    // kNone: the family has no experts
  bool renormalizes = false;                // the weights of experts, unless a key says it
  std::span<const GgufTensorName> names{};  // that differ from those of other families
};

// Throws LoadError for a family that is not supported, and says which are.
MLC_NATIVE_PRIVATE_API const GgufFamily& FamilyOf(const GgufFile& file);

// Returns what `stored` is in the layers of a family, or outside of them; nullptr: nothing.
const GgufTensorName* FindGgufTensor(const GgufFamily& family, std::string_view stored);
const GgufTensorName* FindGgufTensorOutside(const GgufFamily& family, std::string_view stored);

}  // namespace mlc_native
