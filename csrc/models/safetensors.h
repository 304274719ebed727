// One .safetensors file: 8 bytes of header length, a JSON header, tensor data without holes.
//
// Every field is checked against the file before it is believed: a damaged or hostile file gives a
// LoadError that names the file and the tensor, never a read outside the map. Any thread.
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
  std::string dtype_name;      // as in the file: "F32", "BF16", "I64", ...
  std::optional<DType> dtype;  // of the types that weights may have
  std::vector<int64_t> shape;
  std::span<const std::byte> data;  // row-major, into the map; may be unaligned
};

// "[2, 3]"
std::string ShapeString(std::span<const int64_t> shape);

class SafetensorsFile {
 public:
  // Throws LoadError.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }  // in file order
  void Drop(std::span<const std::byte> data) const { file_.Drop(data); }

 private:
  MappedFile file_;
  std::vector<TensorInfo> tensors_;
};

}  // namespace mlc_native
