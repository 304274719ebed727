// Jump-forward decoding: text that a grammar forces becomes tokens without being sampled.
//
// Runs before every step and ends none; without a live request that may jump it is one look at a
// counter. A sequence is looked at once after each token that was sampled for it, so that what it
// jumps over depends on its own tokens only. The last tokens are encoded again together with the
// forced text; those that come out different are taken back from tokens, grammar and KV cache. Of
// what cannot be unseen nothing is taken back: with logprobs, or while a stop string may have
// begun, the forced tokens are appended. The last token of the forced text is left to the model
// where a longer one may stand. At least one token of the limits of a request is left to be
// sampled. No pages are asked for here: the step that computes the tokens does. Engine's thread
// only.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "step/action.h"
#include "step/grammar_masks.h"
#include "tokenizer/retokenizer.h"

namespace mlc_native {

class JumpForwardAction : public EngineAction {
 public:
  explicit JumpForwardAction(const EngineParts& parts) : parts_(parts), masks_(parts) {}
  const char* name() const override { return "jump_forward"; }
  // Always false: the tokens are computed by the actions behind this one.
  bool Step(const EngineState& estate) override;

 private:
  // New tokens in the place of the last ones of a sequence.
  struct Jump {
    int64_t num_taken_back = 0;
    size_t num_old_bytes = 0;  // of their text; the text of `added` begins with it
    std::vector<int32_t> added;
  };

  void JumpEntry(const EngineState& estate, RequestStateEntry& entry);
  std::optional<Jump> PlanJump(const RequestStateEntry& entry, std::string_view text) const;
  // The last tokens that the user has not been given for good.
  std::span<const int32_t> Replaceable(const RequestStateEntry& entry) const;
  int64_t RoomFor(const RequestStateEntry& entry) const;
  bool IsUsable(const RequestStateEntry& entry, const Jump& jump) const;
  // Moves the matcher over the jump and cuts the jump to what it accepts. False when that gains
  // nothing; the matcher is then where it was.
  bool Match(const RequestStateEntry& entry, Jump* jump);
  bool IsLeftToTheModel(const RequestStateEntry& entry, int32_t token_id);
  void Commit(const EngineState& estate, RequestStateEntry& entry, const Jump& jump);
  void Append(RequestStateEntry& entry, const Jump& jump) const;
  size_t NumBytes(const RequestStateEntry& entry, std::span<const int32_t> tokens) const;

  const EngineParts parts_;
  GrammarMasks masks_;
  std::vector<int32_t> mask_;  // [(vocab_size + 31) / 32]
};

}  // namespace mlc_native
