#include "weights/weight_set.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "support/error.h"
#include "support/half.h"
#include "weights/quantized_formats.h"

namespace mlc_native {
namespace {

// A tensor of floats.
class PlainWeight : public WeightSource {
 public:
  explicit PlainWeight(const Checkpoint::Entry& entry)
      : WeightSource({&entry}),
        entry_(entry),
        columns_(entry.tensor->shape.size() > 1 ? entry.tensor->shape[1] : 1) {}

  DType dtype() const override { return *entry_.tensor->dtype; }
  const std::byte* StoredRows(int64_t row) const override {
    return entry_.tensor->data.data() + row * row_bytes();
  }
  void Decode(int64_t begin, int64_t end, float* out) const override {
    for (int64_t i = begin * columns_; i < end * columns_; ++i) {
      *out++ = LoadElement(dtype(), entry_.tensor->data.data(), i);
    }
  }
  void Drop(int64_t begin, int64_t end) const override {
    const auto bytes = static_cast<size_t>((end - begin) * row_bytes());
    entry_.file->file.Drop({StoredRows(begin), bytes});
  }

 private:
  int64_t row_bytes() const { return columns_ * static_cast<int64_t>(DTypeSize(dtype())); }

  const Checkpoint::Entry& entry_;
  int64_t columns_;
};

void CheckPlain(const Checkpoint::Entry& entry, std::span<const int64_t> shape) {
  const TensorInfo& tensor = *entry.tensor;
  const std::string where = entry.file->path() + ": tensor \"" + tensor.name + "\": ";
  if (!std::ranges::equal(tensor.shape, shape)) {
    throw LoadError(tensor.name, where + "shape " + ShapeString(tensor.shape) +
                                     ", the configuration asks for " + ShapeString(shape));
  }
  if (!tensor.dtype) {
    throw LoadError(tensor.name,
                    where + "dtype " + tensor.dtype_name + ", weights must be F32, BF16 or F16");
  }
}

}  // namespace

std::string WeightSet::QuantizedBase(const std::string& name) const {
  constexpr std::string_view kWeight = ".weight";
  if (!quantization_ || !name.ends_with(kWeight)) return "";
  const std::string base = name.substr(0, name.size() - kWeight.size());
  return checkpoint_.Find(QuantizedTensorName(quantization_->format, base)) == nullptr ? "" : base;
}

bool WeightSet::Has(const std::string& name) const {
  return checkpoint_.Find(name) != nullptr || !QuantizedBase(name).empty();
}

bool WeightSet::IsEmptyBias(const Checkpoint::Entry& entry) const {
  constexpr std::string_view kBias = ".bias";
  const std::string& name = entry.tensor->name;
  if (!name.ends_with(kBias)) return false;
  const std::string base = name.substr(0, name.size() - kBias.size());
  return !QuantizedBase(base + ".weight").empty() &&
         std::ranges::all_of(entry.tensor->data, [](std::byte b) { return b == std::byte{0}; });
}

std::unique_ptr<WeightSource> WeightSet::Open(const std::string& name,
                                              std::span<const int64_t> shape) const {
  const std::string base = QuantizedBase(name);
  if (!base.empty()) return OpenQuantized(*quantization_, checkpoint_, base, shape);
  const Checkpoint::Entry* entry = checkpoint_.Find(name);
  if (entry == nullptr) throw LoadError(name, "the checkpoint lacks tensor \"" + name + '"');
  CheckPlain(*entry, shape);
  return std::make_unique<PlainWeight>(*entry);
}

}  // namespace mlc_native
