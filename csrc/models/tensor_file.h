// A file of tensors, mapped: what the readers of all container formats return. Immutable, any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/mapped_file.h"
#include "support/dtype.h"

namespace mlc_native {

struct TensorInfo {
  std::string name;
  std::string dtype_name;      // as safetensors spells it: "F32", "BF16", "I64", ...
  std::optional<DType> dtype;  // of the types that weights may have
  std::vector<int64_t> shape;
  std::span<const std::byte> data;  // row-major, into the map; may be unaligned
};

struct TensorFile {
  MappedFile file;
  std::vector<TensorInfo> tensors;  // in file order

  const std::string& path() const { return file.path(); }
};

// "[2, 3]"
std::string ShapeString(std::span<const int64_t> shape);

}  // namespace mlc_native
