// Loads CpuDecoderWeights from a checkpoint: plans them (weight_plan.h), and packs
// (weight_packer.h) or takes them from a cache (weight_cache.h). Runs on the loading thread and its
// pool.
#pragma once

#include <string>

#include "mlc_native/data.h"
#include "weights/cpu_weights.h"
#include "weights/weight_plan.h"

namespace mlc_native {

struct WeightLoadOptions {
  WeightOptions weights;
  std::string cache_dir;  // folder of packed copies (weight_cache.h); empty: none
  kernels::Cpu cpu;
  LoadProgress progress;  // may be empty
};

// Throws LoadError as PlanWeights does.
CpuDecoderWeights LoadWeights(const ModelConfig& config, const Checkpoint& checkpoint,
                              const WeightLoadOptions& options);

}  // namespace mlc_native
