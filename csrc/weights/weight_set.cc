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

// `shape` is that of the tensor.
void CheckPlain(const Checkpoint::Entry& entry, std::span<const int64_t> shape) {
  const TensorInfo& tensor = *entry.tensor;
  const std::string where = entry.file->path + ": tensor \"" + tensor.name + "\": ";
  if (!std::ranges::equal(tensor.shape, shape)) {
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

// The rows of another source in the order that attention expects: those of the first half of a head
// and then those of the second one.
class SortedHeads : public WeightSource {
 public:
  SortedHeads(std::unique_ptr<WeightSource> source, const TensorInfo& tensor)
      : WeightSource(source->parts()),
        source_(std::move(source)),
        head_rows_(tensor.shape[0] / tensor.interleaved_heads),
        columns_(tensor.shape.size() > 1 ? tensor.shape[1] : 1) {}

  DType dtype() const override { return source_->dtype(); }
  void Load() override { source_->Load(); }
  void Drop() override { source_->Drop(); }
  bool is_stored_as_floats() const override { return source_->is_stored_as_floats(); }
  void ReadRows(int64_t begin, int64_t end, std::span<std::byte> out) const override {
    const size_t bytes = static_cast<size_t>(columns_) * DTypeSize(dtype());
    ForRows(begin, end, [&](int64_t row, int64_t i) {
      source_->ReadRows(row, row + 1, out.subspan(static_cast<size_t>(i) * bytes, bytes));
    });
  }
  void Decode(int64_t begin, int64_t end, float* out) const override {
    ForRows(begin, end,
            [&](int64_t row, int64_t i) { source_->Decode(row, row + 1, out + i * columns_); });
  }
  std::optional<CodeForm> code_form() const override { return source_->code_form(); }
  void ReadCodes(int64_t begin, int64_t end, int8_t* codes, uint16_t* scales) const override {
    const CodeForm form = *code_form();
    const int64_t groups = form.num_groups * form.scale_words();
    ForRows(begin, end, [&](int64_t row, int64_t i) {
      source_->ReadCodes(row, row + 1, codes + i * columns_, scales + i * groups);
    });
  }

 private:
  // Calls f(stored row, index) for each row.
  template <typename F>
  void ForRows(int64_t begin, int64_t end, const F& f) const {
    const int64_t half = head_rows_ / 2;
    for (int64_t row = begin; row < end; ++row) {
      const int64_t in_head = row % head_rows_;
      f(row - in_head + 2 * (in_head % half) + in_head / half, row - begin);
    }
  }

  std::unique_ptr<WeightSource> source_;
  int64_t head_rows_;
  int64_t columns_;
};

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
  CheckPlain(*entry, joined.StoredShape(shape));
  if (entry->tensor->dtype == std::nullopt && joined.transposed) {
    return Transposed(OpenGgufBlocks(*entry), shape);
  }
  std::unique_ptr<WeightSource> source =
      entry->tensor->dtype ? OpenPlain(*entry, shape, joined) : OpenGgufBlocks(*entry);
  if (entry->tensor->interleaved_heads == 0) return source;
  return std::make_unique<SortedHeads>(std::move(source), *entry->tensor);
}

}  // namespace mlc_native
