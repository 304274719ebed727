// DraftHead guesses tokens with a model that is a draft head: one forward for each token of a
// draft, which reads the hidden state of the forward before.
//
// The caller keeps the pages of the head's own keys and values. After a draft, those of positions
// behind the fed tokens are of guesses: feeding the tokens that were chosen overwrites them. Owned
// by one engine; its thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "mlc_native/detail/export.h"
#include "mlc_native/model.h"

namespace mlc_native {

// What the target has computed of a sequence since the head saw it last: hidden states at
// consecutive positions, and after each of them the token that followed.
struct DraftWork {
  std::span<const int32_t> next_tokens;    // at positions position + 1, ...; at least one
  std::span<const float> states;           // [next_tokens, target_streams, hidden of the target]
  int64_t position = 0;                    // of the first state
  std::span<const int32_t> block_table{};  // covers position + next_tokens + length - 1 tokens
  int64_t length = 0;                      // tokens to guess; 0: the work is only fed
};

class MLC_NATIVE_PRIVATE_API DraftHead {
 public:
  // So many states of a sequence are fed together where it gets no guesses; fewer are kept.
  static constexpr int64_t kBulk = 16;

  // Requires: the metadata of the model has a draft_head.
  explicit DraftHead(std::unique_ptr<Model> model);

  Model& model() { return *model_; }
  const DraftHeadInfo& info() const { return *model_->metadata().draft_head; }

  // As Model::Allocate, for at most max_num_sequences sequences at once.
  void Allocate(int64_t num_pages, int64_t max_num_rows, int64_t max_num_sequences);

  // Feeds the work of each sequence and returns its most likely next tokens, in the ids of the
  // target; the token of lowest id where several are most likely. Repeating a call after an
  // exception gives the same result. Requires: there is work, of at most max_num_sequences
  // sequences and max_num_rows tokens.
  std::vector<std::vector<int32_t>> Propose(std::span<const DraftWork> work);

 private:
  using Drafts = std::vector<std::vector<int32_t>>;  // of each work

  void Feed(std::span<const DraftWork> work);
  void Continue(std::span<const DraftWork> work, int64_t step);
  void Forward(const DraftInput& input);
  // Finds the most likely tokens of the rows, on the device of the model if it has one.
  void Run(const ForwardBatch& batch);
  // Appends a guess to each active draft and keeps active those that are to be longer.
  void Guess(std::span<const DraftWork> work, Drafts* drafts);

  std::unique_ptr<Model> model_;
  GenerationConfig greedy_;

  std::vector<size_t> active_;  // indices of the work that is guessed for: one row of logits each

  // Of the forward being made.
  std::vector<int32_t> tokens_;
  std::vector<SequenceSlice> slices_;
  std::vector<int32_t> rows_;
  std::vector<TokenRow> token_rows_;  // as rows_
  std::vector<DrawnToken> drawn_;     // as rows_
  std::vector<int32_t> likely_;       // as rows_, in the ids of the head
  std::vector<float> target_states_;
  std::vector<float> own_states_;   // [active, hidden], of the latest forward
  std::vector<float> read_states_;  // those that the next forward reads
};

}  // namespace mlc_native
