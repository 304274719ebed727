// The names of element types (DType, basic_types.h) in configs and safetensors. Pure functions; any
// thread.
#pragma once

#include <optional>
#include <string_view>

#include "mlc_native/detail/basic_types.h"

namespace mlc_native {

// "float32", "bfloat16", "float16": the names EngineConfig.dtype and torch use.
constexpr std::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kFloat16:
      return "float16";
  }
  return "invalid";
}

// Inverse of DTypeName; nullopt for an unknown name.
constexpr std::optional<DType> ParseDType(std::string_view name) {
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    if (name == DTypeName(dtype)) return dtype;
  }
  return std::nullopt;
}

}  // namespace mlc_native
