// What the layers of a decoder have of their own, from the fields of its family: windows, ropes,
// sizes, and whose keys and values they read.
// A value; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arch/arch_spec.h"
#include "arch/rope.h"
#include "kernels/window.h"
#include "support/config_fields.h"

namespace mlc_native {

struct LayerConfig {
  static constexpr int kNoRope = -1;
  static constexpr int kOwnKv = -1;

  kernels::AttentionWindow window{};
  int rope = 0;  // index into ModelConfig::ropes, or kNoRope
  bool has_experts = false;
  // Mostly both; a layer that is one block alone has one of them.
  bool has_attention = true;  // or what is in its place
  bool has_ffn = true;        // a feed-forward block or experts
  // It has a state in place of keys and values: linear attention, a short convolution or Mamba.
  bool is_recurrent = false;
  bool attends_beside = false;  // it has a state beside keys and values instead
  // Sizes of its own; 0: those of ModelConfig.
  int64_t own_heads = 0;  // of queries
  int64_t own_head_dim = 0;
  int64_t own_kv_heads = 0;
  int64_t own_ffn_size = 0;
  // A layer in front of it whose keys and values it reads, or kOwnKv.
  int kv_source = kOwnKv;
  bool keys_are_values = false;  // one projection gives both
  // Of the gates of its feed-forward block, what lies so many standard deviations above their mean
  // is subtracted from all of them, and what is below zero then is zero.
  std::optional<float> gate_cut{};
  // Where queries attend to chosen keys: the layer chooses them, and else takes the choice of the
  // last layer in front of it that does.
  bool chooses_keys = false;
  // Of compressed attention: so many tokens become an entry, which later rows see; 0: none do.
  int64_t tokens_per_entry = 0;
  bool chooses_entries = false;    // rows see those that an index scores best; entries overlap
  bool has_token_experts = false;  // each token has experts of its own, in place of a choice

  bool reads_other_kv() const { return kv_source != kOwnKv; }
  // A feed-forward block that every row passes.
  bool has_dense_ffn() const { return has_ffn && !has_experts; }
  bool attends() const { return has_attention && (!is_recurrent || attends_beside); }
  bool has_own_kv() const { return attends() && !reads_other_kv(); }
  // Whether all that is computed is as in a layer that says nothing of its own.
  bool has_usual_sizes() const {
    return own_heads == 0 && own_head_dim == 0 && own_kv_heads == 0 && own_ffn_size == 0 &&
           !reads_other_kv() && !keys_are_values;
  }
};

// Sets the windows and ropes of layers. Throws LoadError.
void ReadLayers(const ConfigFields& fields, const ArchSpec& arch, std::vector<LayerConfig>& layers);

// Which layers have this type instead of full attention or one of `others`, by layer_types. Throws
// LoadError.
std::vector<bool> LayersOfType(const ConfigFields& fields, size_t num_layers,
                               const std::string& wanted,
                               std::span<const std::string_view> others = {});

// Says which layers have linear attention, in a family with such ones. Throws LoadError.
void ReadRecurrentLayers(const ConfigFields& fields, std::vector<LayerConfig>& layers);

// Likewise that all layers have a state but those that the field lists, if it is there.
void ReadAttendingLayers(const ConfigFields& fields, const char* field,
                         std::vector<LayerConfig>& layers);

// Where layer_rope_theta gives each layer a base of its own, replaces the rope by one for each
// base. A layer whose base is 0 has none.
void ReadLayerThetas(const ConfigFields& fields, std::vector<RopeConfig>& ropes,
                     std::vector<LayerConfig>& layers);

}  // namespace mlc_native
