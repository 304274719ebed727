// Jump-forward decoding: text that a grammar forces becomes tokens without being sampled.
//
// Run is called before every step is planned, and between two tokens that one step has yielded;
// without a live request that may jump it costs one look at a counter. Each sequence is examined
// once after each token that was sampled for it, so what it jumps over depends only on its own
// tokens. The last tokens are encoded again together with the forced text; those that come out
// different are taken back from tokens, grammar and KV cache. Nothing that the caller has seen for
// good is taken back: with logprobs, or while a stop string may have begun, the forced tokens are
// appended. The last token of the forced text is left to the model if a longer token may stand in
// its place. At least one token of a request's limits is left to be sampled. Run reserves no pages:
// the step that computes the tokens does. Owned by the engine; engine's thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "step/jump_plan.h"
#include "step/step_context.h"

namespace mlc_native {

class JumpForward {
 public:
  explicit JumpForward(StepContext& context);

  // Requires: every step has been collected, if a running sequence may jump; rows behind draft
  // tokens of a sequence may be left, which a jump of it gives back. A request that fails is ended.
  // Slow grammars are left out.
  void Run();

  // What a jump of the sequence depends on. No room: there is none.
  JumpInput InputOf(const RequestStateEntry& entry) const;
  // Puts in what FindJump has found. The matcher has been moved already.
  void Commit(RequestStateEntry& entry, const Jump& jump);

 private:
  void JumpEntry(RequestStateEntry& entry);
  void GiveBackDraftRows(RequestStateEntry& entry) const;
  void Append(RequestStateEntry& entry, const Jump& jump) const;

  StepContext& context_;
  const EndTokens ends_;
  std::vector<int32_t> mask_;  // [mask_size]
};

}  // namespace mlc_native
