// The built-in decoders, on the CPU: Hugging Face folders of the families in arch_spec.cc. Free of
// libtorch, so that the core links either loader.cc (with libtorch) or no_torch.cc.
#pragma once

#include <memory>

#include "models/model.h"

namespace mlc_native {

// Throws LoadError (files), InvalidConfig (dtype, kv_cache_dtype, num_threads).
std::unique_ptr<Model> LoadBuiltinModel(const ModelSource& source);

}  // namespace mlc_native
