// A matrix of BitNet: numbers -1, 0 and 1 in 2 bits, and one scale. A byte has those of four rows,
// which are a quarter of the matrix apart. A value is number * scale in float32. The tensors are in
// memory between Load and Drop.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "weights/quantized_weight.h"
#include "weights/weight_source.h"

namespace mlc_native {

inline constexpr int64_t kTernaryRows = 4;  // in a byte

struct TernaryParts {
  const LoadedTensor* codes = nullptr;  // [rows / 4, columns], a number plus 1 each
  DType precision = DType::kBFloat16;
  std::optional<float> scale;  // nullopt: not read (Checkpoint::reads_data)
  int64_t rows = 0;            // a multiple of kTernaryRows
  int64_t columns = 0;
};

class TernaryWeight : public WeightOfTensors {
 public:
  // `tensors` own what the parts refer to.
  TernaryWeight(std::vector<const Checkpoint::Entry*> stored, LoadedTensors tensors,
                const TernaryParts& parts)
      : WeightOfTensors(std::move(stored), std::move(tensors)), parts_(parts) {}

  DType dtype() const override { return parts_.precision; }
  void Decode(int64_t begin, int64_t end, float* out) const override;
  // nullopt where the scale lies outside of what float16 holds well.
  std::optional<CodeForm> code_form() const override;
  // The codes are those of -scale, because the format has -2 and not 2, which damaged bytes mean.
  void ReadCodes(int64_t begin, int64_t end, int8_t* codes, uint16_t* scales) const override;

 private:
  int Number(int64_t row, int64_t column) const;

  TernaryParts parts_;
};

}  // namespace mlc_native
