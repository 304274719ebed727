#include "checkpoint/tensor_file.h"

#include <algorithm>
#include <array>
#include <utility>

#include "support/error.h"
#include "support/git_lfs.h"

namespace mlc_native {
namespace {

struct ElementType {
  std::string_view name;
  uint64_t bytes;
};
constexpr std::array<ElementType, 15> kElementTypes{{{"BOOL", 1},
                                                     {"U8", 1},
                                                     {"I8", 1},
                                                     {"F8_E5M2", 1},
                                                     {"F8_E4M3", 1},
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

MappedFile MapTensors(const std::string& path) {
  MappedFile file(path);
  const std::span<const std::byte> bytes = file.bytes();
  if (IsLfsPointer({reinterpret_cast<const char*>(bytes.data()), bytes.size()})) {
    throw LoadError(path, path + ": " + kIsLfsPointer);
  }
  return file;
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

std::vector<TensorInfo> InFileOrder(const std::string& path, std::vector<TensorInfo> tensors,
                                    std::span<const std::byte> data) {
  // Empty tensors come before the one that starts at the same place.
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.data.data(), a.data.size()) < std::pair(b.data.data(), b.data.size());
  });
  const std::byte* end = data.data();
  const TensorInfo* last = nullptr;
  for (const TensorInfo& tensor : tensors) {
    if (last != nullptr && tensor.data.data() < end) {
      FailTensor(path, tensor.name, "overlaps \"" + last->name + '"');
    }
    if (tensor.data.data() > end) FailTensor(path, tensor.name, "a hole in the data precedes it");
    end = tensor.data.data() + tensor.data.size();
    last = &tensor;
  }
  const auto rest = data.data() + data.size() - end;
  if (rest != 0) {
    throw LoadError(
        path, path + ": a hole at the end: " + std::to_string(rest) + " bytes belong to no tensor");
  }
  return tensors;
}

}  // namespace mlc_native
