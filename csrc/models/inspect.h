// InspectModel says what a model folder holds and whether it loads, from its config.json and the
// headers of its files: no data of tensors is read. Any thread.
#pragma once

#include <string>

#include "mlc_native/detail/export.h"
#include "mlc_native/detail/weight_quantization.h"

namespace mlc_native {

// Returns a JSON object:
//   path, files, file_bytes, num_tensors
//   architecture      as the folder names it; "" if it names none
//   loads             whether the built-in decoder of the CPU loads the folder
//   problems          why it does not, as the load would say; a list of texts
//   num_parameters    of the decoder, or elements of all tensors if it does not load
//   decoder           its numbers: num_layers, hidden_size, ...; absent if config.json is refused
//   matrices          {name, count, shape, stored, loads_as} of each kind of tensor. In a name "*"
//                     stands for numbers that differ; loads_as is absent if the folder does not
//                     load
//   memory            bytes of the weights once they are loaded: {auto, float32, bfloat16, q8, q6,
//                     q4}
//   weight_format, bits_per_weight  with the quantization that is given, as matrices.loads_as
//   kv_bytes_per_token  with kv_cache_dtype "auto"
//   unused            tensors and files that the decoder does not use
// Throws LoadError if the path is no model folder at all.
MLC_NATIVE_PRIVATE_API std::string InspectModel(const std::string& path,
                                                WeightQuantization quantization);

}  // namespace mlc_native
