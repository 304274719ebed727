#include "step/action.h"

#include "step/decode.h"
#include "step/jump_forward.h"
#include "step/prefill.h"

namespace mlc_native {

std::vector<std::unique_ptr<EngineAction>> CreateEngineActions(const EngineParts& parts) {
  std::vector<std::unique_ptr<EngineAction>> actions;
  actions.push_back(std::make_unique<JumpForwardAction>(parts));
  actions.push_back(std::make_unique<PrefillAction>(parts));
  actions.push_back(std::make_unique<DecodeAction>(parts));
  return actions;
}

}  // namespace mlc_native
