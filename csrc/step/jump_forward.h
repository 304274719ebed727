// Jump-forward decoding: text that a grammar forces becomes tokens without being sampled.
//
// Run is called before every step is planned, and between two tokens that one step has yielded;
// without a live request that may jump it costs one
// look at a counter. Each sequence is examined once after each token that was sampled for it, so
// what it jumps over depends only on its own tokens. The last tokens are encoded again together
// with the forced text; those that come out different are taken back from tokens, grammar and KV
// cache. Nothing that the caller has seen for good is taken back: with logprobs, or while a stop
// string may have begun, the forced tokens are appended. The last token of the forced text is left
// to the model if a longer token may stand in its place. At least one token of a request's limits
// is left to be sampled. Run reserves no pages: the step that computes the tokens does. Owned by
// the engine; engine's thread only.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "step/grammar_masks.h"
#include "step/step_context.h"
#include "tokenizer/retokenizer.h"

namespace mlc_native {

class JumpForward {
 public:
  explicit JumpForward(StepContext& context) : context_(context), masks_(context) {}

  // Requires: every step has been collected, if a running sequence may jump; rows behind draft
  // tokens of a sequence may be left, which a jump of it gives back. A request that fails is ended.
  void Run();

 private:
  // New tokens that replace the last ones of a sequence.
  struct Jump {
    int64_t num_taken_back = 0;
    size_t num_old_bytes = 0;  // of their text; the text of `added` begins with it
    std::vector<int32_t> added;
  };

  void JumpEntry(RequestStateEntry& entry);
  std::optional<Jump> PlanJump(const RequestStateEntry& entry, std::string_view text) const;
  // The last tokens that the user has not been given for good.
  std::span<const int32_t> Replaceable(const RequestStateEntry& entry) const;
  int64_t RoomFor(const RequestStateEntry& entry) const;
  bool IsUsable(const RequestStateEntry& entry, const Jump& jump) const;
  // Moves the matcher over the jump and cuts the jump to what it accepts. False when that gains
  // nothing; the matcher is then where it was.
  bool Match(const RequestStateEntry& entry, Jump* jump);
  bool IsLeftToTheModel(const RequestStateEntry& entry, int32_t token_id);
  void Commit(RequestStateEntry& entry, const Jump& jump);
  void GiveBackDraftRows(RequestStateEntry& entry) const;
  void Append(RequestStateEntry& entry, const Jump& jump) const;
  size_t NumBytes(const RequestStateEntry& entry, std::span<const int32_t> tokens) const;

  StepContext& context_;
  GrammarMasks masks_;
  std::vector<int32_t> mask_;  // [(vocab_size + 31) / 32]
};

}  // namespace mlc_native
