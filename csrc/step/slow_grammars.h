// SlowGrammars keeps grammars that take long from holding up steps.
//
// A matcher cannot be interrupted, and some grammars make it slower with every token. So the CPU
// time of each sequence's matcher is counted. A token may take the budget of a step. What it takes
// more adds up and what it takes less is taken off; beyond a few budgets, which one token may reach
// alone, the sequence is slow: from then on each call of its matcher runs on a thread of SlowCalls,
// one at a time, and no step waits for it. The sequence is planned when its mask is there and sits
// out the steps before; a token that was drawn is delivered when the matcher has accepted it. All
// calls are those of a fast sequence in the same order, so answers are the same. After enough
// tokens in a row that have taken little the sequence is fast again, later each time.
//
// A request whose matchers have taken more than the limit in all ends with an error, and so does
// one whose call has waited that long for a thread. A call that runs then, or when its request ends
// in another way, goes on, and its result is dropped.
//
// The states of matchers grow with the time of slow calls. The library does not tell their size, so
// they are taken as kStateBytesPerSecond; when those of all requests exceed the limit, the request
// with most of them ends with an error. Owned by the engine; its thread only.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "grammar/slow_calls.h"
#include "mlc_native/data.h"
#include "request/request_state.h"
#include "step/jump_forward.h"
#include "step/jump_plan.h"
#include "step/step_context.h"

namespace mlc_native {

struct GrammarBudgets {
  double step_seconds = 0;   // EngineConfig::grammar_step_budget_s
  double total_seconds = 0;  // EngineConfig::grammar_time_limit_s
  int64_t state_bytes = 0;   // EngineConfig::grammar_state_bytes
};

class SlowGrammars {
 public:
  SlowGrammars(StepContext& context, SlowCalls& calls, const GrammarBudgets& budgets);

  // Takes what calls have found, ends requests beyond the limit, finds out which sequences are slow
  // and starts calls for them. To be called before each plan; post-processes what it delivers.
  void Run();
  // Whether a sequence has sat out since the last Run.
  bool any_sits_out() const { return any_sits_out_; }
  // Waits for a while, or until a call ends: for steps that have nothing else to do.
  void Wait() { calls_.WaitForAny(kPatience); }

  // A token was drawn for a slow sequence. True if it is fast from now on.
  bool MakeFast(RequestStateEntry& leaf) const;
  // Otherwise: the token is delivered when the matcher has accepted it.
  void Accept(RequestStateEntry& leaf, SampleResult result);

 private:
  class Call;
  static constexpr std::chrono::microseconds kPatience{2000};

  void ListRequests();
  // The worst of bench/ambiguous_grammars.py has 12 MiB.
  static constexpr double kStateBytesPerSecond = 16 << 20;

  void CheckLimits(RequestState& rstate);
  void LimitStates();
  bool MayFinish(const RequestStateEntry& leaf) const;
  void Finish(RequestStateEntry& leaf);
  void Classify(RequestStateEntry& leaf);
  void StartNext(RequestStateEntry& leaf);
  void Start(RequestStateEntry& leaf, std::shared_ptr<Call> call);
  std::shared_ptr<Call> NewCall(const RequestStateEntry& leaf) const;
  double StepBudget() const;
  // A token of the leaf has taken this time. Returns by how many budgets the recent ones exceed
  // theirs.
  double AddExcess(RequestStateEntry& leaf, double seconds) const;

  StepContext& context_;
  SlowCalls& calls_;
  const GrammarBudgets budgets_;
  const std::shared_ptr<const EndTokens> ends_;  // also of calls that outlive the engine
  JumpForward jump_forward_;
  bool any_sits_out_ = false;
  std::vector<RequestState*> requests_;  // those with a grammar
};

}  // namespace mlc_native
