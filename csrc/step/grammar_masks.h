// GrammarMasks: which tokens the constrained sequences of one forward may be given.
//
// The masks of all rows that will be sampled are filled together while the model computes, except
// those of slow grammars (slow_grammars.h), which are there before the step. A
// sequence without a grammar costs one null check. Settings of the request change the grammar's own
// mask: with ignore_eos the model's end-of-sequence tokens are forbidden, and stop_token_ids are
// allowed wherever the grammar lets the answer end. Buffers are reused. Engine's thread only.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "grammar/mask_filler.h"
#include "step/jump_plan.h"
#include "step/step_context.h"

namespace mlc_native {

struct RequestStateEntry;
struct StepPlan;

class GrammarMasks {
 public:
  explicit GrammarMasks(StepContext& context);

  // Starts to fill the masks of the plan's sequences. Their matchers may not be touched until Wait,
  // which must be called even if the forward fails.
  void Start(const StepPlan& plan);
  void Wait();
  // Seconds of filling since the last call.
  double TakeFillSeconds() { return std::exchange(fill_seconds_, 0); }
  // One bit per token, or empty when every token is allowed, of the row behind the first num_drafts
  // draft tokens of the plan. Leaves are asked for in the order of the plan, each row at most once.
  // Throws SamplingError when the grammar library failed. Requires: the leaf does not sit out.
  std::span<const int32_t> AllowedTokens(const RequestStateEntry& leaf, size_t num_drafts);

  // Whether the grammar leaves nothing but the end to come.
  bool MustEnd(const RequestStateEntry& leaf);

 private:
  void AddRow(RequestStateEntry& leaf, std::span<const int32_t> draft_tokens);
  void PlaceMasks();
  std::span<const int32_t> WithStopTokens(const RequestStateEntry& leaf, std::span<int32_t> mask,
                                          bool constrained, bool may_end) const;

  StepContext& context_;
  const EndTokens ends_;
  std::vector<const RequestStateEntry*> leaves_;  // constrained ones of the plan that are not slow
  std::vector<MaskRow> rows_;                     // as leaves_
  std::vector<MaskRow> behind_;                   // the rows behind their draft tokens
  std::vector<int32_t> words_;                    // [rows and those behind, mask_size]
  size_t next_row_ = 0;                           // AllowedTokens searches from here on
  std::vector<int32_t> scratch_;                  // [mask_size]
  double fill_seconds_ = 0;
};

}  // namespace mlc_native
