// WeightSource is a weight of a checkpoint as rows of floats, or as the integers that are stored.
// The loader packs it.
//
// It is a matrix [rows, columns] or a vector [rows] (columns = 1). Immutable; thread-safe.
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

// A weight that is stored as scale * code: signed codes of 4 or 8 bits, float16 scales.
struct CodeForm {
  int bits = 4;
  int64_t group = 0;       // columns per scale
  int64_t num_groups = 0;  // groups of a row

  // True if a weight of this format can hold exactly these codes and scales.
  bool HeldBy(kernels::WeightFormat format) const;
};

class WeightSource {
 public:
  explicit WeightSource(std::vector<const Checkpoint::Entry*> parts) : parts_(std::move(parts)) {}
  virtual ~WeightSource() = default;
  WeightSource(const WeightSource&) = delete;
  WeightSource& operator=(const WeightSource&) = delete;

  // The precision of the values: the type of the stored weight, or of its scales.
  virtual DType dtype() const = 0;
  // Returns the rows from `row` on as stored in the file: dtype(), row-major, possibly unaligned.
  // Null if they are not stored as floats; use Decode then.
  virtual const std::byte* StoredRows(int64_t /*row*/) const { return nullptr; }
  // out[(end - begin) * columns] = rows [begin, end).
  virtual void Decode(int64_t begin, int64_t end, float* out) const = 0;

  // Returns nullopt for floats, and for integers of another form.
  virtual std::optional<CodeForm> code_form() const { return std::nullopt; }
  // Fills codes[(end - begin) * columns] and scales[(end - begin) * num_groups] (float16 bits).
  // Requires: there is a code_form.
  virtual void ReadCodes(int64_t begin, int64_t end, int8_t* codes, uint16_t* scales) const;

  // Releases the memory of the map behind rows [begin, end), which are no longer needed.
  virtual void Drop(int64_t begin, int64_t end) const = 0;

  // Returns the stored tensors of the weight.
  const std::vector<const Checkpoint::Entry*>& parts() const { return parts_; }
  int64_t stored_bytes() const;

 private:
  std::vector<const Checkpoint::Entry*> parts_;
};

}  // namespace mlc_native
