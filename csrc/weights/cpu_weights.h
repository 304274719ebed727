// The weights of a decoder in the form that the CPU's kernels read. Immutable after loading; views
// into one block of memory.
#pragma once

#include <memory>

#include "kernels/kernels.h"
#include "weights/decoder_weights.h"

namespace mlc_native {

// A block of memory and its owner.
struct WeightMemory {
  std::byte* data = nullptr;  // kPackedAlignment
  size_t size = 0;
  bool mapped = false;  // of a file, and so not to be written to
  std::shared_ptr<const void> owner;
};

struct CpuDecoderWeights : DecoderWeights<kernels::PackedLinear, const float*> {
  kernels::RowTable embeddings;  // data is null when tied
  WeightMemory memory;
};

}  // namespace mlc_native
