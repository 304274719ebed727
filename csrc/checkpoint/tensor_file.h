// TensorFile is what a file of tensors says that it holds, which the readers of all container
// formats return. The file is closed; a tensor's bytes are read when they are needed. Immutable;
// any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mlc_native/detail/dtype.h"
#include "mlc_native/detail/export.h"
#include "support/regular_file.h"

namespace mlc_native {

// Of a GGUF file: rows or columns that are those of the value heads of linear attention, first the
// first one of each key head, then the second one of each, and so on. In a folder those of a key
// head follow one another.
struct TiledHeads {
  int64_t key_heads = 0;  // 0: they are in order
  int64_t size = 0;       // rows or columns of a value head
  int64_t first = 0;      // rows in front of the value heads, which are in order
  bool in_columns = false;
};

struct TensorInfo {
  std::string name;
  std::string dtype_name;      // as safetensors names it, "BF16", or GGUF, "Q8_0"
  std::optional<DType> dtype;  // nullopt for types that weights cannot have
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // of the data in the file, row-major and in no alignment
  uint64_t bytes = 0;
  // Of a GGUF file: the rows are those of so many heads, and in each head they alternate between
  // its first and its second half. 0: in order.
  int64_t interleaved_heads = 0;
  TiledHeads tiled_heads{};
  bool is_negative_power = false;  // likewise; for the weight x it has -e^x
  float scale = 1;                 // likewise; what all values are multiplied with

  uint64_t end() const { return begin + bytes; }
};

struct TensorFile {
  std::string path;
  FileStamp stamp;
  std::vector<TensorInfo> tensors;  // in file order
};

// Reads the data of one tensor. Throws LoadError as RegularFile does, and if the file is no longer
// the one whose tensors were listed.
class MLC_NATIVE_PRIVATE_API TensorReader {
 public:
  // Opens the file. The tensor must outlive the reader.
  TensorReader(const TensorFile& file, const TensorInfo& tensor);

  // Fills `out` with the tensor's bytes from `offset` on. Requires: it has that many.
  void Read(uint64_t offset, std::span<std::byte> out) const;
  // Checks once more, after the last read.
  void Finish() const { file_.RequireStamp(file_.stamp()); }

 private:
  RegularFile file_;
  const TensorInfo& tensor_;
};

// At most as many tensors in a checkpoint.
inline constexpr size_t kMaxTensors = 200'000;

// Opens a file of tensors. Throws LoadError as RegularFile does, and for a git-lfs pointer.
RegularFile OpenTensors(const std::string& path);

// Returns the size of a tensor in bytes; nullopt for an unknown type. Throws LoadError if the size
// overflows.
std::optional<uint64_t> TensorBytes(const std::string& path, const TensorInfo& tensor);

// Returns the tensors in the order of their data. Throws LoadError if they overlap or leave holes
// in the file from byte `begin` on.
std::vector<TensorInfo> InFileOrder(const RegularFile& file, std::vector<TensorInfo> tensors,
                                    uint64_t begin);

// True if an index may name this file, which must be in the index's own folder.
bool IsPlainFileName(const std::string& name);

// <path>: tensor "<name>": <what>
[[noreturn]] void FailTensor(const std::string& path, const std::string& name,
                             const std::string& what);

std::optional<DType> WeightDType(std::string_view dtype_name);  // "F32", ...

// "[2, 3]"
std::string ShapeString(std::span<const int64_t> shape);

}  // namespace mlc_native
