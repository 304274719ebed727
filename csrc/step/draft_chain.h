// DraftChain: a draft that the device computes without the host.
//
// Its first forward reads what is known of each sequence, and behind that all that a step in flight
// draws for it. The rows behind the token that follows the right guesses of that step are of no
// sequence. The guess is drawn behind that token, and each further forward reads the guess before.
// The guesses stay on the device. Used by drafters with a StepQueue; engine's thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mlc_native/model.h"

namespace mlc_native {

class DraftChain {
 public:
  struct Work {
    std::span<const int32_t> known;     // token ids of the first rows
    TokenBlock behind{};                // of the step in flight; none: only what is known is read
    std::span<const int32_t> places{};  // of a draft head: of the hidden state of each row
    int64_t position = 0;               // of the first row
    std::span<const int32_t> block_table{};  // covers all rows, and length - 1 more
    int64_t length = 0;                      // guesses; 0: the rows are only read
    int32_t first_guess = 0;                 // the place of the first guess

    int64_t num_rows() const { return std::ssize(known) + (behind ? behind.num_guesses + 1 : 0); }
  };

  DraftChain();

  // Queues the forwards of the work, of which there is some. `states` is null unless the queue is
  // that of a draft head. If it throws, guesses may be missing.
  void Run(StepQueue& queue, std::span<const Work> work, const StateMemory* states,
           TokenMemory* tokens);

 private:
  void Read(StepQueue& queue, std::span<const Work> work, const StateMemory* states);
  void Continue(StepQueue& queue, std::span<const Work* const> before, int64_t step, bool is_head);
  void Submit(StepQueue& queue, const DraftInput& draft);

  GenerationConfig greedy_;
  TokenMemory* tokens_ = nullptr;
  std::vector<const Work*> active_;  // those of the last forward's rows of logits

  // Of the forward being made.
  std::vector<int32_t> token_ids_;
  std::vector<SequenceSlice> slices_;
  std::vector<int32_t> logits_rows_;
  std::vector<int32_t> logits_behind_;
  std::vector<int32_t> state_places_;
  std::vector<int32_t> own_rows_;
  std::vector<int32_t> guesses_;  // places, as logits_rows_
  std::vector<TokenRow> token_rows_;
};

}  // namespace mlc_native
