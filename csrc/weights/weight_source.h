// A weight of a checkpoint as rows of floats, whatever form it is stored in, or as the integers
// that it is stored as: what the loader packs.
//
// A matrix [rows, columns] or a vector [rows] (columns = 1). Immutable; any thread, many at a time.
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
  int64_t group = 0;       // columns with one scale
  int64_t num_groups = 0;  // of a row

  // Whether a weight of this format has these very codes and scales.
  bool HeldBy(kernels::WeightFormat format) const;
};

class WeightSource {
 public:
  explicit WeightSource(std::vector<const Checkpoint::Entry*> parts) : parts_(std::move(parts)) {}
  virtual ~WeightSource() = default;
  WeightSource(const WeightSource&) = delete;
  WeightSource& operator=(const WeightSource&) = delete;

  // Precision of the values: the type of the stored weight, or of its scales.
  virtual DType dtype() const = 0;
  // Rows from `row` on as the file holds them: dtype(), row-major, maybe unaligned. nullptr: not
  // stored as floats, Decode them.
  virtual const std::byte* StoredRows(int64_t /*row*/) const { return nullptr; }
  // out[(end - begin) * columns] = rows [begin, end).
  virtual void Decode(int64_t begin, int64_t end, float* out) const = 0;

  // nullopt: floats, or integers that are not of that form.
  virtual std::optional<CodeForm> code_form() const { return std::nullopt; }
  // codes[(end - begin) * columns] and scales[(end - begin) * num_groups], float16 bits. Only with
  // a code_form.
  virtual void ReadCodes(int64_t begin, int64_t end, int8_t* codes, uint16_t* scales) const;

  // Gives back the memory of the map behind rows [begin, end), which are not needed any more.
  virtual void Drop(int64_t begin, int64_t end) const = 0;

  // The stored tensors that the weight is made of.
  const std::vector<const Checkpoint::Entry*>& parts() const { return parts_; }
  int64_t stored_bytes() const;

 private:
  std::vector<const Checkpoint::Entry*> parts_;
};

}  // namespace mlc_native
