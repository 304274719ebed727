// WeightSet finds the weights of a checkpoint by the names that decoders give them, and opens each
// in the form in which the checkpoint stores it.
//
// A view of the checkpoint, which must outlive it and the weights that it opens. Immutable; any
// thread, many at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/quantization.h"
#include "mlc_native/detail/export.h"
#include "weights/weight_source.h"

namespace mlc_native {

class MLC_NATIVE_PRIVATE_API WeightSet {
 public:
  // `quantization` describes the matrices that are not stored as floats.
  WeightSet(const Checkpoint& checkpoint, const std::optional<Quantization>& quantization)
      : checkpoint_(checkpoint), quantization_(quantization) {}

  const Checkpoint& checkpoint() const { return checkpoint_; }
  bool Has(const std::string& name) const;
  // Whether the entry is one of the biases of zeros that old quantizers add to every matrix. The
  // decoder does not need them.
  bool IsEmptyBias(const Checkpoint::Entry& entry) const;
  // Throws LoadError if the weight is missing, damaged, of another shape, or of a type that no
  // weight has. `shape` is that of the weight, wherever it lies in the tensor.
  std::unique_ptr<WeightSource> Open(const std::string& name, std::span<const int64_t> shape,
                                     const JoinedPlace& joined = {}) const;

 private:
  std::unique_ptr<WeightSource> OpenStored(const std::string& name, std::span<const int64_t> shape,
                                           JoinedPlace joined) const;
  // The base name of the quantized matrix that stores the weight `name`, or "".
  std::string QuantizedBase(const std::string& name) const;

  const Checkpoint& checkpoint_;
  std::optional<Quantization> quantization_;
};

}  // namespace mlc_native
