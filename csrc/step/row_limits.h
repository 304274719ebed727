// RowLimits: the masks of the rows of one step whose requests forbid tokens of themselves, with
// those of their grammars. Buffers are reused. Engine's thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "step/step_context.h"

namespace mlc_native {

struct RequestStateEntry;

class RowLimits {
 public:
  explicit RowLimits(const StepContext& context) : context_(context) {}

  // Forgets the masks of the step before.
  void Clear() { num_used_ = 0; }
  // The mask of the row that draws the token at `position` of a sequence, behind its tokens and
  // `drafts`: `allowed` (one bit per token; empty allows every token) without what the request
  // forbids. Valid until Clear.
  std::span<const int32_t> Restrict(const RequestStateEntry& leaf, std::span<const int32_t> drafts,
                                    int64_t position, std::span<const int32_t> allowed);

 private:
  // The same for a request that forbids something there.
  std::span<const int32_t> MaskOf(const RequestStateEntry& leaf, std::span<const int32_t> drafts,
                                  int64_t position, std::span<const int32_t> allowed);
  // The tokens before `position`, as TokenHistory wants them.
  std::span<const int32_t> TokensBefore(const RequestStateEntry& leaf,
                                        std::span<const int32_t> drafts, int64_t position);

  const StepContext& context_;
  std::deque<std::vector<int32_t>> masks_;  // their addresses stay
  size_t num_used_ = 0;
  std::vector<int32_t> with_drafts_;  // the tokens of a sequence and draft tokens
};

}  // namespace mlc_native
