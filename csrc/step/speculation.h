// Speculation adds draft tokens to the decode slices of a plan.
//
// Drafts take only what is left over. They need rows that no other slice of the step needs, pages
// that are free and that neither the plan nor the prefix cache holds, and rows of logits that
// nothing else asks for. So they never delay, preempt or refuse anything, and what is not accepted
// goes back with the step. A draft ends in front of the first token that would end the answer or
// that its grammar refuses. The drafters of a sequence are asked first, then the draft model for
// all sequences that have no draft yet. Owned by the engine; engine's thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "draft/draft_length.h"
#include "draft/drafter.h"
#include "step/draft_model.h"
#include "step/step_context.h"

namespace mlc_native {

struct PlannedSlice;
struct Request;
struct RequestStateEntry;
struct StepPlan;

class Speculation {
 public:
  using DrafterFactory = std::function<std::unique_ptr<Drafter>(const DraftSource&)>;

  // make_extra, which may be empty, makes one more drafter for each sequence.
  Speculation(StepContext& context, const EngineConfig& config, DrafterFactory make_extra)
      : context_(context), config_(config), make_extra_(std::move(make_extra)) {}

  bool IsWantedFor(const Request& request) const;
  // A live request may have draft tokens.
  bool is_wanted() const;
  // Requires: no step is in flight, if is_wanted().
  void AddDrafts(StepPlan* plan);

 private:
  // What a step has left over.
  struct Leftover {
    int64_t rows = 0;
    int64_t pages = 0;
    double least_yield = 0;  // tokens that a further row has to yield on average
  };

  Leftover LeftBy(const StepPlan& plan) const;
  double LeastYield(int64_t num_rows, int64_t num_decoding) const;
  int64_t FreePages(const StepPlan& plan) const;
  static bool TakesDrafts(const PlannedSlice& slice);
  // Makes the proposals of the entries of a plan.
  void Propose(const StepPlan& plan, const Leftover& left);
  void Propose(RequestStateEntry& entry, const Leftover& left);
  void AskDraftModel();
  // Returns how many tokens of the entry's proposal its slice takes.
  int64_t NumTaken(const RequestStateEntry& entry, const Leftover& left);
  int64_t MaxLength(RequestStateEntry& entry, const Leftover& left) const;
  int64_t NumAllowed(const RequestStateEntry& entry, const std::vector<int32_t>& drafts) const;
  bool MayBeDrafted(const RequestStateEntry& entry, int32_t token_id) const;
  int64_t NumExtraPages(const RequestStateEntry& entry, int64_t num_drafts) const;

  StepContext& context_;
  const EngineConfig& config_;
  const DrafterFactory make_extra_;
  std::vector<DraftModel::Wish> wishes_;  // of the plan
  StepCosts draft_costs_;                 // of the forwards of the draft model
};

}  // namespace mlc_native
