// What a config.json says of what attention adds by the distance of query and key: ALiBi's slopes,
// the buckets of T5, of which each has an entry for each head, or the rows of DeBERTa, of which
// vectors are made. A value; any thread.
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

// Of disentangled attention: a table has a row of hidden_size for each distance of keys in front of
// a query, and behind it, up to `half` of them. The matrices of k and q make vectors of it, with
// which queries and keys are multiplied. Far distances share rows: behind `exact`, their number
// grows with the logarithm, and ends at `farthest`.
struct MLC_NATIVE_PRIVATE_API DistanceRows {
  int64_t half = 0;         // of the table's rows; 0: there is none
  int64_t exact = 0;        // 0: all distances have rows of their own
  int64_t farthest = 0;     // above exact + 1
  bool of_keys = false;     // queries are multiplied with what k makes of a row ("c2p")
  bool of_queries = false;  // keys with what q makes ("p2c")
  bool has_norm = false;    // a LayerNorm of the rows

  bool exists() const { return half > 0; }
  int64_t count() const { return 2 * half; }
  // Of key - query.
  int64_t RowOf(int64_t distance) const;
  // From which distance on all have the same row, on either side.
  int64_t Reach() const;
  // How many products a score is the sum of: with the key, and with vectors.
  int64_t NumProducts() const { return 1 + (of_keys ? 1 : 0) + (of_queries ? 1 : 0); }
};

// Of all heads, also of one of several devices.
struct DistanceConfig {
  int64_t num_heads = 0;
  std::vector<float> slopes;  // of each head; empty: none
  DistanceBuckets buckets{};  // count is 0: none
  DistanceRows rows{};        // of vectors

  // Whether there are biases, as vectors are not.
  bool exists() const { return !slopes.empty() || buckets.count > 0; }
};

// Those of ALiBi: powers of 2^(-most / heads); where the number of heads is no power of two, those
// of the next smaller one, and then every other one of the next larger one.
std::vector<float> AlibiSlopes(int64_t heads, double most);

// Fields: alibi_bias_max; relative_attention_num_buckets, relative_attention_max_distance;
// position_buckets, max_relative_positions (absent or below 1: max_positions), pos_att_type,
// norm_rel_ebd. Throws LoadError.
DistanceConfig ReadDistances(const ConfigFields& fields, DistanceRule rule, int64_t num_heads,
                             int64_t max_positions);

}  // namespace mlc_native
