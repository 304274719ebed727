#include "weights/weight_set.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "support/error.h"
#include "weights/gguf_blocks.h"
#include "weights/mxfp4_weight.h"
#include "weights/plain_weight.h"
#include "weights/quantized_formats.h"
#include "weights/stored_order.h"

namespace mlc_native {
namespace {

bool HoldsZeros(const Checkpoint::Entry& entry) {
  constexpr uint64_t kPart = 1 << 20;
  const TensorReader reader = entry.Open();
  std::vector<std::byte> part;
  for (uint64_t at = 0; at < entry.tensor->bytes; at += part.size()) {
    part.resize(std::min(kPart, entry.tensor->bytes - at));
    reader.Read(at, part);
    if (!std::ranges::all_of(part, [](std::byte b) { return b == std::byte{0}; })) return false;
  }
  return true;
}

bool HasShape(const TensorInfo& tensor, std::span<const int64_t> shape, bool may_have_ones) {
  if (std::ranges::equal(tensor.shape, shape)) return true;
  if (!may_have_ones || shape.size() != 1) return false;
  return std::ranges::count(tensor.shape, 1) + 1 == std::ssize(tensor.shape) &&
         std::ranges::count(tensor.shape, shape[0]) == 1;
}

// `shape` is that of the tensor.
void CheckPlain(const Checkpoint::Entry& entry, std::span<const int64_t> shape,
                bool may_have_ones) {
  const TensorInfo& tensor = *entry.tensor;
  const std::string where = entry.file->path + ": tensor \"" + tensor.name + "\": ";
  if (!HasShape(tensor, shape, may_have_ones)) {
    throw LoadError(tensor.name, where + "shape " + ShapeString(tensor.shape) +
                                     ", the configuration asks for " + ShapeString(shape));
  }
  if (!tensor.dtype && (!IsGgufBlockType(tensor.dtype_name) || shape.size() != 2)) {
    throw LoadError(
        tensor.name,
        where + "dtype " + tensor.dtype_name + ", weights must be F32, BF16 or F16" +
            (entry.file->path.ends_with(".gguf") ? "; matrices also " + GgufBlockTypeList() : ""));
  }
}

}  // namespace

std::string WeightSet::QuantizedBase(const std::string& name) const {
  constexpr std::string_view kWeight = ".weight";
  if (!quantization_) return "";
  if (quantization_->format == QuantizedFormat::kMxfp4) {
    return checkpoint_.Find(Mxfp4BlocksName(name)) == nullptr ? "" : name;
  }
  if (!name.ends_with(kWeight)) return "";
  const std::string base = name.substr(0, name.size() - kWeight.size());
  const Checkpoint::Entry* entry =
      checkpoint_.Find(QuantizedTensorName(quantization_->format, base));
  // FP8 has the name of floats.
  const bool is_there = entry != nullptr && (entry->tensor->name != name || !entry->tensor->dtype);
  return is_there ? base : "";
}

bool WeightSet::Has(const std::string& name) const {
  return checkpoint_.Find(name) != nullptr || !QuantizedBase(name).empty();
}

bool WeightSet::IsEmptyBias(const Checkpoint::Entry& entry) const {
  constexpr std::string_view kBias = ".bias";
  const std::string& name = entry.tensor->name;
  if (!name.ends_with(kBias)) return false;
  const std::string base = name.substr(0, name.size() - kBias.size());
  if (QuantizedBase(base + ".weight").empty()) return false;
  return !checkpoint_.reads_data() || HoldsZeros(entry);
}

std::unique_ptr<WeightSource> WeightSet::Open(const std::string& name,
                                              std::span<const int64_t> shape,
                                              const JoinedPlace& joined) const {
  std::unique_ptr<WeightSource> stored = OpenStored(name, shape, joined);
  return joined.alternating ? InOrder(std::move(stored), shape) : std::move(stored);
}

std::unique_ptr<WeightSource> WeightSet::OpenStored(const std::string& name,
                                                    std::span<const int64_t> shape,
                                                    JoinedPlace joined) const {
  const std::string base = QuantizedBase(name);
  if (!base.empty()) {
    if (quantization_->format == QuantizedFormat::kMxfp4) {
      return OpenMxfp4(checkpoint_, base, shape, joined);
    }
    return OpenQuantized(*quantization_, checkpoint_, base, shape);
  }
  const Checkpoint::Entry* entry = checkpoint_.Find(name);
  if (entry == nullptr) throw LoadError(name, "the checkpoint lacks tensor \"" + name + '"');
  if (joined.may_be_plain) {
    JoinedPlace plain = joined;
    plain.transposed = false;
    if (entry->tensor->shape == plain.StoredShape(shape)) joined = plain;
  }
  CheckPlain(*entry, joined.StoredShape(shape), joined.may_have_ones);
  std::vector<int64_t> stored(shape.begin(), shape.end());
  if (joined.transposed) std::ranges::reverse(stored);
  std::unique_ptr<WeightSource> source = InStoredOrder(
      entry->tensor->dtype ? OpenPlain(*entry, stored, joined.index) : OpenGgufBlocks(*entry),
      *entry->tensor);
  return joined.transposed ? Transposed(std::move(source), shape) : std::move(source);
}

}  // namespace mlc_native
