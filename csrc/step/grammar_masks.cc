#include "step/grammar_masks.h"

#include <algorithm>
#include <exception>
#include <string>

#include "engine_state.h"
#include "mlc_native/model.h"
#include "request/scheduler.h"
#include "sampling/sampler.h"
#include "support/check.h"
#include "support/token_mask.h"

namespace mlc_native {
namespace {

[[noreturn]] void ThrowSamplingError(const std::exception_ptr& cause) {
  const std::string what = "the grammar of the answer failed";
  try {
    std::rethrow_exception(cause);
  } catch (const std::exception& error) {
    throw SamplingError(what + ": " + error.what());
  } catch (...) {
    throw SamplingError(what);
  }
}

}  // namespace

GrammarMasks::GrammarMasks(StepContext& context) : context_(context), ends_(EndTokensOf(context)) {}

void GrammarMasks::Start(const StepPlan& plan) {
  leaves_.clear();
  rows_.clear();
  for (const PlannedSlice& slice : plan.slices) {
    if (!slice.completes_input) continue;
    if (!slice.entry->is_root_of_branches()) {
      AddRow(*slice.entry, slice.drafts());
      continue;
    }
    for (int child : slice.entry->child_indices) AddRow(slice.entry->rstate->entries[child], {});
  }
  if (leaves_.empty()) return;
  PlaceMasks();
  next_row_ = 0;
  context_.mask_filler.Start(rows_);
}

void GrammarMasks::AddRow(RequestStateEntry& leaf, std::span<const int32_t> draft_tokens) {
  if (leaf.grammar_matcher == nullptr || leaf.slow != nullptr) return;
  leaves_.push_back(&leaf);
  MaskRow& row = rows_.emplace_back();
  row.matcher = leaf.grammar_matcher.get();
  row.cost = &leaf.grammar_cost;
  row.draft_tokens = draft_tokens;
}

void GrammarMasks::PlaceMasks() {
  size_t num_behind = 0;
  for (const MaskRow& row : rows_) num_behind += row.draft_tokens.size();
  const size_t num_words = ends_.mask_size();
  words_.resize((rows_.size() + num_behind) * num_words);
  behind_.assign(num_behind, MaskRow());
  size_t num_placed = 0;
  const auto place = [&](MaskRow& row) {
    row.mask = std::span(words_).subspan(num_placed++ * num_words, num_words);
  };
  std::span<MaskRow> left(behind_);
  for (MaskRow& row : rows_) {
    place(row);
    row.behind = left.first(row.draft_tokens.size());
    left = left.subspan(row.draft_tokens.size());
    for (MaskRow& behind : row.behind) place(behind);
  }
}

void GrammarMasks::Wait() {
  if (!leaves_.empty()) fill_seconds_ += context_.mask_filler.Wait();
}

std::span<const int32_t> GrammarMasks::AllowedTokens(const RequestStateEntry& leaf,
                                                     size_t num_drafts) {
  if (leaf.grammar_matcher == nullptr) return {};
  if (leaf.matcher_error != nullptr) ThrowSamplingError(leaf.matcher_error);
  if (leaf.slow != nullptr) {
    MLC_CHECK(leaf.slow->has_mask) << leaf.rstate->request->id;
    return WithStopTokens(leaf, leaf.slow->mask, leaf.slow->constrained,
                          !leaf.rstate->config().stop_token_ids.empty() && leaf.slow->completed);
  }
  while (next_row_ < leaves_.size() && leaves_[next_row_] != &leaf) ++next_row_;
  MLC_CHECK(next_row_ < leaves_.size()) << "no mask for " << leaf.rstate->request->id;
  const MaskRow& first = rows_[next_row_];
  const MaskRow& row = num_drafts == 0 ? first : first.behind[num_drafts - 1];
  if (row.error != nullptr) ThrowSamplingError(row.error);
  const bool may_end = num_drafts > 0 ? row.completed
                                      : !leaf.rstate->config().stop_token_ids.empty() &&
                                            first.matcher->IsCompleted();
  return WithStopTokens(leaf, row.mask, row.constrained, may_end);
}

std::span<const int32_t> GrammarMasks::WithStopTokens(const RequestStateEntry& leaf,
                                                      std::span<int32_t> mask, bool constrained,
                                                      bool may_end) const {
  const GenerationConfig& config = leaf.rstate->config();
  const bool ignore_eos = config.debug_config.ignore_eos;
  if (!constrained) {
    if (!ignore_eos) return {};
    std::fill(mask.begin(), mask.end(), -1);
  }
  if (ignore_eos) {
    for (int32_t token_id : context_.eos_token_ids) SetTokenBit(mask, token_id, false);
  }
  if (may_end) {
    for (int32_t token_id : config.stop_token_ids) SetTokenBit(mask, token_id, true);
  }
  return mask;
}

bool GrammarMasks::MustEnd(const RequestStateEntry& leaf) {
  if (leaf.grammar_matcher == nullptr) return false;
  return mlc_native::MustEnd(*leaf.rstate->request, ends_, *leaf.grammar_matcher, &scratch_);
}

}  // namespace mlc_native
