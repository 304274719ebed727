// GgufTensorName is what a tensor of a GGUF file is called in a folder, and how its values differ:
// a row of the tables of gguf_families.cc. Immutable; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace mlc_native {

// What of a tensor is those of the value heads of linear attention.
enum class GgufValueHeads : uint8_t {
  kNone,
  kRows,
  kRowsBehindKeys,  // behind those of the queries and keys of all heads
  kColumns,
};

// What a tensor of a GGUF file is called in a folder of transformers.
struct GgufTensorName {
  // "blk.7.<stored>.weight"; outside of layers "<stored>.weight". Endings other than ".weight" and
  // ".bias" are part of it. A name without an ending is that of a weight.
  std::string_view stored;
  // "model.layers.7.<plain>.weight". A "#" stands for a number: the tensor joins one of these for
  // each element of its first dimension.
  std::string_view plain;
  bool has_ending = true;  // ".weight" or ".bias" follows `plain`
  // With as many of size 1 as that takes, or all elements in one dimension; 0: as stored.
  size_t num_dimensions = 0;
  size_t place_of_ones = 0;  // so many dimensions are in front of those of size 1
  GgufValueHeads value_heads = GgufValueHeads::kNone;
  bool is_negative_power = false;  // of the weight x, -e^x is stored
};

}  // namespace mlc_native
