// DraftModel: a smaller model that guesses the next tokens of running sequences.
//
// It has pages of its own, as many as its Model was allocated with, and keeps what it has computed
// in a prefix cache of its own: a conversation that goes on finds there what the draft model knows
// of it. The pages of a sequence never depend on those of the target. A sequence whose tokens are
// not in its cache yet is prefilled in chunks; it gets guesses when it has caught up. Guesses are
// greedy, and those of all sequences are computed together.
//
// Owned by the engine; engine's thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kv/paged_kv_cache.h"
#include "kv/prefix_cache.h"
#include "mlc_native/model.h"
#include "step/host_steps.h"

namespace mlc_native {

class DraftModel {
 public:
  struct Sizes {
    int64_t num_pages = 0;
    int64_t max_rows = 0;       // of one forward, >= max_sequences
    int64_t max_sequences = 0;  // that are guessed for in one call
  };
  // What one sequence wants.
  struct Wish {
    int64_t sequence_id = 0;          // a small number, until Forget
    int64_t space = 0;                // of the prefix cache
    std::span<const int32_t> tokens;  // prompt and answer so far; not empty
    int64_t max_tokens = 0;           // >= 1
    std::vector<int32_t>* drafts = nullptr;
  };

  // Allocates the memory of the model.
  DraftModel(std::unique_ptr<Model> model, const Sizes& sizes);

  // Appends up to max_tokens guesses to the drafts of each wish: none if the sequence is not
  // prefilled yet, if no pages are left, or if it is longer than the model can read. Between two
  // calls a sequence may have lost tokens at its end and got others. If anything fails, the
  // sequences of these wishes are forgotten, and their drafts may be incomplete.
  void Propose(std::span<const Wish> wishes);
  // The sequence has ended or waits: its pages go to the prefix cache. Unknown ids are ignored.
  void Forget(int64_t sequence_id);

  // Drops what is cached. Requires: no sequence is known.
  void Clear() { cache_.Clear(); }

  int64_t num_forwards() const { return num_forwards_; }
  int64_t num_rows() const { return num_rows_; }  // of all forwards
  const PagedKvCache& kv() const { return kv_; }
  // Throws InternalError.
  void Audit() const;

 private:
  // A sequence that is guessed for, and the row of the last forward that gives its next token.
  struct Active {
    const Wish* wish = nullptr;
    int64_t num_fed = 0;  // tokens of the next forward
  };

  bool Prepare(const Wish& wish, int64_t max_rows, Active* active);
  void StartSequence(const Wish& wish);
  // Takes back what the cache has behind the common beginning with `tokens`.
  void RollBack(int64_t sequence_id, std::span<const int32_t> tokens);
  // Feeds each active sequence its next tokens, and draws a guess for those that end with them.
  void Feed();
  void AddSlice(const Active& active);
  void Drop(int64_t sequence_id) noexcept;

  const std::unique_ptr<Model> model_;
  const Sizes sizes_;
  std::optional<HostSteps> host_steps_;  // of a model without a queue
  StepQueue* const queue_;
  PagedKvCache kv_;
  PrefixCache cache_;
  struct Known {
    std::vector<int32_t> tokens;  // in kv_
    int64_t space = 0;
  };
  std::vector<Known> known_;  // by sequence id

  // Of the call that is being served.
  std::vector<Active> active_;
  std::vector<PageCopy> copies_;
  std::vector<int32_t> token_ids_;
  std::vector<SequenceSlice> slices_;
  std::vector<int32_t> logits_rows_;
  std::vector<TokenRow> token_rows_;
  std::vector<DrawnToken> drawn_;
  GenerationConfig greedy_;
  int64_t num_forwards_ = 0;
  int64_t num_rows_ = 0;
};

}  // namespace mlc_native
