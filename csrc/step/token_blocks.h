// TokenBlocks: what steps leave on the device so that the engine need not wait for guesses.
//
// A step that draws for a sequence leaves a TokenBlock of it. Then a batch drafter that computes on
// the same device goes on from there (a chain of forwards, draft_chain.h) and leaves its guesses in
// other places, and the next step of the target begins behind the guesses that were right and reads
// the new ones. The host knows the most that each number can be, and learns the rest when it
// collects the steps.
//
// Which places are whose follows from the order on the device: a step, the chain behind it, the
// next step, and so on. Owned by the engine; engine's thread only.
#pragma once

#include <cstdint>
#include <memory>

#include "mlc_native/model.h"

namespace mlc_native {

struct RequestStateEntry;

class TokenBlocks {
 public:
  // Null if the target or the drafter, whose queue may be null, waits for the host.
  static std::unique_ptr<TokenBlocks> Make(Model& target, StepQueue* drafter,
                                           int64_t max_sequences);

  // Whether a step may follow guesses of the sequence that are not verified yet: what may be drawn
  // must not depend on the text in front of it, and it has no other drafter.
  static bool Allows(const RequestStateEntry& leaf);

  TokenMemory& memory() { return *memory_; }
  // Steps leave blocks while this is set.
  bool is_wanted() const { return is_wanted_; }
  void set_is_wanted(bool is_wanted) { is_wanted_ = is_wanted; }

  // The i-th block of a step in this slot of the steps in flight; none if there is no room.
  TokenBlock BlockOf(int64_t slot, int64_t i, int64_t num_guesses) const;
  // The first of the places for the guesses of the i-th sequence of a chain.
  int32_t FirstGuess(int64_t i) const;

  // To be called before a chain is queued, and before each step of the target.
  void BeginChain();
  void BeginStep();
  // The step is queued.
  void StepBegun() { has_chain_ = false; }

 private:
  TokenBlocks(std::unique_ptr<TokenMemory> memory, StepQueue* target, StepQueue* drafter,
              int64_t max_sequences);
  static int64_t NumPlaces(int64_t max_sequences);

  const std::unique_ptr<TokenMemory> memory_;
  StepQueue* const target_;
  StepQueue* const drafter_;
  const int64_t max_sequences_;
  bool is_wanted_ = false;
  bool has_chain_ = false;  // that the next step must follow
};

}  // namespace mlc_native
