#include "weights/mxfp4_weight.h"

#include <utility>
#include <vector>

#include "kernels/packed_format.h"
#include "support/check.h"
#include "support/error.h"
#include "support/half.h"

namespace mlc_native {
namespace {

constexpr int64_t kMxfp4Columns = kernels::LayoutOf(kernels::WeightFormat::kMxfp4).group;
constexpr int64_t kMxfp4BlockBytes = kMxfp4Columns / 2;
constexpr uint8_t kNaNScale = 255;

// bfloat16 bits of 2^(exponent - 127) / 2.
uint16_t HalfOfScale(uint8_t exponent) {
  constexpr int kMantissaBits = 7;
  if (exponent >= 2) return static_cast<uint16_t>((exponent - 1) << kMantissaBits);
  return static_cast<uint16_t>(1 << (kMantissaBits - 2 + exponent));  // subnormal
}

// One of the two tensors of a matrix, of which `row_bytes` are of each row.
struct Mxfp4Part {
  const Checkpoint::Entry* entry = nullptr;
  uint64_t begin = 0;  // of the matrix within the tensor
  int64_t row_bytes = 0;
};

class Mxfp4Weight : public WeightSource {
 public:
  Mxfp4Weight(int64_t rows, int64_t columns, const Mxfp4Part& blocks, const Mxfp4Part& scales)
      : WeightSource({blocks.entry, scales.entry}),
        rows_(rows),
        columns_(columns),
        blocks_(blocks),
        scales_(scales) {}

  DType dtype() const override { return DType::kBFloat16; }
  void Load() override {
    if (readers_.empty()) {
      readers_.push_back(blocks_.entry->Open());
      readers_.push_back(scales_.entry->Open());
    }
  }
  void Drop() override {
    for (const TensorReader& reader : readers_) reader.Finish();
    readers_.clear();
  }
  std::optional<CodeForm> code_form() const override {
    return CodeForm{.bits = 4,
                    .group = kMxfp4Columns,
                    .num_groups = columns_ / kMxfp4Columns,
                    .is_mxfp4 = true};
  }
  int64_t stored_bytes() const override { return rows_ * (blocks_.row_bytes + scales_.row_bytes); }

  void ReadCodes(int64_t begin, int64_t end, int8_t* codes, uint16_t* scales) const override {
    for (const std::byte byte : Read(0, blocks_, begin, end)) {
      *codes++ = static_cast<int8_t>(byte & std::byte{15});
      *codes++ = static_cast<int8_t>(byte >> 4);
    }
    for (const std::byte byte : Read(1, scales_, begin, end)) {
      const auto exponent = static_cast<uint8_t>(byte);
      if (exponent == kNaNScale) {
        const std::string& name = scales_.entry->tensor->name;
        throw LoadError(name, scales_.entry->file->path + ": tensor \"" + name +
                                  "\": a scale is 255, which is no number");
      }
      *scales++ = HalfOfScale(exponent);
    }
  }

  void Decode(int64_t begin, int64_t end, float* out) const override {
    const int64_t num_groups = columns_ / kMxfp4Columns;
    std::vector<int8_t> codes(static_cast<size_t>((end - begin) * columns_));
    std::vector<uint16_t> scales(static_cast<size_t>((end - begin) * num_groups));
    ReadCodes(begin, end, codes.data(), scales.data());
    for (size_t i = 0; i < codes.size(); ++i) {
      const float scale = BFloat16ToFloat(scales[i / kMxfp4Columns]);
      out[i] = scale * static_cast<float>(kernels::kMxfp4Doubled[codes[i]]);
    }
  }

 private:
  std::vector<std::byte> Read(size_t reader, const Mxfp4Part& part, int64_t begin,
                              int64_t end) const {
    MLC_CHECK(!readers_.empty()) << part.entry->tensor->name << " is not loaded";
    std::vector<std::byte> bytes(static_cast<size_t>((end - begin) * part.row_bytes));
    readers_[reader].Read(part.begin + static_cast<uint64_t>(begin * part.row_bytes), bytes);
    return bytes;
  }

  const int64_t rows_;
  const int64_t columns_;
  const Mxfp4Part blocks_;
  const Mxfp4Part scales_;
  std::vector<TensorReader> readers_;  // of both, while it is loaded
};

Mxfp4Part FindPart(const Checkpoint& checkpoint, const std::string& name,
                   const std::vector<int64_t>& shape, const JoinedPlace& joined) {
  const Checkpoint::Entry* entry = checkpoint.Find(name);
  if (entry == nullptr) throw LoadError(name, "the checkpoint lacks tensor \"" + name + '"');
  const TensorInfo& tensor = *entry->tensor;
  JoinedPlace place = joined;
  place.transposed = false;
  const std::vector<int64_t> stored = place.StoredShape(shape);
  if (tensor.dtype_name != "U8" || tensor.shape != stored) {
    throw LoadError(name, entry->file->path + ": tensor \"" + name + "\": is " + tensor.dtype_name +
                              ' ' + ShapeString(tensor.shape) + ", MXFP4 needs U8 " +
                              ShapeString(stored));
  }
  int64_t row_bytes = 1;
  for (size_t i = 1; i < shape.size(); ++i) row_bytes *= shape[i];
  return {.entry = entry,
          .begin = static_cast<uint64_t>(joined.index * shape[0] * row_bytes),
          .row_bytes = row_bytes};
}

}  // namespace

std::string Mxfp4BlocksName(const std::string& base) { return base + "_blocks"; }

std::unique_ptr<WeightSource> OpenMxfp4(const Checkpoint& checkpoint, const std::string& base,
                                        std::span<const int64_t> shape, const JoinedPlace& joined) {
  const int64_t rows = shape[0];
  const int64_t columns = shape[1];
  const std::string blocks = Mxfp4BlocksName(base);
  if (columns % kMxfp4Columns != 0) {
    throw LoadError(blocks, "\"" + base + "\": " + std::to_string(columns) +
                                " columns are no whole groups of " + std::to_string(kMxfp4Columns) +
                                ", which MXFP4 has");
  }
  const int64_t groups = columns / kMxfp4Columns;
  return std::make_unique<Mxfp4Weight>(
      rows, columns, FindPart(checkpoint, blocks, {rows, groups, kMxfp4BlockBytes}, joined),
      FindPart(checkpoint, base + "_scales", {rows, groups}, joined));
}

}  // namespace mlc_native
