#include "arch/distance_config.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <string>

#include "support/check.h"

namespace mlc_native {

int64_t DistanceBuckets::BucketOf(int64_t distance) const {
  const int64_t of_side = count / 2;
  const int64_t side = distance > 0 ? of_side : 0;
  const int64_t n = std::abs(distance);
  const int64_t exact = of_side / 2;
  if (n < exact) return side + n;
  // In float32, as checkpoints are trained.
  const auto ratio =
      static_cast<float>(std::log(static_cast<double>(max_distance) / static_cast<double>(exact)));
  const float far = std::log(static_cast<float>(n) / static_cast<float>(exact)) / ratio;
  const auto bucket = static_cast<int64_t>(far * static_cast<float>(of_side - exact));
  return side + std::min(exact + bucket, of_side - 1);
}

int64_t DistanceBuckets::Reach() const {
  int64_t reach = max_distance;
  while (reach > 0 && BucketOf(reach - 1) == BucketOf(reach) &&
         BucketOf(1 - reach) == BucketOf(-reach)) {
    --reach;
  }
  return reach;
}

std::vector<float> DistanceBuckets::Entries(std::span<const float> table) const {
  MLC_CHECK(count > 0 && std::ssize(table) % count == 0) << table.size() << " entries";
  const int64_t heads = std::ssize(table) / count;
  const int64_t reach = Reach();
  std::vector<float> entries;
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t distance = -reach; distance <= reach; ++distance) {
      entries.push_back(table[static_cast<size_t>(BucketOf(distance) * heads + head)]);
    }
  }
  return entries;
}

std::vector<float> AlibiSlopes(int64_t heads, double most) {
  const auto smaller = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
  std::vector<float> slopes;
  const auto add = [&](int64_t i, int64_t of) {
    const double power = most * static_cast<double>(i) / static_cast<double>(of);
    slopes.push_back(static_cast<float>(std::exp2(-power)));
  };
  for (int64_t i = 1; i <= smaller; ++i) add(i, smaller);
  for (int64_t i = 1; std::ssize(slopes) < heads; i += 2) add(i, 2 * smaller);
  return slopes;
}

DistanceConfig ReadDistances(const ConfigFields& fields, DistanceRule rule, int64_t num_heads) {
  constexpr int64_t kMostBuckets = 4096, kFarthest = 65536;
  const char* const buckets = "relative_attention_num_buckets";
  const char* const farthest = "relative_attention_max_distance";
  DistanceConfig distances;
  distances.num_heads = num_heads;
  switch (rule) {
    case DistanceRule::kNone:
      break;
    case DistanceRule::kAlibi:
      distances.slopes = AlibiSlopes(num_heads, fields.Positive("alibi_bias_max", 8.0));
      break;
    case DistanceRule::kBuckets:
      distances.buckets.count = fields.Integer(buckets, 32, 4, kMostBuckets);
      if (distances.buckets.count % 4 != 0) fields.FailValue(buckets, "a multiple of 4");
      distances.buckets.max_distance =
          fields.Integer(farthest, 128, distances.buckets.count / 4 + 1, kFarthest);
      break;
  }
  return distances;
}

}  // namespace mlc_native
