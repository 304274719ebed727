// DraftHead guesses tokens with a model that is a draft head: one forward for each token of a
// draft, which reads the hidden state and the token of the forward before.
//
// A head with a StepQueue computes a draft without the host: the next forward is queued while the
// one before is in flight, and reads what that one draws and leaves on the device.
//
// The caller keeps the pages of the head's own keys and values. After a draft, those of positions
// behind the fed tokens are of guesses: feeding the tokens that were chosen overwrites them. Owned
// by one engine; its thread only.
#pragma once

#include <array>
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
  std::span<const int32_t> places;         // [next_tokens] of the states in the memory
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

  // Steps of the target whose states are on their way at once, if the head is on its device.
  static int64_t StepsInFlight(Model& head) {
    return head.step_queue() != nullptr ? StepQueue::kMaxInFlight : 1;
  }

  Model& model() { return *model_; }
  const DraftHeadInfo& info() const { return *model_->metadata().draft_head; }

  // As Model::Allocate, for at most max_num_sequences sequences at once.
  void Allocate(int64_t num_pages, int64_t max_num_rows, int64_t max_num_sequences);

  // Feeds the work of each sequence, whose states are in `states`, and returns its most likely next
  // tokens, in the ids of the target; the token of lowest id where several are most likely.
  // Repeating a call after an exception gives the same result. Requires: there is work, of at most
  // max_num_sequences sequences and max_num_rows tokens.
  std::vector<std::vector<int32_t>> Propose(std::span<const DraftWork> work,
                                            const StateMemory& states);

 private:
  using Drafts = std::vector<std::vector<int32_t>>;  // of each work
  // A forward: the work that each row of its logits is for.
  struct Round {
    std::vector<size_t> active;
    std::vector<int32_t> likely;  // as active, in the ids of the head; without a queue
  };

  Round& RoundOf(int64_t step) { return rounds_[static_cast<size_t>(step) % rounds_.size()]; }
  void Feed(std::span<const DraftWork> work, const StateMemory& states);
  // The next token of the drafts that are longer than `step`.
  void Continue(std::span<const DraftWork> work, int64_t step, const Drafts& drafts);
  // Computes the batch of a step, and with a queue leaves it in flight.
  void Submit(int64_t step, const DraftInput& input);
  // Appends the guesses of a step to the drafts.
  void Collect(int64_t step, Drafts* drafts);
  void Discard(int64_t num_in_flight) noexcept;

  std::unique_ptr<Model> model_;
  StepQueue* const queue_;  // the model's, or null
  GenerationConfig greedy_;
  std::array<Round, StepQueue::kMaxInFlight> rounds_;  // of the last steps

  // Of the forward being made.
  std::vector<int32_t> tokens_;
  std::vector<SequenceSlice> slices_;
  std::vector<int32_t> rows_;
  std::vector<int32_t> places_;
  std::vector<int32_t> own_rows_;
  std::vector<TokenRow> token_rows_;  // as rows_
  std::vector<DrawnToken> drawn_;
};

}  // namespace mlc_native
