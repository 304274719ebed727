// DraftModel: a smaller model that guesses the next tokens of running sequences.
//
// It has pages of its own, as many as its Model was allocated with, and keeps what it has computed
// in a prefix cache of its own: a conversation that goes on finds there what the draft model knows
// of it. The pages of a sequence never depend on those of the target. A sequence whose tokens are
// not in its cache yet is prefilled in chunks; it gets guesses when it has caught up. Guesses are
// greedy, and those of all sequences are computed together. A model with a StepQueue computes them
// without the host: each forward reads the guesses of the one before on the device.
//
// A draft model with recurrent layers leaves a state behind each token that it feeds while it
// guesses, and goes on from the one behind the last guess that was right. The sequences of a call
// share the slots, so with few slots drafts are shorter. The prefix cache gets the state where a
// prompt diverges from what is cached, and the one behind the last token that was no guess.
//
// Owned by the engine; engine's thread only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kv/cache_space.h"
#include "kv/paged_kv_cache.h"
#include "kv/prefix_cache.h"
#include "mlc_native/model.h"
#include "step/batch_drafter.h"
#include "step/draft_chain.h"
#include "step/host_steps.h"

namespace mlc_native {

class DraftModel final : public BatchDrafter {
 public:
  // Allocates the memory of the model.
  DraftModel(std::unique_ptr<Model> model, const Sizes& sizes, const Log& log = {});

  void Propose(std::span<const Wish> wishes) override;
  // With other ids than the target's, the host looks at each one first. It chooses states, too.
  StepQueue* queue() override {
    const bool same_ids = model_->metadata().vocab_size == sizes_.target_vocab_size;
    return same_ids && !kv_.has_states() ? model_->step_queue() : nullptr;
  }
  // What it draws behind tokens that are not known is computed again when they are.
  void ProposeAhead(std::span<const Wish> wishes, TokenMemory* tokens) override;
  // Its pages go to the prefix cache.
  void Forget(int64_t sequence_id) override;
  void Clear() override { cache_.Clear(); }
  const PagedKvCache& kv() const override { return kv_; }
  void Audit() const override;
  int64_t NumUnread(const Wish& wish) const override {
    const bool is_known = kv_.HasSequence(wish.sequence_id);
    return std::ssize(wish.tokens) - (is_known ? kv_.length(wish.sequence_id) : 0);
  }

 private:
  // A sequence that is guessed for.
  struct Active {
    const Wish* wish = nullptr;
    int64_t num_fed = 0;     // tokens of the next forward
    int64_t num_wanted = 0;  // guesses
    int64_t num_drawn = 0;   // of them, with those in flight
    int32_t drawn_row = -1;  // of the last forward: its logits gave the last guess
  };
  // What a row of logits draws.
  struct Guess {
    const Wish* wish = nullptr;  // null: of a sequence whose guesses have ended
    bool is_fed = false;         // to the next forward
  };

  // Begins to serve the wishes, as far as there are rows and pages.
  void PrepareAll(std::span<const Wish> wishes);
  bool Prepare(const Wish& wish, int64_t max_rows, int64_t num_wishes_left, Active* active);
  void StartSequence(const Wish& wish);
  // Takes back what the cache has behind the common beginning with all tokens but the last, or
  // behind the last state before.
  void RollBack(const Wish& wish);
  // Keeps the first `length` tokens, or all if there are fewer.
  void TakeBack(int64_t sequence_id, int64_t length);
  // Each sequence keeps the state that it goes on from, so the wishes can share the other slots.
  void ReleaseStates(std::span<const Wish> wishes);
  // Takes slots for the states that its forwards leave.
  void ReserveStates(const Active& active);
  // Of the first of so many wishes.
  int64_t ShareOfSlots(int64_t num_wishes) const;
  // Guesses for the active sequences.
  void Run();
  // Feeds each active sequence its next tokens, and draws a guess for those that end with them.
  void Submit();
  void AddSlice(Active* active);
  // Hands out the guesses of the oldest step in flight.
  void Collect();
  void EndGuesses(const Wish* wish);
  void Discard() noexcept;
  void RunAhead(TokenMemory* tokens);
  // What the cache may have of the sequence, and what failed, leaves it.
  void EndCall(const Wish& wish);
  void Drop(int64_t sequence_id) noexcept;

  const std::unique_ptr<Model> model_;
  const Sizes sizes_;
  std::optional<HostSteps> host_steps_;  // of a model without a queue
  StepQueue* const queue_;
  PagedKvCache kv_;
  PrefixCache cache_;
  struct Known {
    std::vector<int32_t> tokens;  // in kv_
    CacheSpace space{};
    int64_t num_given = 0;   // of the tokens: the first ones, which are no guesses
    int64_t divergence = 0;  // tokens whose pages the cache had when the sequence began
    bool is_wished = false;
  };
  std::vector<Known> known_;  // by sequence id

  // Of the call that is being served.
  std::vector<Active> active_;
  std::array<std::vector<Guess>, StepQueue::kMaxInFlight> guesses_;  // a ring, of each step
  int64_t num_submitted_ = 0;
  int64_t num_collected_ = 0;
  std::vector<PageCopy> copies_;
  std::vector<int32_t> token_ids_;
  std::vector<SequenceSlice> slices_;
  std::vector<int32_t> logits_rows_;
  std::vector<StatePlace> state_places_;
  std::vector<TokenRow> token_rows_;
  std::vector<DrawnToken> drawn_;
  GenerationConfig greedy_;
  DraftChain chain_;
  std::vector<DraftChain::Work> chain_work_;  // as active_
};

}  // namespace mlc_native
