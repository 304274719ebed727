#include "checkpoint/tensor_file.h"

#include <algorithm>
#include <array>
#include <utility>

#include "support/check.h"
#include "support/error.h"
#include "support/git_lfs.h"

namespace mlc_native {
namespace {

struct ElementType {
  std::string_view name;
  uint64_t bytes;
};
constexpr std::array<ElementType, 16> kElementTypes{{{"BOOL", 1},
                                                     {"U8", 1},
                                                     {"I8", 1},
                                                     {"F8_E5M2", 1},
                                                     {"F8_E4M3", 1},
                                                     {"F8_E8M0", 1},
                                                     {"I16", 2},
                                                     {"U16", 2},
                                                     {"F16", 2},
                                                     {"BF16", 2},
                                                     {"I32", 4},
                                                     {"U32", 4},
                                                     {"F32", 4},
                                                     {"F64", 8},
                                                     {"I64", 8},
                                                     {"U64", 8}}};

}  // namespace

bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name.find_first_of("/\\") == std::string::npos &&
         !name.starts_with("..") && name.find('\0') == std::string::npos;
}

void FailTensor(const std::string& path, const std::string& name, const std::string& what) {
  throw LoadError(name, path + ": tensor \"" + name + "\": " + what);
}

std::optional<DType> WeightDType(std::string_view name) {
  if (name == "F32") return DType::kFloat32;
  if (name == "BF16") return DType::kBFloat16;
  if (name == "F16") return DType::kFloat16;
  return std::nullopt;
}

std::string ShapeString(std::span<const int64_t> shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) out += ", ";
    out += std::to_string(shape[i]);
  }
  return out + "]";
}

RegularFile OpenTensors(const std::string& path) {
  constexpr uint64_t kPointerBytes = 64;
  RegularFile file(path);
  std::string beginning(std::min(file.size(), kPointerBytes), '\0');
  file.Read(0, std::as_writable_bytes(std::span(beginning)));
  if (IsLfsPointer(beginning)) throw LoadError(path, path + ": " + kIsLfsPointer);
  return file;
}

TensorReader::TensorReader(const TensorFile& file, const TensorInfo& tensor)
    : file_(file.path), tensor_(tensor) {
  file_.RequireStamp(file.stamp);
}

void TensorReader::Read(uint64_t offset, std::span<std::byte> out) const {
  MLC_CHECK(offset <= tensor_.bytes && out.size() <= tensor_.bytes - offset)
      << tensor_.name << ": " << out.size() << " bytes at " << offset;
  file_.Read(tensor_.begin + offset, out);
}

std::optional<uint64_t> TensorBytes(const std::string& path, const TensorInfo& tensor) {
  const auto* type =
      std::find_if(kElementTypes.begin(), kElementTypes.end(),
                   [&](const ElementType& t) { return t.name == tensor.dtype_name; });
  if (type == kElementTypes.end()) return std::nullopt;
  uint64_t bytes = type->bytes;
  for (int64_t size : tensor.shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes)) {
      FailTensor(path, tensor.name, "shape " + ShapeString(tensor.shape) + " overflows");
    }
  }
  return bytes;
}

std::vector<TensorInfo> InFileOrder(const RegularFile& file, std::vector<TensorInfo> tensors,
                                    uint64_t begin) {
  const std::string& path = file.path();
  // Empty tensors come before the one that starts at the same place.
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.begin, a.bytes) < std::pair(b.begin, b.bytes);
  });
  uint64_t end = begin;
  const TensorInfo* last = nullptr;
  for (const TensorInfo& tensor : tensors) {
    if (last != nullptr && tensor.begin < end) {
      FailTensor(path, tensor.name, "overlaps \"" + last->name + '"');
    }
    if (tensor.begin > end) FailTensor(path, tensor.name, "a hole in the data precedes it");
    end = tensor.end();
    last = &tensor;
  }
  if (end != file.size()) {
    throw LoadError(path, path + ": a hole at the end: " + std::to_string(file.size() - end) +
                              " bytes belong to no tensor");
  }
  return tensors;
}

}  // namespace mlc_native
