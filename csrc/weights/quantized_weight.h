// Matrices stored as small integers with scales, the common form of all quantized checkpoints:
//
//   weight[row, column] = (q[row, column] - zero[row, group]) * scale[row, group]
//
// in float32, where the difference is exact and the product is rounded once. Formats differ only in
// the places of these integers. Rows may be scattered over the tensors, which are therefore read as
// a whole.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "weights/tensor_storage.h"
#include "weights/weight_source.h"

namespace mlc_native {

// The bytes of a stored tensor, in memory from Load to Drop. Owned by a source.
class LoadedTensor {
 public:
  // The entry must outlive it.
  explicit LoadedTensor(const Checkpoint::Entry& entry) : entry_(entry) {}

  const Checkpoint::Entry& entry() const { return entry_; }
  void Load();
  void Drop() { bytes_.reset(); }
  // Requires: it is loaded.
  const std::byte* data() const { return bytes_->data(); }

 private:
  const Checkpoint::Entry& entry_;
  std::optional<TensorStorage> bytes_;
};

// Unsigned integers of `bits` bits in little-endian 32-bit words, lowest bits first. A word holds
// 32 / bits neighbours of one row, or of one column; its remaining bits are unused. Dense ones have
// no unused bits: an integer may begin in one word and end in the next.
struct PackedIntegers {
  const LoadedTensor* words = nullptr;
  int bits = 4;
  bool along_rows = false;   // a word holds neighbouring rows of one column
  bool interleaved = false;  // of 8 integers the even ones come first, as in AWQ
  bool dense = false;
  int64_t row_stride = 0;  // words from one (packed) row to the next
  int64_t column_stride = 0;

  int64_t per_word() const { return 32 / bits; }
  // Writes the first `count` integers of a row. Requires: `out` has room for a multiple of
  // per_word().
  void UnpackRow(int64_t row, int64_t count, uint8_t* out) const;

 private:
  void UnpackDenseRow(int64_t row, int64_t count, uint8_t* out) const;
};

struct Scales {
  DType dtype = DType::kFloat32;
  const LoadedTensor* tensor = nullptr;
  int64_t row_stride = 0;  // elements
  int64_t group_stride = 0;
};

// packed + offset (modulo 2^bits), or bytes + offset, or offset.
struct ZeroPoints {
  std::optional<PackedIntegers> packed;  // [rows, groups]
  const LoadedTensor* bytes = nullptr;   // int8
  int64_t row_stride = 0;                // of bytes
  int offset = 0;
};

// The group of each column: column / group_size, or as listed.
struct ColumnGroups {
  int64_t count = 1;
  int64_t group_size = 0;
  std::vector<int32_t> of_column;  // empty: by group_size
};

using LoadedTensors = std::vector<std::unique_ptr<LoadedTensor>>;

// A weight whose tensors are read as a whole and owned by it.
class WeightOfTensors : public WeightSource {
 public:
  void Load() override {
    for (const auto& tensor : tensors_) tensor->Load();
  }
  void Drop() override {
    for (const auto& tensor : tensors_) tensor->Drop();
  }

 protected:
  WeightOfTensors(std::vector<const Checkpoint::Entry*> stored, LoadedTensors tensors)
      : WeightSource(std::move(stored)), tensors_(std::move(tensors)) {}

 private:
  LoadedTensors tensors_;
};

struct QuantizedParts {
  LoadedTensors tensors;  // which the others refer to
  PackedIntegers integers;
  Scales scales;
  ZeroPoints zeros;
  ColumnGroups groups;
  bool reads_data = true;  // of the checkpoint; else zero points are taken to fit 6 or 8 bits
};

class QuantizedWeight : public WeightSource {
 public:
  // `stored` are all tensors of the weight, also those that the parts do not need any more.
  QuantizedWeight(std::vector<const Checkpoint::Entry*> stored, int64_t rows, int64_t columns,
                  QuantizedParts parts);

  void Load() override;
  void Drop() override;
  DType dtype() const override { return parts_.scales.dtype; }
  void Decode(int64_t begin, int64_t end, float* out) const override;
  std::optional<CodeForm> code_form() const override { return code_form_; }
  void ReadCodes(int64_t begin, int64_t end, int8_t* codes, uint16_t* scales) const override;

 private:
  struct Row;  // scratch of one row
  Row MakeRow() const;
  void ReadRow(int64_t row, Row& scratch) const;
  void ReadGroups(int64_t row, Row& scratch) const;
  void Scale(const Row& scratch, float* out) const;
  int LargestInteger() const { return (1 << parts_.integers.bits) - 1; }
  // True if each q - zero, or each zero - q, is in [-half, half).
  bool FitsHalf(int zero, int half) const;
  std::optional<CodeForm> FindCodeForm();

  int64_t rows_;
  int64_t columns_;
  QuantizedParts parts_;
  std::optional<CodeForm> code_form_;
  bool is_loaded_ = false;
};

}  // namespace mlc_native
