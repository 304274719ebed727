// StepContext: the engine's state and the parts that every function of a step works with.
//
// The engine owns one context and everything it refers to. Functions of a step take it as a mutable
// reference because they change the state, the KV cache and the model's pages. Engine's thread
// only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "support/clock.h"

namespace mlc_native {

class BatchDrafter;
class EventTraceRecorder;
class MaskFiller;
class Model;
class PagedKvCache;
class SlowCalls;
class SlowGrammars;
class StepProfiler;
class TokenBlocks;
class TokenTable;
struct EngineStateObj;
struct SchedulerLimits;

struct StepContext {
  EngineStateObj& state;
  PagedKvCache& kv;
  Model& model;
  MaskFiller& mask_filler;
  const std::vector<int32_t>& eos_token_ids;
  const SchedulerLimits& limits;
  int64_t max_sequence_length;                    // tokens, prompt and generated
  ClockFunction now;                              // EngineOptions::now
  std::shared_ptr<const TokenTable> token_table;  // null: outputs have no text
  const SlowCalls* slow_calls = nullptr;          // null: what grammars take is not measured
  SlowGrammars* slow_grammars = nullptr;          // null: no grammar is slow
  BatchDrafter* batch_drafter = nullptr;          // may be null
  TokenBlocks* token_blocks = nullptr;            // null: no step follows guesses in flight
  EventTraceRecorder* trace = nullptr;            // may be null
  StepProfiler* profiler = nullptr;               // may be null
};

}  // namespace mlc_native
