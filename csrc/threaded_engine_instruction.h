// What other threads ask of the background loop of a ThreadedEngine, by kind.
#pragma once

namespace mlc_native {

enum class InstructionKind {
  kAddRequest,
  kAbortRequest,
  kAbortAllRequests,
  kReloadEngine,
  kUnloadEngine,
  kResetEngine,
  kCallEngine,
  kDebugCallFuncOnAllAllWorker,
};

}  // namespace mlc_native
