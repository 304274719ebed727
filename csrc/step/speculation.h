// Speculation adds draft tokens to the decode slices of a plan.
//
// Drafts take only what is left over. They need rows that no other slice of the step needs, pages
// that are free and that neither the plan nor the prefix cache holds, and rows of logits that
// nothing else asks for. So they never delay, preempt or refuse anything, and what is not accepted
// goes back with the step. A draft ends in front of the first token that would end the answer or
// that its grammar refuses. The drafters of a sequence are asked first, then the batch drafter for
// all sequences that have no draft yet, if its guesses pay for all of them together.
//
// While a step is in flight, a batch drafter that computes on the device guesses what follows
// (TokenBlocks), if it guessed when the last step was waited for. Now and then a step is waited
// for, which shows what guesses cost. Owned by the engine; engine's thread only.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "draft/draft_length.h"
#include "draft/drafter.h"
#include "draft/past_answers.h"
#include "draft/sequence_drafts.h"
#include "step/batch_drafter.h"
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
  Speculation(StepContext& context, const EngineConfig& config, DrafterFactory make_extra);

  bool IsWantedFor(const Request& request) const;
  // To be asked before each plan in front of which no step is collected: whether a sequence that
  // may get a draft in the next step has a token that must be known. False for a few steps after
  // guesses have paid nowhere, so that steps may run ahead.
  bool MustCollect();
  // A sequence whose last token is not known gets only a draft that the device makes.
  void AddDrafts(StepPlan* plan, bool is_in_flight);
  // Forgets past answers.
  void Clear();

 private:
  // What a step has left over.
  struct Leftover {
    int64_t rows = 0;
    int64_t pages = 0;
    int64_t slots = 0;         // of states, one for each guess; of a model with recurrent layers
    int64_t num_decoding = 0;  // sequences
    int64_t num_masked = 0;    // of them, those with a grammar
    // The shares of the time of the step that a guess of each decoding sequence adds: if it is
    // there for nothing, and if the batch drafter makes it for all of them.
    double cost = 0;
    double model_cost = 0;
    bool is_cost_known = false;
  };

  Leftover LeftBy(const StepPlan& plan) const;
  void AddCosts(int64_t num_rows, Leftover* left) const;
  // Observes what the last step has yielded, and forbids guesses that the next one is faster
  // without.
  void TryWithout(const StepPlan& plan, Leftover* left);
  // The time of a step without guesses for the sequences that decode.
  double SecondsWithout(const Leftover& left) const;
  // A forward of the batch drafter. Until one has read no prompt, what those take that have.
  double SecondsToGuess(int64_t num_rows) const;
  int64_t FreePages(const StepPlan& plan) const;
  int64_t FreeSlots(const StepPlan& plan) const;
  bool TakesDrafts(const PlannedSlice& slice) const;
  // Calls visit for each running sequence that may get a draft once its last token is known;
  // returns whether any visit returned true.
  template <typename Visit>
  bool AnyThatWaits(const Visit& visit) const;
  // The plan after this one may follow its guesses.
  void AllowAhead(bool is_allowed);
  // Makes the proposals of the entries of a plan.
  void Propose(const StepPlan& plan, const Leftover& left);
  void Propose(RequestStateEntry& entry, const Leftover& left);
  SequenceDrafts& DraftsOf(RequestStateEntry& entry);
  // Adds what they may take of a step.
  void AddProposals(Leftover left, StepPlan* plan);
  // Asks the batch drafter what pays, or for a guess that shows whether it would. True if guesses
  // pay.
  bool AskBatchDrafterIfItPays(const Leftover& left);
  bool BatchDrafterPays(const Leftover& left) const;
  // Lets the batch drafter rest, or wakes it.
  void Rest(bool pays);
  void AskBatchDrafter();
  void AskAhead();
  // Returns how many tokens of the entry's proposal its slice takes.
  int64_t NumTaken(RequestStateEntry& entry, const Leftover& left);
  DraftLimits LimitsOf(const RequestStateEntry& entry, const Leftover& left) const;
  // The time that the batch drafter takes to read what it has not read of a sequence.
  double SecondsToRead(const BatchDrafter::Wish& wish) const;
  bool ReadingPays(const RequestStateEntry& entry, const BatchDrafter::Wish& wish,
                   const Leftover& left) const;
  int64_t NumAllowed(RequestStateEntry& entry, const std::vector<int32_t>& drafts) const;
  bool MayBeDrafted(const RequestStateEntry& entry, int32_t token_id) const;
  int64_t NumExtraPages(const RequestStateEntry& entry, int64_t num_drafts) const;

  StepContext& context_;
  const EngineConfig& config_;
  const DrafterFactory make_extra_;
  std::unique_ptr<PastAnswers> past_answers_;  // of the mode "suffix"
  int num_steps_without_ = 0;                  // that may run ahead
  int num_steps_ahead_ = 0;                    // that may follow guesses in flight
  bool guesses_ahead_ = false;                 // in the plan that is being made

  // The wishes of the plan: guesses that pay, and one that is to show whether they would.
  std::vector<BatchDrafter::Wish> wishes_;
  std::optional<BatchDrafter::Wish> probe_;
  double expected_yield_ = 0;     // tokens of the first guesses of wishes_
  bool is_length_fixed_ = false;  // of a wish
  StepCosts proposal_costs_;      // of all that is done for guesses but forwards; rows are guesses
  StepCosts draft_costs_;         // of the forwards of the batch drafter
  StepCosts guess_costs_;         // of those in calls that have read no prompt
  double draft_seconds_ = 0;      // of those in this step
  AcceptanceRate model_rate_;
  ProbeBudget probe_budget_;
  GuessRest rest_;  // of the batch drafter
  TimePoint last_time_;

  // By whether there are grammars, and by the power of two below the number of sequences.
  static constexpr size_t kNumSizes = 12;
  std::array<std::array<GuessTrial, kNumSizes>, 2> trials_;
  // The last step, if it only decoded.
  struct LastStep {
    GuessTrial* trial = nullptr;
    int64_t num_decoding = 0;
    int64_t num_tokens = 0;  // that the answers had before it
    TimePoint start;
  };
  LastStep last_step_;
};

}  // namespace mlc_native
