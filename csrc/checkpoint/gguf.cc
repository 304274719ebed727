#include "checkpoint/gguf.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>

#include "model_files/gguf_families.h"
#include "model_files/gguf_file.h"
#include "model_files/gguf_parts.h"
#include "support/error.h"

namespace mlc_native {
namespace {

// Cuts "blk.7.attn_q.weight" into "7", "attn_q" and "weight"; outside of layers the first is "".
// "blk.7.ssm_a" and "blk.7.ffn_gate_inp.scale" have no ending.
std::array<std::string_view, 3> Cut(std::string_view name) {
  constexpr std::string_view kBlock = "blk.";
  std::string_view layer, ending;
  if (name.starts_with(kBlock) && name.find('.', kBlock.size()) != name.npos) {
    layer = name.substr(kBlock.size(), name.find('.', kBlock.size()) - kBlock.size());
    name.remove_prefix(kBlock.size() + layer.size() + 1);
  }
  for (const std::string_view known : {"weight", "bias"}) {
    if (name.size() <= known.size() || !name.ends_with(known)) continue;
    const size_t dot = name.size() - known.size() - 1;
    if (name[dot] != '.') continue;
    ending = known;
    name = name.substr(0, dot);
    break;
  }
  return {layer, name, ending};
}

// The tensors of a file under the names of transformers.
class Converter {
 public:
  // The parts must outlive it.
  explicit Converter(const GgufParts& parts) : parts_(parts), family_(FamilyOf(parts.first())) {
    const GgufFile& first = parts.first();
    const std::string key = std::string(family_.name) + ".attention.head_count";
    heads_ = first.IntegerOfLayers(key).value_or(0);
    const bool may_differ = family_.layers_differ || family_.has_convolutions ||
                            family_.decays_channels || family_.mamba != GgufMamba::kNone;
    if (may_differ && first.IsList(key + "_kv")) {
      kv_heads_of_layers_ = first.Integers(key + "_kv");
    } else {
      kv_heads_ = first.IntegerOfLayers(key + "_kv").value_or(heads_);
    }
    if (!family_.tiles_value_heads) return;
    const auto size = [&](const char* name) {
      constexpr int64_t kMost = 1 << 24;  // above what the reader of the configuration allows
      const std::string ssm = std::string(family_.name) + ".ssm.";
      return std::clamp(first.Integer(ssm + name).value_or(0), int64_t{0}, kMost);
    };
    key_heads_ = size("group_count");
    keys_size_ = key_heads_ * size("state_size");
    value_heads_ = size("time_step_rank");
  }

  TensorFile Convert(const GgufFile& file) const {
    TensorFile out{file.path(), file.stamp(), {}};
    for (const GgufTensor& tensor : file.tensors()) {
      const size_t before = out.tensors.size();
      if (IsScaleOfNvfp4(tensor)) continue;
      Add(file, tensor, &out);
      if (tensor.type->name == kNvfp4) Scale(tensor, std::span(out.tensors).subspan(before));
    }
    AddActivations(file, &out);
    std::ranges::sort(out.tensors, {}, &TensorInfo::begin);
    return out;
  }

 private:
  static constexpr std::string_view kNvfp4 = "NVFP4", kWeight = ".weight", kScale = ".scale";

  static std::string WithEnding(std::string_view name, std::string_view old,
                                std::string_view ending) {
    return std::string(name.substr(0, name.size() - old.size())).append(ending);
  }
  bool IsScaleOfNvfp4(const GgufTensor& tensor) const {
    if (!tensor.name.ends_with(kScale)) return false;
    const GgufTensor* of = parts_.Find(WithEnding(tensor.name, kScale, kWeight)).tensor;
    return of != nullptr && of->type->name == kNvfp4;
  }
  // A matrix of NVFP4 has a scale in a tensor of its own, and one of all experts a scale of each.
  // `made` became of it.
  void Scale(const GgufTensor& tensor, std::span<TensorInfo> made) const {
    if (!tensor.name.ends_with(kWeight)) return;
    const auto [file, found] = parts_.Find(WithEnding(tensor.name, kWeight, kScale));
    if (found == nullptr) return;
    const std::vector<double> scales = file->ReadFloats(*found);
    if (scales.empty() || made.size() % scales.size() != 0) {
      FailTensor(file->path(), found->name,
                 "has " + std::to_string(scales.size()) + " scales for " +
                     std::to_string(made.size()) + " matrices");
    }
    for (size_t i = 0; i < made.size(); ++i) {
      made[i].scale = static_cast<float>(scales[i / (made.size() / scales.size())]);
      if (!std::isfinite(made[i].scale)) FailTensor(file->path(), found->name, "is not finite");
    }
  }

  void Add(const GgufFile& file, const GgufTensor& tensor, TensorFile* out) const {
    const auto [layer, stored, ending] = Cut(tensor.name);
    TensorInfo info{.name = tensor.name,
                    .dtype_name = std::string(tensor.type->name),
                    .dtype = WeightDType(tensor.type->name),
                    .shape = tensor.shape,
                    .begin = tensor.begin,
                    .bytes = tensor.bytes};
    const GgufTensorName* name =
        layer.empty() ? FindGgufTensorOutside(family_, stored) : FindGgufTensor(family_, stored);
    const std::string before =
        layer.empty() ? "" : std::string(family_.layers) + std::string(layer) + '.';
    std::string after = ending.empty() ? "" : '.' + std::string(ending);
    if (name == nullptr) {
      if (stored == "attn_qkv") return AddFusedQkv(file, info, KvHeads(layer), before, after, out);
      if (stored == "ffn_gate_up_exps") return AddFusedExperts(file, info, before, after, out);
      return Put(std::move(info), out);  // which nothing uses
    }
    if (ending.empty()) after = ".weight";  // as converters of some families leave out
    info.name = before + std::string(name->plain) + (name->has_ending ? after : "");
    if (name->plain.find('#') != name->plain.npos) return AddEach(file, info, out);
    FindTiles(file, name->value_heads, &info);
    info.is_negative_power = name->is_negative_power;
    if (!name->has_ending || ending != "bias") FitDimensions(*name, &info.shape);
    if (family_.interleaves_heads && stored == "attn_q") Interleave(file, heads_, &info);
    if (family_.interleaves_heads && stored == "attn_k") Interleave(file, KvHeads(layer), &info);
    Put(std::move(info), out);
  }

  static void Put(TensorInfo info, TensorFile* out) {
    if (out->tensors.size() >= kMaxTensors) {
      FailTensor(out->path, info.name,
                 "is more than tensor " + std::to_string(kMaxTensors) + ", which is the limit");
    }
    out->tensors.push_back(std::move(info));
  }

  static void FitDimensions(const GgufTensorName& name, std::vector<int64_t>* shape) {
    const size_t count = name.num_dimensions;
    if (count == 1 && shape->size() > 1) {
      *shape = {std::accumulate(shape->begin(), shape->end(), int64_t{1}, std::multiplies())};
    }
    const size_t place = std::min(name.place_of_ones, shape->size());
    const auto at = [&] { return shape->begin() + static_cast<std::ptrdiff_t>(place); };
    while (count > shape->size()) shape->insert(at(), 1);
    while (count != 0 && count < shape->size() && *at() == 1) shape->erase(at());
  }

  // The configuration refuses numbers of heads that do not fit together.
  void FindTiles(const GgufFile& file, GgufValueHeads heads, TensorInfo* info) const {
    if (heads == GgufValueHeads::kNone || info->shape.empty() || key_heads_ < 1 ||
        value_heads_ <= key_heads_ || value_heads_ % key_heads_ != 0) {
      return;
    }
    const bool in_columns = heads == GgufValueHeads::kColumns;
    const int64_t first = heads == GgufValueHeads::kRowsBehindKeys ? 2 * keys_size_ : 0;
    const int64_t size = in_columns ? info->shape.back() : info->shape.front();
    if (size <= first || (size - first) % value_heads_ != 0) {
      FailTensor(file.path(), info->name,
                 "shape " + ShapeString(info->shape) + " is not that of " +
                     std::to_string(value_heads_) + " value heads of linear attention");
    }
    info->tiled_heads = {.key_heads = key_heads_,
                         .size = (size - first) / value_heads_,
                         .first = first,
                         .in_columns = in_columns};
  }

  static void Interleave(const GgufFile& file, int64_t heads, TensorInfo* info) {
    const int64_t rows = info->shape[0];
    info->interleaved_heads = heads;
    if (heads == 0 || (heads > 0 && heads <= rows && rows % (2 * heads) == 0)) return;
    FailTensor(file.path(), info->name,
               std::to_string(rows) + " rows are not those of " + std::to_string(heads) +
                   " heads of even size");
  }

  // A tensor for each element of the first dimension.
  static void AddEach(const GgufFile& file, const TensorInfo& joined, TensorFile* out) {
    const int64_t count = joined.shape[0];
    if (joined.shape.size() < 2 || static_cast<uint64_t>(count) > kMaxTensors) {
      FailTensor(file.path(), joined.name,
                 "shape " + ShapeString(joined.shape) + " is not that of 1 to " +
                     std::to_string(kMaxTensors) + " tensors");
    }
    const size_t place = joined.name.find('#');
    const uint64_t bytes = joined.bytes / static_cast<uint64_t>(count);
    for (int64_t i = 0; i < count; ++i) {
      TensorInfo info = joined;
      info.name.replace(place, 1, std::to_string(i));
      info.shape.erase(info.shape.begin());
      info.begin += static_cast<uint64_t>(i) * bytes;
      info.bytes = bytes;
      Put(std::move(info), out);
    }
  }

  int64_t KvHeads(std::string_view layer) const {
    if (kv_heads_of_layers_.empty()) return kv_heads_;
    size_t number = kv_heads_of_layers_.size();
    std::from_chars(layer.data(), layer.data() + layer.size(), number);
    return number < kv_heads_of_layers_.size() ? kv_heads_of_layers_[number] : 0;
  }

  // The rows of q, of k and of v.
  void AddFusedQkv(const GgufFile& file, const TensorInfo& fused, int64_t kv_heads,
                   const std::string& before, const std::string& after, TensorFile* out) const {
    const int64_t rows = fused.shape[0];
    const bool sane = heads_ > 0 && heads_ <= rows && kv_heads > 0 && kv_heads <= heads_;
    const int64_t all = sane ? heads_ + 2 * kv_heads : 1;  // as many heads
    if (!sane || rows % all != 0) {
      FailTensor(file.path(), fused.name,
                 std::to_string(rows) + " rows are not those of " + std::to_string(heads_) +
                     " heads of q and " + std::to_string(kv_heads) + " of k and of v");
    }
    const uint64_t row_bytes = fused.bytes / static_cast<uint64_t>(rows);
    int64_t row = 0;
    for (const char* part : {"attn_q", "attn_k", "attn_v"}) {
      const bool is_q = row == 0;
      TensorInfo info = fused;
      info.name = before + std::string(FindGgufTensor(family_, part)->plain) + after;
      info.shape[0] = rows / all * (is_q ? heads_ : kv_heads);
      info.begin += static_cast<uint64_t>(row) * row_bytes;
      info.bytes = static_cast<uint64_t>(info.shape[0]) * row_bytes;
      row += info.shape[0];
      const bool is_v = row == rows;
      if (family_.interleaves_heads && !is_v) Interleave(file, is_q ? heads_ : kv_heads, &info);
      Put(std::move(info), out);
    }
  }

  // Of each expert the rows of the gate and those of up.
  static void AddFusedExperts(const GgufFile& file, const TensorInfo& fused,
                              const std::string& before, const std::string& after,
                              TensorFile* out) {
    TensorFile each{file.path(), file.stamp(), {}};
    TensorInfo joined = fused;
    joined.name = before + "mlp.experts.#." + after;
    AddEach(file, joined, &each);
    for (size_t i = 0; i < each.tensors.size(); ++i) {
      const TensorInfo& expert = each.tensors[i];
      if (expert.shape[0] % 2 != 0) {
        FailTensor(file.path(), fused.name,
                   "shape " + ShapeString(fused.shape) + " is not that of a gate and of up");
      }
      for (const bool is_up : {false, true}) {
        TensorInfo half = expert;
        half.name = before + "mlp.experts." + std::to_string(i) +
                    (is_up ? ".up_proj" : ".gate_proj") + after;
        half.shape[0] /= 2;
        half.bytes /= 2;
        if (is_up) half.begin += half.bytes;
        Put(std::move(half), out);
      }
    }
  }

  // The numbers of xIELU are lists of the metadata, with an element for each layer.
  static void AddActivations(const GgufFile& file, TensorFile* out) {
    for (const char* name : {"alpha_p", "alpha_n"}) {
      const auto place = file.PlaceOfFloats(std::string("xielu.") + name);
      for (uint64_t i = 0; place && i < place->count; ++i) {
        Put({.name = "model.layers." + std::to_string(i) + ".mlp.act_fn." + name,
             .dtype_name = "F32",
             .dtype = DType::kFloat32,
             .shape = {1},
             .begin = place->begin + i * sizeof(float),
             .bytes = sizeof(float)},
            out);
      }
    }
  }

  const GgufParts& parts_;
  const GgufFamily& family_;
  int64_t heads_ = 0;
  int64_t kv_heads_ = 0;
  std::vector<int64_t> kv_heads_of_layers_;  // where these differ, else empty
  // Of linear attention whose value heads are tiled.
  int64_t key_heads_ = 0;
  int64_t keys_size_ = 0;  // of all heads
  int64_t value_heads_ = 0;
};

}  // namespace

std::vector<TensorFile> ReadGguf(const std::string& path) {
  const GgufParts parts(path);
  const Converter converter(parts);
  std::vector<TensorFile> files;
  for (const GgufFile& file : parts.files()) files.push_back(converter.Convert(file));
  return files;
}

}  // namespace mlc_native
