// The weights of a decoder in the layout of the CPU's kernels: views into one block of memory.
// Immutable after loading; any thread.
#pragma once

#include <atomic>
#include <memory>

#include "kernels/kernels.h"
#include "mlc_native/config.h"
#include "weights/adapter_weights.h"
#include "weights/block_checks.h"
#include "weights/decoder_weights.h"

namespace mlc_native {

// A block of memory and its owner.
struct WeightMemory {
  std::byte* data = nullptr;  // aligned to kPackedAlignment
  size_t size = 0;
  bool mapped = false;  // mapped from a file, so it must not be written to
  // Set when bytes of the map are gone (leased_map.h); null: that cannot happen.
  const std::atomic<bool>* lost = nullptr;
  // What must be asked before the experts are read; null: everything was checked. Of `owner`.
  BlockChecks* checks = nullptr;
  std::shared_ptr<const void> owner;
};

struct CpuDecoderWeights : DecoderWeights<kernels::PackedLinear, const float*> {
  kernels::RowTable embeddings;             // data is null if they are packed
  kernels::PackedLinear packed_embeddings;  // tied: the head
  kernels::RowTable layer_embeddings;       // of the inputs of all layers; data is null: none
  kernels::RowTable positions;              // likewise; of row p, what is added at position p
  kernels::RowTable text_types;             // likewise; of row t, to the t-th text of a pair
  WeightMemory memory;
  WeightMemory shared;  // of a draft head: its target's, where it has no matrices of its own
  ModelDescription description;  // without what the device adds
  std::shared_ptr<const AdapterTargets> adapter_targets;
};

}  // namespace mlc_native
