// How the matrices of a checkpoint are quantized: what `quantization_config` of config.json or the
// quantization name of an MLC folder says, checked. A value; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "mlc_native/detail/dtype.h"
#include "support/config_fields.h"

namespace mlc_native {

enum class QuantizedFormat : uint8_t {
  kMlcGroup,
  kGptq,
  kAwq,
  kCompressedTensors,
  kMxfp4,
  kAwqGemv,
  kFloat8,
  kCompressedNvfp4,
  kModeloptNvfp4,
  kBitNet,
};

struct Quantization {
  QuantizedFormat format = QuantizedFormat::kMlcGroup;
  int bits = 4;
  int64_t group_size = 0;        // columns with one scale; 0: the whole row
  bool per_tensor = false;       // compressed-tensors: one scale for all
  bool symmetric = true;         // no zero points are stored
  bool zeros_minus_one = false;  // GPTQ, except v2: zero points are stored less one
  int64_t block_rows = 0;        // FP8: rows and columns with one scale; 0: all
  int64_t block_columns = 0;
  bool divides = false;    // BitNet: products are divided by the scale
  bool scale_inv = false;  // FP8: the scale is weight_scale_inv, if there is no weight_scale
};

// `quantization_config` of config.json. Throws LoadError for anything but what is supported, and
// says what that is.
Quantization ReadQuantization(const ConfigFields& fields);

// hf_quant_config.json. nullopt: nothing is quantized. Throws LoadError likewise.
std::optional<Quantization> ReadModeloptFile(const ConfigFields& file);

// "q4f16_1", ...: type of the floats, and how the matrices are quantized unless they are not.
struct MlcQuantization {
  std::string_view name;
  DType dtype = DType::kFloat16;
  std::optional<Quantization> matrices;
};
const MlcQuantization* FindMlcQuantization(std::string_view name);  // nullptr: not supported
std::string MlcQuantizationList();                                  // "q0f16, ..."

}  // namespace mlc_native
