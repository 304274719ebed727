#include "model_files/gguf_parts.h"

#include <array>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "support/error.h"

namespace mlc_native {
namespace {

// "x-00002-of-00003.gguf" for part 1 of "x-00001-of-00003.gguf".
std::string PathOfPart(const GgufFile& first, int64_t part, int64_t count) {
  std::array<char, 32> ending;
  const auto write = [&](int64_t number) {
    const int size = std::snprintf(ending.data(), ending.size(), "-%05d-of-%05d.gguf",
                                   static_cast<int>(number), static_cast<int>(count));
    return std::string(ending.data(), static_cast<size_t>(size));
  };
  const std::string own = write(1);
  if (!first.path().ends_with(own)) {
    first.Fail("split.count", "= " + std::to_string(count) + ", so the name must end in \"" + own +
                                  "\", which is that of the first part");
  }
  return first.path().substr(0, first.path().size() - own.size()) + write(part + 1);
}

// Vectors, joined or not, and the matrices of routers and of gates of linear attention are stored
// as floats of 32 bits, whatever the others are; the projection of inputs of layers, what
// residual streams have, and LAuReL stay in the floats of the file that was quantized. So do tables
// of positions and of text types, and heads of classes.
bool SaysNothingOfOthers(const GgufTensor& tensor) {
  const std::string_view name = tensor.name;
  const auto has = [&](std::string_view part) { return name.find(part) != name.npos; };
  return tensor.shape.size() < 2 || name.ends_with(".bias") || has("_norm.") ||
         has("position_embd") || has("token_types") || name.starts_with("cls.") ||
         has("ffn_gate_inp") || has("shortconv.conv") || has("ssm_conv1d") || has("ssm_a") ||
         has("ssm_beta") || has("ssm_ba") || has("ssm_d") ||
         ((has("per_layer_model_proj") || has("altup_") || has("laurel_")) &&
          tensor.type->name == "F32");
}

}  // namespace

GgufParts::GgufParts(const std::string& path) {
  constexpr int64_t kMaxParts = 9999;
  files_.emplace_back(path);
  const int64_t count = first().Integer("split.count").value_or(0);
  if (count < 0 || count > kMaxParts) {
    first().Fail("split.count",
                 "= " + std::to_string(count) + " must be at most " + std::to_string(kMaxParts));
  }
  for (int64_t part = 1; part < count; ++part) {
    const std::string name = PathOfPart(first(), part, count);
    std::error_code ignored;
    if (!std::filesystem::exists(name, ignored)) {
      throw LoadError(name, name + ": is missing, it is part " + std::to_string(part + 1) + " of " +
                                std::to_string(count));
    }
    const GgufFile& file = files_.emplace_back(name);
    if (file.Integer("split.count") != count || file.Integer("split.no") != part) {
      file.Fail("split.no", "and \"split.count\" are not those of part " +
                                std::to_string(part + 1) + " of " + std::to_string(count));
    }
  }
}

GgufParts::Place GgufParts::Find(std::string_view tensor) const {
  for (const GgufFile& file : files_) {
    if (const GgufTensor* found = file.FindTensor(tensor)) return {&file, found};
  }
  return {};
}

const char* GgufParts::DTypeOfMatrices() const {
  const char* dtype = "float16";
  for (const GgufFile& file : files_) {
    for (const GgufTensor& tensor : file.tensors()) {
      if (SaysNothingOfOthers(tensor)) continue;
      const std::string_view type = tensor.type->name;
      if (type == "F32") return "float32";
      if (type == "BF16") dtype = "bfloat16";
    }
  }
  return dtype;
}

}  // namespace mlc_native
