// What attention adds by distance: slopes of heads, buckets, rows of vectors, and the norm in front
// of the layers that BLOOM has besides.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "testing/tiny_checkpoint.h"
#include "weights/decoder_map.h"
#include "weights/weight_map.h"

namespace mlc_native {
namespace {

TEST(Alibi, SlopesOfHeads) {
  EXPECT_EQ(AlibiSlopes(1, 8), (std::vector<float>{std::exp2(-8.0f)}));
  EXPECT_EQ(AlibiSlopes(8, 8), (std::vector<float>{0.5f, 0.25f, 0.125f, 0.0625f, 0.03125f,
                                                   0.015625f, 0.0078125f, 0.00390625f}));
  EXPECT_EQ(AlibiSlopes(2, 4), (std::vector<float>{0.25f, 0.0625f}));
  // Those of four heads, and every other one of eight.
  EXPECT_EQ(AlibiSlopes(6, 8),
            (std::vector<float>{std::exp2(-2.0f), std::exp2(-4.0f), std::exp2(-6.0f),
                                std::exp2(-8.0f), std::exp2(-1.0f), std::exp2(-3.0f)}));
}

TEST(DistanceBuckets, AreThoseOfT5) {
  const DistanceBuckets buckets{.count = 32, .max_distance = 128};
  for (int64_t distance = 0; distance < 8; ++distance) {
    EXPECT_EQ(buckets.BucketOf(-distance), distance);
    if (distance > 0) EXPECT_EQ(buckets.BucketOf(distance), 16 + distance);
  }
  EXPECT_EQ(buckets.BucketOf(-11), 8);
  EXPECT_EQ(buckets.BucketOf(-12), 9);
  EXPECT_EQ(buckets.BucketOf(63), 16 + 13);
  EXPECT_EQ(buckets.BucketOf(127), 31);
  EXPECT_EQ(buckets.BucketOf(100000), 31);
  EXPECT_EQ(buckets.BucketOf(-100000), 15);
}

TEST(DistanceBuckets, EndWhereNothingChanges) {
  for (const int64_t count : {4, 8, 32, 64}) {
    for (const int64_t farthest : {17, 20, 128, 300}) {
      const DistanceBuckets buckets{.count = count, .max_distance = farthest};
      const int64_t reach = buckets.Reach();
      EXPECT_LE(reach, farthest);
      EXPECT_NE(buckets.BucketOf(reach - 1), buckets.BucketOf(reach));
      for (int64_t distance = reach; distance < reach + 400; ++distance) {
        EXPECT_EQ(buckets.BucketOf(distance), buckets.BucketOf(reach));
        EXPECT_EQ(buckets.BucketOf(-distance), buckets.BucketOf(-reach));
      }
    }
  }
}

TEST(DistanceBuckets, EntriesOfHeads) {
  const DistanceBuckets buckets{.count = 4, .max_distance = 2};
  ASSERT_EQ(buckets.Reach(), 1);
  // [buckets, heads]: at no distance, before, at none behind, behind
  const std::vector<float> table{1, 10, 2, 20, 3, 30, 4, 40};
  EXPECT_EQ(buckets.Entries(table), (std::vector<float>{2, 1, 4, 20, 10, 40}));
}

// As the definition says it, in double. Nearly whole logarithms are left to the test that compares
// with transformers.
struct NaiveRow {
  int64_t row = 0;
  bool is_certain = true;
};
NaiveRow RowInDouble(const DistanceRows& rows, int64_t distance) {
  const int64_t before = -distance;  // how far in front of the query the key is
  int64_t bucket = before;
  bool is_certain = true;
  if (rows.exact > 0 && std::abs(before) > rows.exact) {
    const auto exact = static_cast<double>(rows.exact);
    const bool is_last = std::abs(before) == rows.farthest - 1;
    const double steps = std::log(static_cast<double>(std::abs(before)) / exact) /
                         std::log(static_cast<double>(rows.farthest - 1) / exact) * (exact - 1);
    is_certain = is_last || std::abs(steps - std::round(steps)) > 1e-4;
    const double far = is_last ? exact - 1 : std::ceil(steps);
    bucket = (before > 0 ? 1 : -1) * (rows.exact + static_cast<int64_t>(far));
  }
  if (bucket < -rows.half) bucket = -rows.half;
  if (bucket > rows.half - 1) bucket = rows.half - 1;
  return {bucket + rows.half, is_certain};
}

TEST(DistanceRows, AreThoseOfTheDefinition) {
  const DistanceRows shapes[] = {{.half = 256, .exact = 128, .farthest = 512},
                                 {.half = 8, .exact = 4, .farthest = 300},
                                 {.half = 32, .exact = 16, .farthest = 40},
                                 {.half = 6, .exact = 3, .farthest = 30},
                                 {.half = 20, .farthest = 20},
                                 {.half = 1024, .exact = 512, .farthest = 4096}};
  for (const DistanceRows& rows : shapes) {
    int64_t certain = 0;
    const int64_t reach = rows.Reach();
    EXPECT_LE(reach, rows.farthest);
    EXPECT_TRUE(rows.RowOf(reach - 1) != rows.RowOf(reach) ||
                rows.RowOf(1 - reach) != rows.RowOf(-reach));
    for (int64_t distance = -reach - 300; distance <= reach + 300; ++distance) {
      const NaiveRow naive = RowInDouble(rows, distance);
      if (naive.is_certain) EXPECT_EQ(rows.RowOf(distance), naive.row) << distance;
      certain += naive.is_certain ? 1 : 0;
      const int64_t nearest = std::clamp(distance, -reach, reach);
      ASSERT_EQ(rows.RowOf(distance), rows.RowOf(nearest)) << distance;
    }
    EXPECT_GT(certain, (2 * reach + 601) / 2);
  }
}

TEST(DistanceRows, OfDebertaV3) {
  const DistanceRows rows{.half = 256, .exact = 128, .farthest = 512};
  EXPECT_EQ(rows.RowOf(0), 256);
  EXPECT_EQ(rows.RowOf(-1), 257);  // the key is in front of the query
  EXPECT_EQ(rows.RowOf(1), 255);
  EXPECT_EQ(rows.RowOf(-128), 384);
  EXPECT_EQ(rows.RowOf(-129), 385);
  EXPECT_EQ(rows.RowOf(129), 127);
  EXPECT_EQ(rows.RowOf(-511), 511);
  EXPECT_EQ(rows.RowOf(511), 1);
  EXPECT_EQ(rows.RowOf(-512), 511);
  EXPECT_EQ(rows.RowOf(512), 0);
  EXPECT_EQ(rows.Reach(), 512);
}

ModelConfig ReadTiny(const std::string& architecture, const std::string& fields = "") {
  testing::TempFolder folder;
  folder.Write("config.json", R"({"architectures": [")" + architecture + R"("], "vocab_size": 50,
      "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2)" +
                                  (fields.empty() ? "" : ", ") + fields + "}");
  return ReadModelConfig(folder.path());
}

std::string NameOfTensor(const WeightMap& map, size_t parameter) {
  for (const WeightSlot& slot : map.slots) {
    if (slot.parameter == parameter) return slot.name;
  }
  return "";
}

TEST(Distances, BloomHasANormInFrontOfItsFirstLayer) {
  const ModelConfig config = ReadTiny("BloomForCausalLM");
  EXPECT_EQ(config.distances.slopes, AlibiSlopes(4, 8));
  EXPECT_EQ(config.distances.buckets.count, 0);
  const WeightMap map = MakeWeightMap(config, {.prefix = "transformer.", .head = ""});
  EXPECT_EQ(NameOfTensor(map, map.embedding_norm.weight),
            "transformer.word_embeddings_layernorm.weight");
  EXPECT_EQ(NameOfTensor(map, map.embedding_norm.bias),
            "transformer.word_embeddings_layernorm.bias");
  EXPECT_TRUE(map.embedding_norm.gives_residual);
  const NormParameters& first = map.layers[0].norms[static_cast<size_t>(NormRole::kPreAttention)];
  EXPECT_EQ(NameOfTensor(map, first.weight), "transformer.h.0.input_layernorm.weight");
  EXPECT_FALSE(first.gives_residual);
  EXPECT_EQ(map.distances, kAbsent);
}

constexpr char kDebertaFields[] = R"("relative_attention": true, "position_biased_input": false,
    "share_att_key": true, "norm_rel_ebd": "layer_norm", "max_position_embeddings": 100,
    "position_buckets": 16, "pos_att_type": ")";

TEST(Distances, LayersOfDebertaShareRows) {
  for (const std::string types : {"p2c|c2p", "c2p", "p2c"}) {
    const ModelConfig config = ReadTiny("DebertaV2ForMaskedLM", kDebertaFields + types + '"');
    EXPECT_FALSE(config.distances.exists());
    const DistanceRows& rows = config.distances.rows;
    EXPECT_EQ(rows.half, 16);
    EXPECT_EQ(rows.exact, 8);
    EXPECT_EQ(rows.farthest, 100);
    EXPECT_EQ(rows.of_keys, types != "p2c");
    EXPECT_EQ(rows.of_queries, types != "c2p");
    const double products = types.size() > 3 ? 3 : 2;
    EXPECT_FLOAT_EQ(config.attention_scale, static_cast<float>(1 / std::sqrt(8 * products)));
    const WeightMap map = MakeWeightMap(config, {.prefix = "deberta.", .head = ""});
    EXPECT_EQ(NameOfTensor(map, map.distances), "deberta.encoder.rel_embeddings.weight");
    EXPECT_TRUE(map.parameters[map.distances].in_float32);
    EXPECT_EQ(NameOfTensor(map, map.distance_norm.weight), "deberta.encoder.LayerNorm.weight");
    EXPECT_EQ(NameOfTensor(map, map.distance_norm.bias), "deberta.encoder.LayerNorm.bias");
  }
  EXPECT_FALSE(ReadTiny("BertForMaskedLM").distances.rows.exists());
  EXPECT_FLOAT_EQ(ReadTiny("BertForMaskedLM").attention_scale, 1 / std::sqrt(8.0f));
}

TEST(Distances, LayersOfMpnetShareATable) {
  const ModelConfig config = ReadTiny("MPNetForMaskedLM");
  EXPECT_TRUE(config.distances.exists());
  EXPECT_TRUE(config.distances.slopes.empty());
  const WeightMap map = MakeWeightMap(config, {.prefix = "mpnet.", .head = ""});
  EXPECT_EQ(NameOfTensor(map, map.distances), "mpnet.encoder.relative_attention_bias.weight");
  EXPECT_TRUE(map.parameters[map.distances].in_float32);
  EXPECT_EQ(map.embedding_norm.weight, kAbsent);
  EXPECT_FALSE(ReadTiny("BertForMaskedLM").distances.exists());
}

}  // namespace
}  // namespace mlc_native
