// Where each parameter of a decoder lies in one block of memory, and in what form. Decided before
// the block is filled, so that memory which was filled earlier is read the same way. A value; the
// map outlives it.
#pragma once

#include <vector>

#include "kernels/kernels.h"
#include "models/weight_map.h"
#include "models/weights.h"

namespace mlc_native {

class WeightLayout {
 public:
  // formats: of the parameters, for those that are packed; dtype: of the others.
  WeightLayout(const WeightMap& map, DType dtype, std::vector<kernels::WeightFormat> formats,
               const kernels::CpuKernels& isa);

  const WeightMap& map() const { return map_; }
  DType dtype() const { return dtype_; }
  kernels::WeightFormat format(size_t parameter) const { return formats_[parameter]; }
  int64_t panel_width() const;
  size_t bytes() const { return bytes_; }

  std::byte* Data(size_t parameter, std::byte* memory) const {
    return memory + offsets_[parameter];
  }
  kernels::PackedLinear Packed(size_t parameter, std::byte* memory) const;
  DecoderWeights View(WeightMemory memory) const;

 private:
  size_t Bytes(size_t parameter) const;

  const WeightMap& map_;
  DType dtype_;
  std::vector<kernels::WeightFormat> formats_;
  const kernels::CpuKernels& isa_;
  std::vector<size_t> offsets_;
  size_t bytes_ = 0;
};

}  // namespace mlc_native
