// Latent attention: how the heads that attention reads are put together. Pure; any thread.
//
// What the linears leave, and the heads [q | k | v] of head_dim elements that follow from it:
//
//   latents     [q latent or queries | kv latent | rope part of all keys]
//   queries     per head [plain | rope], from the q latent, or in `latents`
//   key values  per head [plain key | value], from the kv latent
//   q, k        per head [rope | plain | 0];  v  per head [value | 0]
//
// Where pages have latents (LatentConfig::in_pages), q.k is the product of a query that has been
// multiplied with what makes its head's keys, and of a latent. One KV head serves all:
//
//   q           per head [rope | plain query times kHeadKeyUp]
//   k           [rope | kv latent];  v  [kv latent | 0]
//   values      per head: what attention gives of the latents, times kHeadValueUp
#pragma once

#include <cstdint>
#include <vector>

#include "arch/model_config.h"
#include "mlc_native/detail/export.h"

namespace mlc_native {

enum class LatentRows : uint8_t { kLatents, kQueries, kKeyValues, kZeros };

// For each head h, `n` elements of a row: from column from + h * from_step to column
// to + h * head_dim. Those of q are for each query head, the others for each KV head.
struct HeadPart {
  LatentRows rows = LatentRows::kZeros;
  int64_t from = 0;
  int64_t from_step = 0;
  int64_t to = 0;
  int64_t n = 0;
};

inline constexpr size_t kMaxHeadParts = 7;

// Of the norms of latents: transformers gives them no field of their own.
inline constexpr float kLatentNormEps = 1e-6f;

// At most kMaxHeadParts, of which none is empty. Empty without latent attention. Without the plain
// part of q where pages have latents.
MLC_NATIVE_PRIVATE_API std::vector<HeadPart> HeadPartsOf(const ModelConfig& config);

}  // namespace mlc_native
