// The built-in decoders, on the CPU: Hugging Face folders of the families in arch_spec.cc.
#pragma once

#include <memory>

#include "models/model.h"

namespace mlc_native {

// Throws LoadError (files), InvalidConfig (dtype, kv_cache_dtype, num_threads).
std::unique_ptr<Model> LoadBuiltinModel(const ModelSource& source);

}  // namespace mlc_native
