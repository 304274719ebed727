// Biases of attention by distance: slopes of heads, buckets, and the norm in front of the layers
// that BLOOM has besides.
#include <gtest/gtest.h>

#include <cmath>
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

ModelConfig ReadTiny(const std::string& architecture) {
  testing::TempFolder folder;
  folder.Write("config.json", R"({"architectures": [")" + architecture + R"("], "vocab_size": 50,
      "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2})");
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
