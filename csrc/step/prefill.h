// Prefill of waiting requests, by chunks; in hybrid mode the running sequences take part, so that
// decoding never waits for a prompt. Engine's thread only.
#pragma once

#include "step/action.h"

namespace mlc_native {

class PrefillAction : public EngineAction {
 public:
  explicit PrefillAction(const EngineParts& parts) : parts_(parts) {}
  const char* name() const override { return "prefill"; }
  bool Step(const EngineState& estate) override;

 private:
  const EngineParts parts_;
  StepPlan plan_;
};

}  // namespace mlc_native
