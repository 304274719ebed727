// What the formats of weights are called. Pure functions; any thread.
#pragma once

#include <string_view>

#include "kernels/formats.h"

namespace mlc_native::kernels {

// As descriptions and errors name it, without the sizes of groups.
constexpr std::string_view FormatName(WeightFormat format) {
  switch (format) {
    case WeightFormat::kFloat32:
      return "float32";
    case WeightFormat::kBFloat16:
      return "bfloat16";
    case WeightFormat::kFloat16:
      return "float16";
    case WeightFormat::kQ8:
    case WeightFormat::kQ8Group32:
      return "q8";
    case WeightFormat::kQ4:
    case WeightFormat::kQ4Affine:
    case WeightFormat::kQ4Group16:
    case WeightFormat::kQ4AffineGroup16:
      return "q4";
    case WeightFormat::kIq4:
      return "iq4";
    case WeightFormat::kIq3:
      return "iq3";
    case WeightFormat::kIq2Group16:
      return "iq2";
    case WeightFormat::kFp4Group16:
      return "nvfp4";
    case WeightFormat::kQ2AffineGroup16:
    case WeightFormat::kQ2:
      return "q2";
    case WeightFormat::kQ6:
    case WeightFormat::kQ6Affine:
    case WeightFormat::kQ6Group16:
    case WeightFormat::kQ6AffineGroup16:
      return "q6";
    case WeightFormat::kMxfp4:
      return "mxfp4";
    case WeightFormat::kFloat8:
      return "fp8";
  }
  return "invalid";
}

}  // namespace mlc_native::kernels
