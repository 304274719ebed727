// Loads the built-in decoders on the CPU from Hugging Face and MLC folders of the families in
// arch_table.cc. Any thread.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "arch/model_config.h"
#include "kernels/kv_format.h"
#include "mlc_native/detail/dtype.h"
#include "mlc_native/detail/export.h"
#include "mlc_native/model.h"
#include "weights/weight_loader.h"

namespace mlc_native {

// Throws LoadError (files), InvalidConfig (dtype, kv_cache_dtype, num_threads).
std::unique_ptr<Model> LoadBuiltinModel(const ModelSource& source);

// Writes the packed weights that LoadBuiltinModel takes from source.weight_cache_dir, without
// holding them in memory. Throws as LoadBuiltinModel does, and LoadError if they cannot be written.
// Requires: there is a weight_cache_dir.
MLC_NATIVE_PRIVATE_API PackedFile PackBuiltinModel(const ModelSource& source);

// What a source asks for of the weights of a decoder on the CPU.
WeightLoadOptions LoadOptionsOf(const ModelSource& source, const kernels::Cpu& cpu);

// What a source asks for, for every loader. nullopt means "auto". Throw InvalidConfig.
MLC_NATIVE_PRIVATE_API std::optional<DType> RequestedDType(const ModelSource& source);
MLC_NATIVE_PRIVATE_API std::unique_ptr<ThreadPool> MakeThreadPool(const ModelSource& source);
void CheckKvCacheDType(KvCacheDType requested);  // on the CPU

// Requires: CheckKvCacheDType has not thrown. `weights`: their type.
kernels::KvFormat KvFormatFor(KvCacheDType requested, DType weights);

}  // namespace mlc_native
