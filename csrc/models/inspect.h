// What a model folder holds and what it would take to load it, without reading the weights: from
// config.json and the lists of tensors in the files' headers. Any thread.
#pragma once

#include <string>

#include "mlc_native/detail/export.h"

namespace mlc_native {

// Returns a JSON object:
//
//   path, architecture, dtype, num_layers, hidden_size, num_heads, num_kv_heads, head_dim,
//   vocab_size, context_window_size, num_parameters    null where the folder does not say
//   stored            {"files", "tensors", "bytes"} of the tensors on disk
//   parts             [{"kind", "tensors", "parameters", "stored_as", "stored_bytes", "loads_as"}]
//                     by kind of parameter; stored_as is {type of the file: tensors}, loads_as is
//                     {quantization: format in memory}
//   weight_bytes      {quantization: bytes in memory on this machine's CPU}
//   kv_bytes_per_token {kv_cache_dtype: bytes of all layers}
//   unused_tensors    names of tensors that the model does not use
//   errors            [{"code", "field", "message"}] why the folder cannot be loaded; empty: it can
//
// What is wrong with a folder is among its errors; nothing is thrown for it.
MLC_NATIVE_PRIVATE_API std::string InspectModel(const std::string& folder);

}  // namespace mlc_native
