// Latent attention: how the heads that attention reads are put together. Pure; any thread.
//
// What the linears leave, and the heads [q | k | v] that follow from it. q.k is the product of a
// query that has been multiplied with what makes its head's keys, and of a latent, so one KV head
// serves all:
//
//   latents     [q latent or queries | kv latent | rope part of all keys]
//   queries     per head [plain | rope], from the q latent, or in `latents`
//   q           per head [rope | plain query times kHeadKeyUp]
//   k           [rope | kv latent];  v  [kv latent | 0]
//   values      per head: what attention gives of the latents, times kHeadValueUp
//
// On CUDA, pages have no v, and attention gives as many elements as a latent has.
#pragma once

#include <cstdint>
#include <vector>

#include "arch/model_config.h"
#include "mlc_native/detail/export.h"

namespace mlc_native {

enum class LatentRows : uint8_t { kLatents, kQueries, kZeros };

// For each head h, `n` elements of a row: from column from + h * from_step to column
// to + h * head_dim. Those of q are for each query head, the others for each KV head.
struct HeadPart {
  LatentRows rows = LatentRows::kZeros;
  int64_t from = 0;
  int64_t from_step = 0;
  int64_t to = 0;
  int64_t n = 0;
};

inline constexpr size_t kNumHeadParts = 5;

// Of the norms of latents: transformers gives them no field of their own.
inline constexpr float kLatentNormEps = 1e-6f;
// Likewise of the keys of an index.
inline constexpr float kIndexNormEps = 1e-6f;

// kNumHeadParts, of which none is the plain part of q. None without latent attention.
MLC_NATIVE_PRIVATE_API std::vector<HeadPart> HeadPartsOf(const ModelConfig& config);

}  // namespace mlc_native
