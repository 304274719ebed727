// HostModel: what of a loaded model a request is made for. Immutable; any thread.
#pragma once

#include <memory>
#include <string>

#include "c_api/model_text.h"
#include "mlc_native/config.h"
#include "mlc_native/data.h"

namespace mlc_native::c_api {

struct HostModel {
  std::string name;
  std::string device;  // "cpu" or "cuda:i"; "auto" if a model_lib chooses
  std::shared_ptr<const ModelText> text;
  EngineConfig config;  // all settings
  RequestLimits limits;
  GenerationConfig defaults;
};

}  // namespace mlc_native::c_api
