// The layouts of draft heads in checkpoints, as data: how the tensors are called, and what a head
// does with the token and the hidden states that it reads. A new layout is a row here.
//
// A head is one layer of a decoder behind an entry. The entry has a linear, `fuse`. Where attention
// reads both inputs (EAGLE-3), `fuse` maps the states of the target to one state, the layer's q, k
// and v read the embedding and the state, both normalized, and the residual is the state. In the
// other heads (EAGLE-1, MTP) `fuse` maps the embedding and the state to the residual.
//
// Medusa has no such layer: its guess k is that of its own head k, some blocks x + silu(linear(x))
// and a matrix of logits, all of which read the same state.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "mlc_native/config.h"
#include "support/config_fields.h"

namespace mlc_native {

// Names are without ".weight", and "" where a head has no such tensor. "#" stands for a number: the
// number of layers of the target, or what is said below.
struct DraftLayout {
  std::string_view name;   // for messages
  SpeculativeMode mode{};  // that it is for
  std::string_view fuse{};
  std::string_view embedding_norm{};  // of the token's embedding
  std::string_view state_norm{};      // of the hidden state
  std::string_view layer{};           // prefix of the tensors of the layer
  std::string_view final_norm{};
  std::string_view medusa_block{};  // #: which head, which of its blocks
  std::string_view medusa_head{};   // the matrix; #: which head, the number of its blocks
  // Of a head that is in the folder of its target and has the target's config, embeddings and head:
  // a prefix of all tensors of such heads.
  std::string_view in_target{};
  bool has_attention_norm = false;  // the layer has a norm in front of attention
  bool joins_in_attention = false;  // as above
  bool states_first = false;        // the order of the two inputs
  bool feeds_back_norm = false;     // its own state is the final norm of its residual
};

// The name with the numbers in place of "#", as many as it has.
std::string NumberedName(std::string_view name, std::initializer_list<int64_t> numbers);

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
  int64_t num_target_layers = 0;
  int64_t target_hidden_size = 0;
  int64_t num_embeddings = 0;  // tokens of the target
  bool fuse_bias = false;
  bool norm_before_residual = false;  // the residual is the normalized state
  bool norm_before_fuse = false;      // a norm of all states of the target together
  bool norm_each_state = false;       // a norm of each of them
  // Of Medusa; info.max_length is the number of its heads.
  int64_t medusa_blocks = 0;        // of each head
  bool medusa_bias = false;         // of the blocks
  bool medusa_shares_head = false;  // all heads have one matrix

  int64_t num_target_states() const { return static_cast<int64_t>(info.target_streams.size()); }
  std::string Name(std::string_view name) const { return NumberedName(name, {num_target_layers}); }
};

}  // namespace mlc_native
