// GrammarTimer counts what a scope takes for the grammar of a sequence that has one. Engine's
// thread only.
#pragma once

#include "request/request_state.h"
#include "step/step_context.h"

namespace mlc_native {

class GrammarTimer {
 public:
  GrammarTimer(const StepContext& context, RequestStateEntry& leaf)
      : calls_(leaf.grammar_matcher == nullptr ? nullptr : context.slow_calls), leaf_(leaf) {
    if (calls_ != nullptr) start_ = leaf_.grammar_cost.Start(*calls_);
  }
  ~GrammarTimer() {
    if (calls_ != nullptr) leaf_.grammar_cost.Stop(*calls_, start_);
  }
  GrammarTimer(const GrammarTimer&) = delete;
  GrammarTimer& operator=(const GrammarTimer&) = delete;

 private:
  const SlowCalls* const calls_;  // its clocks
  RequestStateEntry& leaf_;
  double start_ = 0;
};

}  // namespace mlc_native
