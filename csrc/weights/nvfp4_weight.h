// A matrix of NVFP4: codes of 4 bits (kMxfp4Doubled), an E4M3 scale for 16 of a row and one float32
// scale for all. A value is code * (scale * scale of all) in float32, rounded once where it is not
// kept as NVFP4. The tensors are in memory between Load and Drop.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "weights/quantized_weight.h"
#include "weights/weight_source.h"

namespace mlc_native {

inline constexpr int64_t kNvfp4Columns = 16;  // with one scale

struct Nvfp4Parts {
  const LoadedTensor* codes = nullptr;   // [rows, columns / 2], the even columns in the low bits
  const LoadedTensor* scales = nullptr;  // [rows, columns / 16]
  // Its factor for all scales, or the divisor; nullopt: not read (Checkpoint::reads_data).
  std::optional<float> scale_of_all;
  bool divides = false;
  int64_t columns = 0;
};

class Nvfp4Weight : public WeightOfTensors {
 public:
  // `tensors` own what the parts refer to.
  Nvfp4Weight(std::vector<const Checkpoint::Entry*> stored, LoadedTensors tensors,
              const Nvfp4Parts& parts)
      : WeightOfTensors(std::move(stored), std::move(tensors)), parts_(parts) {}

  DType dtype() const override { return DType::kBFloat16; }
  // Throws LoadError for a scale that is no number, as ReadCodes does.
  void Decode(int64_t begin, int64_t end, float* out) const override;
  // nullopt where the scales lie outside of what float16 holds well.
  std::optional<CodeForm> code_form() const override;
  void ReadCodes(int64_t begin, int64_t end, int8_t* codes, uint16_t* scales) const override;

 private:
  int64_t num_groups() const { return parts_.columns / kNvfp4Columns; }
  float WithScaleOfAll(float scale) const {
    return parts_.divides ? scale / *parts_.scale_of_all : scale * *parts_.scale_of_all;
  }
  // Half of the scale of a group, which kMxfp4Doubled is multiplied with.
  float HalfScale(int64_t row, int64_t group) const;
  int8_t Code(int64_t row, int64_t column) const;

  Nvfp4Parts parts_;
};

}  // namespace mlc_native
