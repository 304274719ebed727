#include "checkpoint/gguf.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "model_files/gguf_config.h"
#include "model_files/gguf_file.h"
#include "support/error.h"

namespace mlc_native {
namespace {

struct TensorName {
  std::string_view stored;
  std::string_view plain;
};
constexpr TensorName kOutside[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
};
// "blk.7.<stored>.weight"; what the family says is added.
constexpr TensorName kInLayers[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_qkv", "self_attn.qkv_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_gate_inp", "mlp.gate"},
    {"ffn_down", "mlp.down_proj"},
    {"post_attention_norm", "post_attention_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
};

// One tensor with the matrices of all experts; "model.layers.7.mlp.experts.3.<plain>.weight".
constexpr TensorName kOfExperts[] = {
    {"ffn_gate_exps", "gate_proj"},
    {"ffn_up_exps", "up_proj"},
    {"ffn_down_exps", "down_proj"},
};

template <size_t kSize>
std::optional<std::string_view> Find(const TensorName (&names)[kSize], std::string_view stored) {
  const auto* found = std::ranges::find(names, stored, &TensorName::stored);
  return found == std::end(names) ? std::nullopt : std::optional(found->plain);
}

std::optional<std::string_view> FindInLayer(const GgufFamily& family, std::string_view stored) {
  if (stored == "ffn_norm") return family.ffn_norm;
  if (stored == "ffn_up") return family.ffn_up;
  return Find(kInLayers, stored);
}

// Cuts "blk.7.attn_q.weight" into "7", "attn_q" and "weight"; outside of layers the first is "".
std::array<std::string_view, 3> Cut(std::string_view name) {
  constexpr std::string_view kBlock = "blk.";
  const size_t ending = std::min(name.rfind('.'), name.size());
  const std::string_view suffix = name.substr(std::min(ending + 1, name.size()));
  if (!name.starts_with(kBlock)) return {"", name.substr(0, ending), suffix};
  const size_t dot = name.find('.', kBlock.size());
  if (dot == std::string_view::npos || dot >= ending) return {"", name, ""};
  return {name.substr(kBlock.size(), dot - kBlock.size()), name.substr(dot + 1, ending - dot - 1),
          suffix};
}

// A tensor that has no other name keeps its own; nothing uses it.
std::string PlainName(const GgufFamily& family, const std::string& name) {
  const auto [layer, stored, suffix] = Cut(name);
  const auto plain = layer.empty() ? Find(kOutside, stored) : FindInLayer(family, stored);
  if (!plain) return name;
  const std::string place = layer.empty() ? "" : "model.layers." + std::string(layer) + ".";
  return place + std::string(*plain) + "." + std::string(suffix);
}

class Converter {
 public:
  explicit Converter(const GgufFile& first) : family_(FamilyOf(first)) {
    if (!family_.interleaves_heads) return;
    const std::string key = std::string(family_.name) + ".attention.head_count";
    heads_ = first.Integer(key).value_or(0);
    kv_heads_ = first.Integer(key + "_kv").value_or(heads_);
  }

  TensorFile Convert(const GgufFile& file) const {
    TensorFile out{file.path(), file.stamp(), {}};
    for (const GgufTensor& tensor : file.tensors()) {
      if (!AddExperts(file, tensor, &out.tensors)) out.tensors.push_back(Convert(file, tensor));
    }
    std::ranges::sort(out.tensors, {}, &TensorInfo::begin);
    return out;
  }

 private:
  // Returns false for a tensor of no experts.
  static bool AddExperts(const GgufFile& file, const GgufTensor& tensor,
                         std::vector<TensorInfo>* out) {
    const auto [layer, stored, suffix] = Cut(tensor.name);
    const auto plain = Find(kOfExperts, stored);
    if (!plain) return false;
    const int64_t count = tensor.shape[0];
    if (tensor.shape.size() != 3 || static_cast<uint64_t>(count) > kMaxTensors) {
      FailTensor(file.path(), tensor.name,
                 "shape " + ShapeString(tensor.shape) + " is not [experts, rows, columns]");
    }
    const uint64_t bytes = tensor.bytes / static_cast<uint64_t>(count);
    for (int64_t expert = 0; expert < count; ++expert) {
      out->push_back({.name = "model.layers." + std::string(layer) + ".mlp.experts." +
                              std::to_string(expert) + "." + std::string(*plain) + "." +
                              std::string(suffix),
                      .dtype_name = std::string(tensor.type->name),
                      .dtype = WeightDType(tensor.type->name),
                      .shape = {tensor.shape[1], tensor.shape[2]},
                      .begin = tensor.begin + static_cast<uint64_t>(expert) * bytes,
                      .bytes = bytes});
    }
    return true;
  }

  TensorInfo Convert(const GgufFile& file, const GgufTensor& tensor) const {
    TensorInfo info{.name = PlainName(family_, tensor.name),
                    .dtype_name = std::string(tensor.type->name),
                    .dtype = WeightDType(tensor.type->name),
                    .shape = tensor.shape,
                    .begin = tensor.begin,
                    .bytes = tensor.bytes};
    if (!family_.interleaves_heads) return info;
    const std::string_view stored = Cut(tensor.name)[1];
    if (stored == "attn_q") info.interleaved_heads = heads_;
    if (stored == "attn_k") info.interleaved_heads = kv_heads_;
    const int64_t heads = info.interleaved_heads;
    if (heads != 0 && (heads < 0 || info.shape[0] % (2 * heads) != 0)) {
      FailTensor(file.path(), info.name,
                 std::to_string(info.shape[0]) + " rows are not those of " + std::to_string(heads) +
                     " heads of even size");
    }
    return info;
  }

  const GgufFamily& family_;
  int64_t heads_ = 0;
  int64_t kv_heads_ = 0;
};

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

}  // namespace

std::vector<TensorFile> ReadGguf(const std::string& path) {
  constexpr int64_t kMaxParts = 9999;
  const GgufFile first(path);
  const Converter converter(first);
  const int64_t count = first.Integer("split.count").value_or(0);
  if (count < 0 || count > kMaxParts) {
    first.Fail("split.count",
               "= " + std::to_string(count) + " must be at most " + std::to_string(kMaxParts));
  }
  std::vector<TensorFile> files;
  files.push_back(converter.Convert(first));
  for (int64_t part = 1; part < count; ++part) {
    const std::string name = PathOfPart(first, part, count);
    if (!std::filesystem::exists(name)) {
      throw LoadError(name, name + ": is missing, it is part " + std::to_string(part + 1) + " of " +
                                std::to_string(count));
    }
    const GgufFile file(name);
    if (file.Integer("split.count") != count || file.Integer("split.no") != part) {
      file.Fail("split.no", "and \"split.count\" are not those of part " +
                                std::to_string(part + 1) + " of " + std::to_string(count));
    }
    files.push_back(converter.Convert(file));
  }
  return files;
}

}  // namespace mlc_native
