// BatchDrafter guesses the next tokens of running sequences, of all of them together: a draft model
// (draft_model.h) or a draft head (head_drafter.h).
//
// It has pages of its own, which never depend on those of the target, the model that it guesses
// for. Guesses may be wrong in any way. Each step of the target asks Propose for guesses and then
// tells Watch what it is going to compute. Owned by the engine; engine's thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/cache_space.h"
#include "mlc_native/model.h"
#include "support/check.h"

namespace mlc_native {

class PagedKvCache;

class BatchDrafter {
 public:
  struct Sizes {
    int64_t num_pages = 0;
    int64_t max_rows = 0;       // of one forward, >= max_sequences
    int64_t max_sequences = 0;  // that are guessed for in one call
    int64_t target_vocab_size = 0;
    int64_t num_slots = 0;  // of the states of a drafter with recurrent layers
  };
  // What one sequence wants.
  struct Wish {
    int64_t sequence_id = 0;          // a small number >= 0, until Forget
    CacheSpace space{};               // of the prefix cache
    std::span<const int32_t> tokens;  // prompt and answer so far; not empty
    int64_t max_tokens = 0;           // >= 1
    std::vector<int32_t>* drafts = nullptr;
    // Of ProposeAhead: what the step in flight draws behind the tokens, none if they are all; and
    // where guesses go, max_tokens places.
    TokenBlock behind{};
    int32_t first_guess = 0;
  };
  // Rows of a step of the target, all of one sequence.
  struct WatchedSlice {
    int64_t sequence_id = 0;  // as in Wish
    CacheSpace space{};
    // Of the sequence, which they follow until Forget.
    const std::vector<int32_t>* tokens = nullptr;
    int64_t position = 0;   // of the first row
    int32_t first_row = 0;  // of the batch
    int32_t num_rows = 0;
  };

  virtual ~BatchDrafter() = default;

  // Appends up to max_tokens guesses to the drafts of each wish; none where the drafter cannot
  // guess yet, has no pages left or cannot read such a long sequence. Between two calls a sequence
  // may have lost tokens at its end and got others. If anything fails, the sequences of the call
  // are forgotten, and their drafts may be incomplete.
  virtual void Propose(std::span<const Wish> wishes) = 0;

  // Where the guesses are computed, if it takes ProposeAhead; else null.
  virtual StepQueue* queue() { return nullptr; }
  // As Propose, while a step of the target is in flight, but nothing waits: the queue, which runs
  // behind that step, puts the guesses into `tokens`, and the drafts are their TokenAt ids. The
  // drafter takes down only what follows from tokens that are known.
  virtual void ProposeAhead(std::span<const Wish> /*wishes*/, TokenMemory* /*tokens*/) {
    MLC_CHECK(false) << "the drafter has no queue";
  }

  // Tokens that have to be read before the first guess for the wish, as far as that is known; none
  // by default.
  virtual int64_t NumUnread(const Wish& /*wish*/) const { return 0; }

  // The hidden states that the next forward of the target is asked for, none by default. If there
  // are rows, the forward is watched until Collected or Unwatch, and so is each of at most
  // StepQueue::kMaxInFlight forwards. Slices are in row order.
  virtual HiddenStates Watch(std::span<const WatchedSlice> /*slices*/) { return {}; }
  // The step of the oldest forward that is watched has been collected: what it was asked for is
  // there.
  virtual void Collected() noexcept {}
  // Of the sequence, what the collected steps have computed ends at `position`; what was watched
  // behind it belongs to guesses that were wrong. The watched forward in flight goes on from there.
  virtual void Keep(int64_t /*sequence_id*/, int64_t /*position*/) {}
  // While it rests, it is not asked for guesses, and what the target computes then is not read.
  virtual void Rest(bool /*rests*/) {}
  // The newest forward that is watched has failed, or its step is lost. So has one whose Watch
  // has thrown.
  virtual void Unwatch() noexcept {}
  // The child goes on from the tokens of the parent, which is forgotten next.
  virtual void Fork(int64_t /*parent_id*/, int64_t /*child_id*/,
                    const std::vector<int32_t>& /*child_tokens*/) {}
  // The sequence has ended or waits. Unknown ids are ignored.
  virtual void Forget(int64_t sequence_id) = 0;

  // Drops what is cached. Requires: no sequence is known.
  virtual void Clear() = 0;

  virtual const PagedKvCache& kv() const = 0;
  // Throws InternalError.
  virtual void Audit() const = 0;

  int64_t num_forwards() const { return num_forwards_; }
  int64_t num_rows() const { return num_rows_; }  // of all forwards

 protected:
  void Count(int64_t forwards, int64_t rows) {
    num_forwards_ += forwards;
    num_rows_ += rows;
  }

 private:
  int64_t num_forwards_ = 0;
  int64_t num_rows_ = 0;
};

}  // namespace mlc_native
