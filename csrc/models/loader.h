// The built-in decoders on the CPU: Hugging Face and MLC folders of the families in arch_spec.cc.
#pragma once

#include <memory>
#include <optional>

#include "models/model.h"
#include "support/dtype.h"

namespace mlc_native {

// Throws LoadError (files), InvalidConfig (dtype, kv_cache_dtype, num_threads).
std::unique_ptr<Model> LoadBuiltinModel(const ModelSource& source);

// Settings of a source, checked, for every loader. nullopt: "auto". Throw InvalidConfig.
std::optional<DType> RequestedDType(const ModelSource& source);
int RequestedThreads(const ModelSource& source);

}  // namespace mlc_native
