// A WeightPlan lists the parameters to pack from a checkpoint: it finds each tensor by its name,
// checks that none is missing, notes which are not used, and chooses the formats. It is the same
// for all devices. A view of the checkpoint; loading thread only.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "arch/model_config.h"
#include "checkpoint/checkpoint.h"
#include "mlc_native/config.h"
#include "mlc_native/detail/export.h"
#include "weights/weight_map.h"
#include "weights/weight_source.h"

namespace mlc_native {

// How matrices are loaded that a checkpoint holds as codes.
struct FormatsOfCodes {
  // In which a matrix may stay; the last one that holds it counts.
  std::vector<kernels::WeightFormat> held;
  // What becomes of codes of at most 6 bits in groups of multiples of 16, and of codes that it
  // holds, where none of these formats holds all of a matrix. nullopt, and other codes: floats.
  std::optional<kernels::WeightFormat> rounded;
};

struct WeightOptions {
  std::optional<DType> dtype;  // nullopt: that of the checkpoint
  // Quantization of the matrices. With kQ4 the sensitive ones (WeightMap) get 8, including the
  // head, which may also be the embeddings. A matrix that the checkpoint holds in no more bits, in
  // a form that the kernels support, stays as it is (except with kOff). A separate table of
  // embeddings keeps the dtype, because only rows of it are read. Vectors have the dtype.
  WeightQuantization quantization{};
  // What a budget of bits is spent on, of ascending bits (budget_formats.h).
  std::vector<kernels::WeightFormat> of_budget{
      kernels::WeightFormat::kQ4, kernels::WeightFormat::kQ6, kernels::WeightFormat::kQ8};
  // The device reads rows only as floats, so a quantized head that is tied also gets a table.
  bool table_of_floats = false;
  FormatsOfCodes codes{
      .held = {kernels::WeightFormat::kQ8Group32, kernels::WeightFormat::kQ8,
               kernels::WeightFormat::kQ6AffineGroup16, kernels::WeightFormat::kQ6Affine,
               kernels::WeightFormat::kQ6Group16, kernels::WeightFormat::kQ6,
               kernels::WeightFormat::kQ4AffineGroup16, kernels::WeightFormat::kQ4Affine,
               kernels::WeightFormat::kQ4Group16, kernels::WeightFormat::kQ2AffineGroup16,
               kernels::WeightFormat::kQ4, kernels::WeightFormat::kQ2, kernels::WeightFormat::kIq4,
               kernels::WeightFormat::kIq3, kernels::WeightFormat::kIq2Group16,
               kernels::WeightFormat::kFp4Group16, kernels::WeightFormat::kMxfp4,
               kernels::WeightFormat::kFloat8},
      .rounded = kernels::WeightFormat::kQ8Group32};
  std::optional<FormatsOfCodes> codes_in_float16{};  // where that is the dtype; nullopt: the same
  bool strict = false;  // a tensor that the model does not use is an error
};

using WeightSources = std::vector<std::unique_ptr<WeightSource>>;  // by slot of the map

struct WeightPlan {
  WeightMap map;
  WeightSources sources;
  DType dtype = DType::kFloat32;               // type of parameters that are not quantized
  std::vector<kernels::WeightFormat> formats;  // by parameter, for those that are packed
  ModelDescription description;                // without what the device adds

  // Of the values of a vector.
  DType vector_precision(size_t parameter) const {
    return map.parameters[parameter].in_float32 ? DType::kFloat32 : dtype;
  }
};

// Chooses type and formats of a plan without a table of floats again, for other options.
MLC_NATIVE_PRIVATE_API void ChooseFormats(const ModelConfig& config, const WeightOptions& options,
                                          WeightPlan* plan);

// Throws LoadError, which names the tensors that are missing, of a wrong shape or type, or, if the
// options are strict, not used.
MLC_NATIVE_PRIVATE_API WeightPlan PlanWeights(const ModelConfig& config,
                                              const Checkpoint& checkpoint,
                                              const WeightOptions& options);

}  // namespace mlc_native
