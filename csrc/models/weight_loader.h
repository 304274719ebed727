// Checkpoint -> DecoderWeights: finds each tensor by its name, sees that none is missing or unused,
// chooses the formats, and has the weights packed (weight_packer.h) or mapped (weight_cache.h).
// Runs on the loading thread and its pool.
#pragma once

#include "models/checkpoint.h"
#include "models/model.h"
#include "models/model_config.h"
#include "models/weights.h"

namespace mlc_native {

struct WeightLoadOptions {
  std::optional<DType> dtype;  // nullopt: as the checkpoint says
  // Of the matrices; with 4 bits the sensitive ones (WeightMap) get 8, the head among them, which
  // may also be the embeddings. A matrix that the checkpoint holds in fewer bits, in a form that
  // the kernels have, stays as it is (but with kOff). A separate table of embeddings keeps the
  // dtype: a row is read, not the table. Vectors are of the dtype, too.
  WeightQuantization quantization = WeightQuantization::kAuto;
  std::string cache_dir;  // of packed copies (weight_cache.h); empty: none
  kernels::Cpu cpu;
  LoadProgress progress;  // may be empty
};

// Throws LoadError naming the tensors: missing, unused, of a wrong shape or type.
DecoderWeights LoadWeights(const ModelConfig& config, const Checkpoint& checkpoint,
                           const WeightLoadOptions& options);

}  // namespace mlc_native
