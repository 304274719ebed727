// WeightSource is a weight of a checkpoint as rows of floats, or as the integers that are stored.
// The loader packs it.
//
// It is a matrix [rows, columns] or a vector [rows] (columns = 1). Owned by a plan; its rows are
// read by the threads of the pool.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/quantization.h"
#include "kernels/kernels.h"

namespace mlc_native {

// A weight that is stored as scale * code: signed codes of 2 to 8 bits, float16 scales; or codes
// and scales of WeightFormat::kMxfp4, kFloat8 or affine formats.
struct CodeForm {
  int bits = 4;
  int64_t group = 0;       // columns per scale
  int64_t num_groups = 0;  // groups of a row
  bool is_mxfp4 = false;
  bool is_float8 = false;
  // A format whose codes are indices (kernels::TableOf): the codes are values of it.
  std::optional<kernels::WeightFormat> table{};
  bool is_affine = false;  // each scale is followed by a shift

  // Elements of `scales` that a scale takes, with its shift.
  int64_t scale_words() const { return is_float8 || is_affine ? 2 : 1; }
  // True if a weight of this format can hold exactly these codes and scales. Affine formats also
  // hold what has no shifts.
  bool HeldBy(kernels::WeightFormat format) const;
};

// Where a matrix [rows, columns] or a vector [rows] lies in a tensor that joins several.
struct JoinedPlace {
  int64_t count = 0;  // of them, the first dimension; 0: the tensor is of one alone
  int64_t index = 0;
  bool transposed = false;     // [count, columns, rows]
  bool alternating = false;    // stored row 2 i is row i, and 2 i + 1 is row rows / 2 + i
  bool may_be_plain = false;   // of a transposed one: is not where the tensor's shape says so
  bool of_channels = false;    // of a convolution of each channel: [columns, 1, rows], transposed
  bool may_have_ones = false;  // of a vector: further dimensions of one element

  // Returns the shape of the tensor.
  std::vector<int64_t> StoredShape(std::span<const int64_t> shape) const;
};

// Heads whose first `stored` rows or columns are in a tensor, and of which a weight has `padded`
// each: the others are 0.
struct PaddedHeads {
  int64_t stored = 0;
  int64_t padded = 0;  // 0: the tensor has all of the weight
  bool in_columns = false;

  // Where item `i` of the weight's rows or columns is in the tensor; -1: nowhere.
  int64_t StoredAt(int64_t i) const {
    return i % padded < stored ? i / padded * stored + i % padded : -1;
  }
};

class WeightSource {
 public:
  explicit WeightSource(std::vector<const Checkpoint::Entry*> parts) : parts_(std::move(parts)) {}
  virtual ~WeightSource() = default;
  WeightSource(const WeightSource&) = delete;
  WeightSource& operator=(const WeightSource&) = delete;

  // The precision of the values: the type of the stored weight, or of its scales.
  virtual DType dtype() const = 0;
  // Between Load and Drop the rows can be read, by many threads. The loading thread calls both;
  // Load has no effect on a source that is loaded. Drop throws LoadError if a file has changed.
  virtual void Load() = 0;
  virtual void Drop() = 0;

  // Whether the rows are stored as floats, so that ReadRows can read them.
  virtual bool is_stored_as_floats() const { return false; }
  // out = rows [begin, end), row-major in dtype().
  virtual void ReadRows(int64_t begin, int64_t end, std::span<std::byte> out) const;
  // out[(end - begin) * columns] = rows [begin, end).
  virtual void Decode(int64_t begin, int64_t end, float* out) const = 0;

  // Returns nullopt for floats, and for integers of another form.
  virtual std::optional<CodeForm> code_form() const { return std::nullopt; }
  // Fills codes[(end - begin) * columns] and scales[(end - begin) * num_groups * scale_words]
  // (kernels::PackCodes). Requires: there is a code_form.
  virtual void ReadCodes(int64_t begin, int64_t end, int8_t* codes, uint16_t* scales) const;

  // Returns the stored tensors of the weight.
  const std::vector<const Checkpoint::Entry*>& parts() const { return parts_; }
  // Bytes of the checkpoint that the weight takes.
  virtual int64_t stored_bytes() const;

 private:
  std::vector<const Checkpoint::Entry*> parts_;
};

}  // namespace mlc_native
