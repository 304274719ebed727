#include "weights/weight_set.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "support/check.h"
#include "support/error.h"
#include "support/half.h"
#include "weights/quantized_formats.h"

namespace mlc_native {
namespace {

// A tensor of floats, or a slice of one.
class PlainWeight : public WeightSource {
 public:
  PlainWeight(const Checkpoint::Entry& entry, std::optional<int64_t> slice)
      : WeightSource({&entry}), entry_(entry) {
    std::span<const int64_t> shape = entry.tensor->shape;
    bytes_ = entry.tensor->bytes;
    if (slice) {
      bytes_ /= static_cast<uint64_t>(shape.front());
      begin_ = bytes_ * static_cast<uint64_t>(*slice);
      shape = shape.subspan(1);
    }
    columns_ = shape.size() > 1 ? shape[1] : 1;
  }

  DType dtype() const override { return *entry_.tensor->dtype; }
  void Load() override {
    if (!reader_) reader_.emplace(entry_.Open());
  }
  void Drop() override {
    if (reader_) reader_->Finish();
    reader_.reset();
  }
  bool is_stored_as_floats() const override { return true; }
  void ReadRows(int64_t begin, int64_t /*end*/, std::span<std::byte> out) const override {
    MLC_CHECK(reader_.has_value()) << entry_.tensor->name << " is not loaded";
    reader_->Read(begin_ + static_cast<uint64_t>(begin * columns_) * DTypeSize(dtype()), out);
  }
  int64_t stored_bytes() const override { return static_cast<int64_t>(bytes_); }
  void Decode(int64_t begin, int64_t end, float* out) const override {
    const int64_t count = (end - begin) * columns_;
    std::vector<std::byte> rows(static_cast<size_t>(count) * DTypeSize(dtype()));
    ReadRows(begin, end, rows);
    for (int64_t i = 0; i < count; ++i) out[i] = LoadElement(dtype(), rows.data(), i);
  }

 private:
  const Checkpoint::Entry& entry_;
  uint64_t begin_ = 0;  // of the slice within the tensor
  uint64_t bytes_ = 0;
  int64_t columns_ = 1;
  std::optional<TensorReader> reader_;
};

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

void CheckPlain(const Checkpoint::Entry& entry, std::span<const int64_t> shape) {
  const TensorInfo& tensor = *entry.tensor;
  const std::string where = entry.file->path + ": tensor \"" + tensor.name + "\": ";
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
  if (QuantizedBase(base + ".weight").empty()) return false;
  return !checkpoint_.reads_data() || HoldsZeros(entry);
}

std::unique_ptr<WeightSource> WeightSet::Open(const std::string& name,
                                              std::span<const int64_t> shape,
                                              std::optional<int64_t> slice) const {
  const std::string base = QuantizedBase(name);
  if (!base.empty()) return OpenQuantized(*quantization_, checkpoint_, base, shape);
  const Checkpoint::Entry* entry = checkpoint_.Find(name);
  if (entry == nullptr) throw LoadError(name, "the checkpoint lacks tensor \"" + name + '"');
  CheckPlain(*entry, shape);
  return std::make_unique<PlainWeight>(*entry, slice);
}

}  // namespace mlc_native
