#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "arch/rope.h"
#include "support/error.h"
#include "testing/tiny_checkpoint.h"

namespace mlc_native {
namespace {

using ::testing::HasSubstr;
using testing::TempFolder;
using testing::TinyConfig;

// Six layers, of which the third and the last have no window.
constexpr char kTypes[] = R"("num_hidden_layers": 6, "sliding_window": 5, "head_dim": 8,
    "hidden_size_per_layer_input": 0, "layer_types": ["sliding_attention", "sliding_attention",
    "full_attention", "sliding_attention", "sliding_attention", "full_attention"])";

ModelConfig ReadGemma4(const std::string& fields) {
  TempFolder folder;
  folder.Write("config.json", TinyConfig("Gemma4ForCausalLM", kTypes + (", " + fields)));
  return ReadModelConfig(folder.path());
}

std::string GemmaError(const std::string& fields) {
  try {
    ReadGemma4(fields);
  } catch (const LoadError& error) {
    return error.what();
  }
  return "";
}

template <typename Of>
std::vector<int64_t> OfLayers(const ModelConfig& config, const Of& of) {
  std::vector<int64_t> values;
  for (const LayerConfig& layer : config.layers) values.push_back(of(layer));
  return values;
}

std::vector<int64_t> HeadDims(const ModelConfig& config) {
  return OfLayers(config, [&](const LayerConfig& layer) { return config.head_dim_of(layer); });
}

std::vector<int64_t> KvHeads(const ModelConfig& config) {
  return OfLayers(config, [&](const LayerConfig& layer) { return config.kv_heads_of(layer); });
}

std::vector<int64_t> Sources(const ModelConfig& config) {
  return OfLayers(config, [](const LayerConfig& layer) { return layer.kv_source; });
}

using Int64s = std::vector<int64_t>;

TEST(LayerSizes, OfLayersWithoutAWindow) {
  const ModelConfig absent = ReadGemma4(R"("num_global_key_value_heads": 1)");
  EXPECT_EQ(HeadDims(absent), (Int64s{8, 8, 512, 8, 8, 512}));
  EXPECT_EQ(KvHeads(absent), (Int64s{2, 2, 2, 2, 2, 2}));  // counts with attention_k_eq_v alone
  const ModelConfig given = ReadGemma4(
      R"("global_head_dim": 16, "num_global_key_value_heads": 1, "attention_k_eq_v": true)");
  EXPECT_EQ(HeadDims(given), (Int64s{8, 8, 16, 8, 8, 16}));
  EXPECT_EQ(KvHeads(given), (Int64s{2, 2, 1, 2, 2, 1}));
  EXPECT_FALSE(given.has_equal_layers());
  const LayerConfig& layer = given.layers[2];
  EXPECT_EQ(given.qkv_size(layer), 4 * 16 + 2 * 16);
  EXPECT_EQ(given.linear_rows(layer, LinearRole::kQkv), 4 * 16 + 16);  // keys are the values
  EXPECT_EQ(given.linear_columns(layer, LinearRole::kOut), 4 * 16);
  EXPECT_EQ(given.norm_shape(layer, NormRole::kV), Int64s{16});
  EXPECT_EQ(given.linear_rows(given.layers[0], LinearRole::kQkv), 4 * 8 + 2 * 16);
  EXPECT_TRUE(ReadGemma4(R"("global_head_dim": 8)").has_equal_layers());
}

TEST(LayerSizes, QueryHeadsOfEachLayer) {
  const auto read = [](const std::string& fields) {
    TempFolder folder;
    folder.Write("config.json",
                 TinyConfig("LagunaForCausalLM",
                            R"("head_dim": 8, "num_attention_heads_per_layer": [8, 4])" + fields));
    return ReadModelConfig(folder.path());
  };
  const ModelConfig heads = read("");
  EXPECT_EQ(heads.most_heads(), 8);
  EXPECT_FALSE(heads.has_equal_layers());
  const LayerConfig& first = heads.layers[0];
  EXPECT_EQ(first.own_heads, 8);
  EXPECT_EQ(heads.layers[1].own_heads, 0);  // as many as the model has
  EXPECT_EQ(heads.linear_rows(first, LinearRole::kQkv), 8 + 8 * 8 + 2 * 2 * 8);  // with the gates
  EXPECT_EQ(heads.linear_rows(heads.layers[1], LinearRole::kQkv), 4 + 4 * 8 + 2 * 2 * 8);
  EXPECT_EQ(heads.linear_columns(first, LinearRole::kOut), 8 * 8);
  EXPECT_EQ(read(R"(, "gating": "per-element")").attention_gates_size(first), 8 * 8);
}

TEST(LayerSizes, AsTransformersWritesThem) {
  const std::string each = R"("per_layer_config": {"02": {"head_dim": 16, "num_key_value_heads": 1},
      "5": {"head_dim": 16, "num_key_value_heads": 1}}, "global_head_dim": 32,
      "num_key_value_heads": 2)";
  const ModelConfig config = ReadGemma4(each);
  EXPECT_EQ(HeadDims(config), (Int64s{8, 8, 16, 8, 8, 16}));
  EXPECT_EQ(KvHeads(config), (Int64s{2, 2, 1, 2, 2, 1}));
  EXPECT_EQ(config.ropes[0].rotary_dim, 16);
  EXPECT_EQ(config.ropes[1].rotary_dim, 8);
  EXPECT_THAT(GemmaError(R"("per_layer_config": {"2": {"head_dim": 16}})"),
              HasSubstr("layer_types"));
  for (const char* name : {"6", "-1", "", "2x", "99999999999999999999"}) {
    EXPECT_THAT(GemmaError(R"("per_layer_config": {")" + std::string(name) + R"(": {}})"),
                HasSubstr("is no layer of the model"))
        << name;
  }
  EXPECT_THAT(GemmaError(R"("per_layer_config": {"5": {"hidden_size": 16}})"),
              HasSubstr("\"hidden_size\" of a layer"));
  EXPECT_THAT(GemmaError(R"("per_layer_config": {"5": {"num_key_value_heads": 3}})"),
              HasSubstr("a divisor of \"num_attention_heads\""));
}

TEST(LayerSizes, LastLayersReadTheKeysOfTheLastOneOfTheirKind) {
  constexpr int64_t kOwn = LayerConfig::kOwnKv;
  const ModelConfig config = ReadGemma4(R"("num_kv_shared_layers": 3, "attention_k_eq_v": true)");
  EXPECT_EQ(Sources(config), (Int64s{kOwn, kOwn, kOwn, 1, 1, 2}));
  EXPECT_EQ(config.linear_rows(config.layers[3], LinearRole::kQkv), 4 * 8);
  EXPECT_FALSE(config.has_norm(config.layers[3], NormRole::kK));
  EXPECT_FALSE(config.has_norm(config.layers[3], NormRole::kV));
  EXPECT_TRUE(config.has_norm(config.layers[3], NormRole::kQ));
  EXPECT_FALSE(config.layers[5].keys_are_values);
  EXPECT_EQ(config.ffn_size_of(config.layers[3]), 48);
  const ModelConfig wide = ReadGemma4(R"("num_kv_shared_layers": 3, "use_double_wide_mlp": true)");
  EXPECT_EQ(OfLayers(wide, [&](const LayerConfig& layer) { return wide.ffn_size_of(layer); }),
            (Int64s{48, 48, 48, 96, 96, 96}));
  EXPECT_THAT(GemmaError(R"("num_kv_shared_layers": 4)"), HasSubstr("leaves no layer"));
  EXPECT_THAT(GemmaError(R"("num_kv_shared_layers": 6)"), HasSubstr("num_kv_shared_layers"));
}

ModelConfig ReadGemma3n(const std::string& fields) {
  TempFolder folder;
  folder.Write("config.json", TinyConfig("Gemma3nForCausalLM", fields));
  return ReadModelConfig(folder.path());
}

TEST(LayerSizes, DefaultsOfGemma3n) {
  const ModelConfig config = ReadGemma3n(R"("num_hidden_layers": 25, "num_kv_shared_layers": null,
      "activation_sparsity_pattern": null, "altup_active_idx": null,
      "vocab_size_per_layer_input": null)");
  const Int64s sources = Sources(config);
  EXPECT_EQ(sources[9], LayerConfig::kOwnKv);
  EXPECT_EQ(Int64s(sources.begin() + 10, sources.begin() + 15), (Int64s{8, 8, 8, 8, 9}));
  EXPECT_EQ(config.layers[4].window.size, 0);
  EXPECT_EQ(config.layers[5].window.size, 512);
  ASSERT_TRUE(config.layers[9].gate_cut);
  EXPECT_FLOAT_EQ(*config.layers[9].gate_cut, 1.6448536f);
  EXPECT_FALSE(config.layers[10].gate_cut);
  ASSERT_TRUE(config.residual_streams);
  EXPECT_EQ(config.residual_streams->count, 4);
  EXPECT_EQ(config.residual_streams->active, 0);
  EXPECT_TRUE(config.residual_streams->scales_active);
  EXPECT_EQ(config.laurel_rank, 64);
  EXPECT_EQ(config.final_soft_cap, 30.0f);
  EXPECT_EQ(config.ropes[0].theta, 1e6);
  EXPECT_EQ(config.ropes[1].theta, 1e4);
  EXPECT_EQ(config.layer_inputs->vocab_size, 262144);
}

// Quantiles of the normal distribution, from tables of it.
TEST(LayerSizes, GatesAreCutByTheirShareOfANormalDistribution) {
  const auto cut = [](const std::string& share) {
    return *ReadGemma3n(R"("activation_sparsity_pattern": [)" + share + ", 0]").layers[0].gate_cut;
  };
  EXPECT_EQ(cut("0.5"), 0.0f);
  EXPECT_FLOAT_EQ(cut("0.975"), 1.9599640f);
  EXPECT_FLOAT_EQ(cut("0.025"), -1.9599640f);
  EXPECT_NEAR(cut("0.999"), 3.0902323f, 1e-5f);
  EXPECT_NEAR(cut("1e-6"), -4.7534243f, 1e-6f);
  EXPECT_NEAR(cut("0.6"), 0.2533471f, 1e-6f);
}

TEST(LayerSizes, FeedForwardBlocksOfSeveralSizes) {
  const ModelConfig config = ReadGemma3n(R"("num_hidden_layers": 3, "num_kv_shared_layers": 0,
      "activation_sparsity_pattern": [0, 0, 0], "intermediate_size": [24, 48, 24])");
  EXPECT_EQ(OfLayers(config, [&](const LayerConfig& layer) { return config.ffn_size_of(layer); }),
            (Int64s{24, 48, 24}));
  EXPECT_EQ(config.linear_rows(config.layers[1], LinearRole::kGateUp), 96);
  EXPECT_FALSE(config.layers[0].gate_cut);
}

TEST(LayerSizes, TheLastLayerHasNoWindow) {
  const ModelConfig config =
      ReadGemma4(R"("global_head_dim": 16, "layer_types": null, "num_hidden_layers": 7)");
  EXPECT_EQ(OfLayers(config, [](const LayerConfig& layer) { return layer.window.size; }),
            (Int64s{5, 5, 5, 5, 5, 0, 0}));
}

TEST(LayerSizes, ProportionalRopesRotateTheFirstPairs) {
  const ModelConfig config = ReadGemma4(R"("global_head_dim": 16)");
  EXPECT_EQ(config.ropes[0].theta, 1e6);
  const std::vector<float> absent = RopeFrequencies(config.ropes[0]);
  ASSERT_EQ(absent.size(), 8u);
  EXPECT_EQ(absent[0], 1.0f);
  EXPECT_FLOAT_EQ(absent[1], static_cast<float>(std::pow(1e6, -2.0 / 16)));
  EXPECT_EQ(std::vector<float>(absent.begin() + 2, absent.end()), std::vector<float>(6));
  const ModelConfig given = ReadGemma4(R"("global_head_dim": 16, "rope_parameters": {
      "sliding_attention": {"rope_type": "default"},
      "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.19, "factor": 4,
                         "rope_theta": 100}})");
  EXPECT_EQ(RopeFrequencies(given.ropes[0])[0], 0.25f);
  EXPECT_EQ(RopeFrequencies(given.ropes[0])[1], 0.0f);
  EXPECT_EQ(given.ropes[1].theta, 1e4);
}

TEST(LayerSizes, AttentionInBothDirectionsOfImagesAloneIsNotOfTexts) {
  EXPECT_EQ(ReadGemma4(R"("use_bidirectional_attention": "vision")").attention_scale, 1.0f);
  EXPECT_THAT(GemmaError(R"("use_bidirectional_attention": "all")"),
              HasSubstr("\"use_bidirectional_attention\" is not supported"));
}

}  // namespace
}  // namespace mlc_native
