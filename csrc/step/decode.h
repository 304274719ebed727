// One step of every running sequence. When pages run out, steps under way are collected first: who
// ends gives pages back. Then progress of a half prefilled prompt is dropped, then the last running
// entries are preempted; when none is left, that was no step.
// Engine's thread only.
#pragma once

#include "step/action.h"

namespace mlc_native {

class DecodeAction : public EngineAction {
 public:
  explicit DecodeAction(const EngineParts& parts) : parts_(parts) {}
  const char* name() const override { return "decode"; }
  bool Step(const EngineState& estate) override;

 private:
  // Afterwards the pages for what the running sequences have to compute are free.
  void MakeRoom(const EngineState& estate);

  const EngineParts parts_;
  StepPlan plan_;
};

}  // namespace mlc_native
