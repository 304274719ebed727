// Checkpoint -> what is to be packed: finds each tensor by its name, sees that none is missing or
// unused, and chooses the formats, for whatever device. A view of the checkpoint; the loading
// thread's.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "arch/model_config.h"
#include "checkpoint/checkpoint.h"
#include "config/config.h"
#include "weights/weight_map.h"
#include "weights/weight_source.h"

namespace mlc_native {

struct WeightOptions {
  std::optional<DType> dtype;  // nullopt: as the checkpoint says
  // Of the matrices; with 4 bits the sensitive ones (WeightMap) get 8, the head among them, which
  // may also be the embeddings. A matrix that the checkpoint holds in fewer bits, in a form that
  // the kernels have, stays as it is (but with kOff). A separate table of embeddings keeps the
  // dtype: a row is read, not the table. Vectors are of the dtype, too.
  WeightQuantization quantization = WeightQuantization::kAuto;
  // A device that looks rows up in floats only: a quantized head gets a table beside it.
  bool table_of_floats = false;
};

using WeightSources = std::vector<std::unique_ptr<WeightSource>>;  // of the slots of the map

struct WeightPlan {
  WeightMap map;
  WeightSources sources;
  DType dtype = DType::kFloat32;               // of what is not quantized
  std::vector<kernels::WeightFormat> formats;  // of the parameters, for those that are packed
};

// Throws LoadError naming the tensors: missing, unused, of a wrong shape or type.
WeightPlan PlanWeights(const ModelConfig& config, const Checkpoint& checkpoint,
                       const WeightOptions& options);

}  // namespace mlc_native
