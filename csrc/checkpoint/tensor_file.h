// TensorFile is a mapped file of tensors, which the readers of all container formats return.
// Immutable; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/mapped_file.h"
#include "mlc_native/detail/dtype.h"

namespace mlc_native {

struct TensorInfo {
  std::string name;
  std::string dtype_name;      // name in safetensors: "F32", "BF16", "I64", ...
  std::optional<DType> dtype;  // nullopt for types that weights cannot have
  std::vector<int64_t> shape;
  std::span<const std::byte> data;  // row-major, into the map; may be unaligned
};

struct TensorFile {
  MappedFile file;
  std::vector<TensorInfo> tensors;  // in file order

  const std::string& path() const { return file.path(); }
};

// Maps a file of tensors. Throws LoadError as MappedFile does, and for a git-lfs pointer.
MappedFile MapTensors(const std::string& path);

// Returns the size of a tensor in bytes; nullopt for an unknown type. Throws LoadError if the size
// overflows.
std::optional<uint64_t> TensorBytes(const std::string& path, const TensorInfo& tensor);

// Returns the tensors in the order of their data. Throws LoadError if they overlap or leave holes
// in `data`, the part of the file for tensors.
std::vector<TensorInfo> InFileOrder(const std::string& path, std::vector<TensorInfo> tensors,
                                    std::span<const std::byte> data);

// True if an index may name this file, which must be in the index's own folder.
bool IsPlainFileName(const std::string& name);

// <path>: tensor "<name>": <what>
[[noreturn]] void FailTensor(const std::string& path, const std::string& name,
                             const std::string& what);

std::optional<DType> WeightDType(std::string_view dtype_name);  // "F32", ...

// "[2, 3]"
std::string ShapeString(std::span<const int64_t> shape);

}  // namespace mlc_native
