// What a config.json says of biases of attention by the distance of query and key: ALiBi's slopes,
// or the buckets of T5, of which each has an entry for each head. A value; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "arch/arch_rules.h"
#include "mlc_native/detail/export.h"
#include "support/config_fields.h"

namespace mlc_native {

// Rows see rows in front of them and behind them, and the buckets of both are different ones.
struct MLC_NATIVE_PRIVATE_API DistanceBuckets {
  int64_t count = 0;         // an even number
  int64_t max_distance = 0;  // at which the last bucket begins at the latest

  // Of key - query.
  int64_t BucketOf(int64_t distance) const;
  // From which distance on all are in the last bucket, on either side.
  int64_t Reach() const;
  // [heads, 2 * Reach() + 1] of a checkpoint's table [count, heads].
  std::vector<float> Entries(std::span<const float> table) const;
};

// Of all heads, also of one of several devices.
struct DistanceConfig {
  int64_t num_heads = 0;
  std::vector<float> slopes;  // of each head; empty: none
  DistanceBuckets buckets{};  // count is 0: none

  bool exists() const { return !slopes.empty() || buckets.count > 0; }
};

// Those of ALiBi: powers of 2^(-most / heads); where the number of heads is no power of two, those
// of the next smaller one, and then every other one of the next larger one.
std::vector<float> AlibiSlopes(int64_t heads, double most);

// Fields: alibi_bias_max; relative_attention_num_buckets, relative_attention_max_distance. Throws
// LoadError.
DistanceConfig ReadDistances(const ConfigFields& fields, DistanceRule rule, int64_t num_heads);

}  // namespace mlc_native
