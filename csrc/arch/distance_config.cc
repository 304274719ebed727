#include "arch/distance_config.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <sstream>
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

int64_t DistanceRows::RowOf(int64_t distance) const {
  const int64_t n = std::abs(distance);
  int64_t place = n;
  if (exact > 0 && n > exact) {
    // In float32, as checkpoints are trained.
    const auto middle = static_cast<float>(exact);
    const float far = std::log(static_cast<float>(n) / middle) /
                      std::log(static_cast<float>(farthest - 1) / middle);
    place = exact + static_cast<int64_t>(std::ceil(far * static_cast<float>(exact - 1)));
  }
  // Those of keys in front of the query come last.
  return std::clamp(half + (distance > 0 ? -place : place), int64_t{0}, count() - 1);
}

int64_t DistanceRows::Reach() const {
  int64_t reach = std::max(half, farthest);
  while (reach > 0 && RowOf(reach - 1) == RowOf(reach) && RowOf(1 - reach) == RowOf(-reach)) {
    --reach;
  }
  return reach;
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

namespace {

constexpr int64_t kMostBuckets = 4096, kFarthest = 65536;

// A list of names, or a text with "|" between them.
void ReadProducts(const ConfigFields& fields, DistanceRows* rows) {
  constexpr char kField[] = "pos_att_type";
  const JsonValue* const value = fields.Find(kField);
  std::vector<std::string> names;
  if (value != nullptr && value->is_string()) {
    std::istringstream text(fields.String(kField));
    for (std::string name; std::getline(text, name, '|');) names.push_back(name);
  } else {
    names = fields.Strings(kField);
  }
  for (const std::string& name : names) {
    if (name == "c2p") {
      rows->of_keys = true;
    } else if (name == "p2c") {
      rows->of_queries = true;
    } else {
      fields.FailValue(kField, R"("c2p", "p2c" or both)");
    }
  }
  if (rows->NumProducts() == 1) fields.FailValue(kField, R"("c2p", "p2c" or both)");
}

DistanceRows ReadRows(const ConfigFields& fields, int64_t max_positions) {
  constexpr char kBuckets[] = "position_buckets", kMost[] = "max_relative_positions";
  constexpr char kNorm[] = "norm_rel_ebd";
  DistanceRows rows;
  const int64_t most = fields.Integer(kMost, -1, -1, kFarthest);
  rows.farthest = most > 0 ? most : max_positions;
  if (rows.farthest > kFarthest) {
    fields.Fail(kMost, "must be given with more than " + std::to_string(kFarthest) + " positions");
  }
  rows.half = rows.farthest;
  const int64_t buckets = fields.Integer(kBuckets, -1, -1, kMostBuckets);
  if (buckets > 0) {
    if (buckets % 2 != 0 || buckets / 2 + 1 >= rows.farthest) {
      fields.FailValue(kBuckets,
                       "-1, 0 or an even number below " + std::to_string(2 * (rows.farthest - 1)));
    }
    rows.half = buckets;
    rows.exact = buckets / 2;
  }
  const std::string norm = fields.String(kNorm, "none");
  if (norm != "layer_norm" && norm != "none") fields.FailValue(kNorm, R"("layer_norm" or "none")");
  rows.has_norm = norm == "layer_norm";
  ReadProducts(fields, &rows);
  return rows;
}

}  // namespace

DistanceConfig ReadDistances(const ConfigFields& fields, DistanceRule rule, int64_t num_heads,
                             int64_t max_positions) {
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
    case DistanceRule::kVectors:
      distances.rows = ReadRows(fields, max_positions);
      break;
  }
  return distances;
}

}  // namespace mlc_native
