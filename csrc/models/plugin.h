// Loads models from plug-in libraries (model_lib=). The contract is at the end of
// mlc_native/model.h. Any thread.
#pragma once

#include <memory>

#include "mlc_native/model.h"

namespace mlc_native {

// Opens source.model_lib, which creates the model. The library stays loaded until the process ends,
// because exceptions and models of its types may outlive every other handle to it. Throws LoadError
// for a library that cannot be opened, lacks a symbol or has another ABI, and the exceptions of the
// plug-in.
std::unique_ptr<Model> LoadPluginModel(const ModelSource& source);

}  // namespace mlc_native
