// Loads CpuDecoderWeights from a checkpoint: plans them (weight_plan.h), and packs
// (weight_packer.h) or takes them from a cache (weight_cache.h). Runs on the loading thread and its
// pool.
#pragma once

#include <string>

#include "mlc_native/data.h"
#include "weights/cpu_weights.h"
#include "weights/weight_cache.h"
#include "weights/weight_layout.h"
#include "weights/weight_plan.h"

namespace mlc_native {

struct WeightLoadOptions {
  WeightOptions weights;
  WeightCacheOptions cache;  // of packed copies; without a folder there is none
  kernels::Cpu cpu;
  LoadProgress progress;  // may be empty
};

// Views of a model's weights in memory of this layout, which the result keeps.
CpuDecoderWeights ViewWeights(const WeightLayout& layout, const kernels::CpuKernels& isa,
                              WeightMemory memory);

// Throws LoadError as PlanWeights does. Calibrated weights that the cache has come before others.
CpuDecoderWeights LoadWeights(const ModelConfig& config, const Checkpoint& checkpoint,
                              const WeightLoadOptions& options);

struct PackedFile {
  std::string path;
  size_t bytes = 0;        // of the weights
  bool was_there = false;  // it was valid and is the same as before
  ModelDescription description;
  int64_t num_calibration_tokens = 0;  // that were computed; 0: there is no calibration
  int64_t num_not_reached = 0;         // matrices that no such token has reached, in a new file
};

// Writes the file of the cache that LoadWeights reads with the same options, part by part, without
// calibration. Throws LoadError as PlanWeights does, and if the file cannot be written. Requires:
// there is a folder.
PackedFile PackWeights(const ModelConfig& config, const Checkpoint& checkpoint,
                       const WeightLoadOptions& options);

}  // namespace mlc_native
