// Element types of weights and KV pages: names (as in configs and safetensors), sizes, conversion
// from and to float. Activations are always float32. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace mlc_native {

enum class DType : uint8_t { kFloat32, kBFloat16, kFloat16 };

constexpr size_t DTypeSize(DType dtype) { return dtype == DType::kFloat32 ? 4 : 2; }

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
