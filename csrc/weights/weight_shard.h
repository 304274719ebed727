// Tensor parallelism: the part of a decoder that one of several devices has.
//
//   q, k, v, gate, up   the device has some of the output rows: those of its heads, and its share
//                       of the feed-forward block (of each expert, too)
//   o, down             the device has the input columns that belong to these rows, so its product
//                       is a part of the sum that all devices together have to make
//   head of the logits  the device has some of the output rows, unless the head is the table of
//                       embeddings, of which it computes these rows
//   norms of all heads  the device has the weights of its heads
//   latent attention    the device has all latents, and of what makes queries, keys and values of
//                       them the rows or matrices of its heads
//   layers with states  state_shares.h says what the device has
//   inputs of layers    each device has all of them, and computes what they add to the residual
//   everything else     each device has it, except the biases behind sums, which only the first one
//                       has
//
// KV heads of a layer that are fewer than the devices are held by several of them. All formats of
// checkpoints go through one mechanism: the rows and columns of a plan's sources. Loading thread
// only.
#pragma once

#include "arch/model_config.h"
#include "mlc_native/detail/export.h"
#include "weights/part_of_weight.h"
#include "weights/weight_plan.h"

namespace mlc_native {

inline constexpr const char* kShardsField = "tensor_parallel_shards";
inline constexpr int64_t kShardVector = 8;  // elements that kernels read at once

// The device `rank` of `size`.
struct Shard {
  int64_t rank = 0;
  int64_t size = 1;

  bool is_first() const { return rank == 0; }
};

// The rows of a head of so many rows that the device has: a multiple of 8, except at the end.
MLC_NATIVE_PRIVATE_API IndexRange HeadRows(int64_t rows, const Shard& shard);

// The decoder that each of `num_shards` devices computes. Throws InvalidConfig with the field
// "tensor_parallel_shards" if the model cannot be divided so.
MLC_NATIVE_PRIVATE_API ModelConfig ShardOf(const ModelConfig& config, int64_t num_shards);

// Reduces a plan, made for all of `config`, to what one device needs. Throws InvalidConfig as
// ShardOf, and where the border between two devices lies within a group of a quantized matrix.
MLC_NATIVE_PRIVATE_API void TakeShard(const ModelConfig& config, const Shard& shard,
                                      WeightPlan* plan);
// Reduces it to the head, all of it.
MLC_NATIVE_PRIVATE_API void KeepHead(const ModelConfig& config, WeightPlan* plan);

}  // namespace mlc_native
