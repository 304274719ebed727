// Checkpoint -> DecoderWeights: every parameter filled exactly once, every tensor used.
//
// Tensors go straight from the file map into their packed place, a block at a time, and the map's
// pages are given back behind, so that the peak is the weights plus one block per thread. Runs on
// the loading thread and its pool.
#pragma once

#include "models/checkpoint.h"
#include "models/model.h"
#include "models/model_config.h"
#include "models/weights.h"

namespace mlc_native {

struct WeightLoadOptions {
  std::optional<DType> dtype;  // nullopt: as the checkpoint says
  // Of the matrices; with 4 bits the sensitive ones (WeightMap) are quantized to 8, the head among
  // them, which may also be the embeddings. A separate table of embeddings keeps the dtype: a row
  // is read, not the table. Vectors and the KV cache are of the dtype, too.
  WeightQuantization quantization = WeightQuantization::kNone;
  kernels::Cpu cpu;
  LoadProgress progress;  // may be empty
};

// Throws LoadError naming the tensors: missing, unused, of a wrong shape or type.
DecoderWeights LoadWeights(const ModelConfig& config, const Checkpoint& checkpoint,
                           const WeightLoadOptions& options);

}  // namespace mlc_native
