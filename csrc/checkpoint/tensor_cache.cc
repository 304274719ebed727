#include "checkpoint/tensor_cache.h"

#include <filesystem>
#include <limits>
#include <utility>

#include "support/config_fields.h"
#include "support/error.h"

namespace mlc_native {
namespace {

constexpr const char* kIndexFiles[] = {"tensor-cache.json", "ndarray-cache.json"};
constexpr int64_t kMaxBytes = std::numeric_limits<int64_t>::max();

std::string IndexPath(const std::string& folder) {
  std::error_code ignored;
  for (const char* name : kIndexFiles) {
    std::string path = folder + "/" + name;
    if (std::filesystem::exists(path, ignored)) return path;
  }
  throw LoadError(kIndexFiles[0], folder + ": holds no weights (neither " + kIndexFiles[0] +
                                      " nor " + kIndexFiles[1] + ")");
}

// Names of element types, from MLC-LLM's to those of safetensors.
std::string DTypeName(const ConfigFields& record) {
  const std::string name = record.String("dtype", "");
  // The values were rounded to bfloat16 to save space.
  const std::string format = record.String("format", "raw");
  if (format != "raw" && format != "f32-to-bf16") {
    record.FailValue("format", "\"raw\" or \"f32-to-bf16\"");
  }
  if (name == "float32") return format == "raw" ? "F32" : "BF16";
  if (name == "float16") return "F16";
  if (name == "bfloat16") return "BF16";
  if (name == "uint32") return "U32";
  if (name == "int32") return "I32";
  if (name == "uint8") return "U8";
  if (name == "int8") return "I8";
  record.FailValue("dtype", "one of float32, float16, bfloat16, uint32, int32, uint8, int8");
}

TensorInfo ReadTensor(const ConfigFields& record, const RegularFile& file) {
  TensorInfo tensor;
  tensor.name = record.String("name", "");
  if (tensor.name.empty()) record.FailValue("name", "a string that is not empty");
  tensor.dtype_name = DTypeName(record);
  tensor.dtype = WeightDType(tensor.dtype_name);
  tensor.shape = record.Sizes("shape");
  const auto begin =
      static_cast<uint64_t>(record.Integer("byteOffset", std::nullopt, 0, kMaxBytes));
  const auto bytes = static_cast<uint64_t>(record.Integer("nbytes", std::nullopt, 0, kMaxBytes));
  const uint64_t size = file.size();
  if (begin > size || bytes > size - begin) {
    FailTensor(file.path(), tensor.name,
               std::to_string(bytes) + " bytes at " + std::to_string(begin) + " leave the file's " +
                   std::to_string(size) + " bytes (truncated?)");
  }
  const uint64_t needed = *TensorBytes(file.path(), tensor);
  if (bytes != needed) {
    FailTensor(file.path(), tensor.name,
               "shape " + ShapeString(tensor.shape) + " of " + tensor.dtype_name + " needs " +
                   std::to_string(needed) + " bytes, nbytes is " + std::to_string(bytes));
  }
  tensor.begin = begin;
  tensor.bytes = bytes;
  return tensor;
}

TensorFile ReadShard(const std::string& folder, const ConfigFields& shard) {
  const std::string name = shard.String("dataPath", "");
  if (!IsPlainFileName(name)) shard.FailValue("dataPath", "the name of a file in this folder");
  if (shard.String("format", "raw-shard") != "raw-shard") {
    shard.FailValue("format", "\"raw-shard\"");
  }
  const RegularFile file = OpenTensors(folder + "/" + name);
  const auto size = static_cast<int64_t>(file.size());
  if (shard.Integer("nbytes", size, 0, kMaxBytes) != size) {
    throw LoadError(
        name, file.path() + ": has " + std::to_string(size) + " bytes, the list of tensors says " +
                  std::to_string(shard.Integer("nbytes", size, 0, kMaxBytes)) + " (truncated?)");
  }
  std::vector<TensorInfo> tensors;
  for (const ConfigFields& record : shard.Objects("records")) {
    tensors.push_back(ReadTensor(record, file));
  }
  return {file.path(), file.stamp(), InFileOrder(file, std::move(tensors), 0)};
}

}  // namespace

std::vector<TensorFile> ReadTensorCache(const std::string& folder) {
  const ConfigFields index = ConfigFields::ReadFile(IndexPath(folder));
  std::vector<TensorFile> files;
  for (const ConfigFields& shard : index.Objects("records")) {
    files.push_back(ReadShard(folder, shard));
  }
  return files;
}

}  // namespace mlc_native
