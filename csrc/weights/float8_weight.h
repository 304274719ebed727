// A matrix of FP8 (E4M3) with a scale per block. A value is element * scale in float32, rounded
// once where it is not kept as FP8. The tensors are in memory between Load and Drop.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "weights/quantized_weight.h"
#include "weights/weight_source.h"

namespace mlc_native {

// The elements of a matrix [rows, columns] and the scale of each block of them.
struct Float8Parts {
  const LoadedTensor* elements = nullptr;
  const LoadedTensor* scales = nullptr;  // [row blocks, column blocks], row-major
  DType scale_dtype = DType::kFloat32;
  int64_t columns = 0;
  int64_t block_rows = 1;
  int64_t block_columns = 1;
};

class Float8Weight : public WeightOfTensors {
 public:
  // `tensors` own what the parts refer to.
  Float8Weight(std::vector<const Checkpoint::Entry*> stored, LoadedTensors tensors,
               const Float8Parts& parts)
      : WeightOfTensors(std::move(stored), std::move(tensors)), parts_(parts) {}

  DType dtype() const override { return parts_.scale_dtype; }
  void Decode(int64_t begin, int64_t end, float* out) const override;
  std::optional<CodeForm> code_form() const override;
  // Throws LoadError for an element that is no number.
  void ReadCodes(int64_t begin, int64_t end, int8_t* codes, uint16_t* scales) const override;

 private:
  int64_t num_blocks() const {  // of a row
    return (parts_.columns + parts_.block_columns - 1) / parts_.block_columns;
  }
  float ScaleOf(int64_t row, int64_t block) const;

  Float8Parts parts_;
};

}  // namespace mlc_native
