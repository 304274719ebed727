// The layouts of draft heads in checkpoints, as data: how the tensors are called, and what a head
// does with the token and the hidden states that it reads. A new layout is a row here.
//
// A head is one layer of a decoder behind an entry. The entry has a linear, `fuse`. Where attention
// reads both inputs (EAGLE-3), `fuse` maps the states of the target to one state, the layer's q, k
// and v read the embedding and the state, both normalized, and the residual is the state. In the
// other heads (EAGLE-1, MTP) `fuse` maps the embedding and the state to the residual.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "mlc_native/config.h"
#include "support/config_fields.h"

namespace mlc_native {

struct DraftLayout {
  std::string_view name;              // for messages
  SpeculativeMode mode{};             // that it is for
  std::string_view fuse;              // names without ".weight"; "": the head has no such norm
  std::string_view embedding_norm{};  // of the token's embedding
  std::string_view state_norm{};      // of the hidden state
  std::string_view layer;             // prefix of the tensors of the layer
  std::string_view final_norm{};
  bool has_attention_norm = false;  // the layer has a norm in front of attention
  bool joins_in_attention = false;  // as above
  bool states_first = false;        // the order of the two inputs
  bool feeds_back_norm = false;     // its own state is the final norm of its residual
  bool in_target_folder = false;    // has the target's config, embeddings and head
};

std::span<const DraftLayout> DraftLayouts();
std::string DraftLayoutList();  // "EAGLE-3 (midlayer), ..."

// The field of config.json with the streams that an EAGLE-3 head reads.
inline constexpr char kDraftStreamIds[] = "eagle_aux_hidden_state_layer_ids";
// True if a config.json is that of a draft head, which is no model of its own.
bool DescribesDraftHead(const ConfigFields& root);

// A head's entry in numbers.
struct DraftHeadConfig {
  const DraftLayout* layout = nullptr;  // static
  DraftHeadInfo info;
  int64_t target_hidden_size = 0;
  int64_t num_embeddings = 0;  // tokens of the target
  bool fuse_bias = false;
  bool norm_before_residual = false;  // the residual is the normalized state
  bool norm_before_fuse = false;      // a norm of all states of the target together
  bool norm_each_state = false;       // a norm of each of them

  int64_t num_target_states() const { return static_cast<int64_t>(info.target_streams.size()); }
};

}  // namespace mlc_native
