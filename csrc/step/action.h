// An action is one kind of step. The engine tries its actions in order; the first that does work
// ends the step.
//
// Engine's thread only. A new kind of step is a new file beside this one and a line in
// CreateEngineActions.
#pragma once

#include <memory>
#include <vector>

#include "config/config.h"
#include "engine_state.h"
#include "grammar/mask_filler.h"
#include "kv/paged_kv_cache.h"
#include "models/model.h"
#include "observe/event_trace.h"
#include "observe/metrics.h"
#include "observe/step_profiler.h"
#include "request/scheduler.h"

namespace mlc_native {

class StepPipeline;

// What actions work with; owned by the engine.
struct EngineParts {
  Model* model = nullptr;
  PagedKvCache* kv = nullptr;
  StepPipeline* steps = nullptr;
  MaskFiller* mask_filler = nullptr;
  EventTraceRecorder* trace = nullptr;      // may be null
  const TokenTable* token_table = nullptr;  // may be null: no text in outputs
  const std::vector<int32_t>* eos_token_ids = nullptr;
  SchedulerLimits limits;
  int64_t max_sequence_length = 0;
  ClockFunction now;                 // EngineOptions::now
  StepProfiler* profiler = nullptr;  // may be null
};

class EngineAction {
 public:
  virtual ~EngineAction() = default;
  virtual const char* name() const = 0;
  // False when there was nothing to do. Either the whole step is put under way or nothing of it is.
  // Requests that fail are ended here and the step is repeated without them; only bugs of ours
  // throw.
  virtual bool Step(const EngineState& estate) = 0;
};

// In order of preference: jump-forward, which never ends a step, prefill, decode.
std::vector<std::unique_ptr<EngineAction>> CreateEngineActions(const EngineParts& parts);

}  // namespace mlc_native
