// Families whose layers differ in norms, windows and ropes by rules of their own.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "testing/tiny_checkpoint.h"
#include "weights/decoder_map.h"
#include "weights/weight_map.h"

namespace mlc_native {
namespace {

using Numbers = std::vector<int64_t>;

template <typename Of>
Numbers OfEach(const ModelConfig& config, const Of& of) {
  Numbers values;
  for (const LayerConfig& layer : config.layers) values.push_back(of(layer));
  return values;
}

// ---- OLMo Hybrid ----

ModelConfig ReadOlmoHybrid(const std::string& fields) {
  testing::TempFolder folder;
  folder.Write("config.json", R"({"architectures": ["OlmoHybridForCausalLM"], "vocab_size": 50,
      "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": )" +
                                  fields + "}");
  return ReadModelConfig(folder.path());
}

TEST(OlmoHybrid, NormsAreInFrontOfBlocksWithStatesAndBehindOthers) {
  const ModelConfig config = ReadOlmoHybrid("4");
  for (const LayerConfig& layer : config.layers) {
    const bool has_state = &layer != &config.layers.back();
    EXPECT_EQ(layer.is_recurrent, has_state);
    EXPECT_EQ(config.has_norm(layer, NormRole::kPreAttention), has_state);
    EXPECT_EQ(config.has_norm(layer, NormRole::kPreFfn), has_state);
    EXPECT_EQ(config.has_norm(layer, NormRole::kPostAttention), !has_state);
    EXPECT_EQ(config.has_norm(layer, NormRole::kPostFfn), !has_state);
    EXPECT_EQ(config.has_norm(layer, NormRole::kQ), !has_state);
  }
}

TEST(OlmoHybrid, AbsentSizesFollowFromAttention) {
  const ModelConfig config = ReadOlmoHybrid("3");
  EXPECT_FALSE(config.layers.back().is_recurrent);  // one attends at least
  EXPECT_TRUE(config.layers.front().is_recurrent);
  EXPECT_EQ(config.layers.back().rope, 0);
  const DeltaConfig& delta = *config.delta;
  EXPECT_EQ(delta.num_key_heads, 4);
  EXPECT_EQ(delta.num_value_heads, 4);
  EXPECT_EQ(delta.key_dim, 12);
  EXPECT_EQ(delta.value_dim, 24);
  EXPECT_EQ(delta.beta_scale, 2);
  EXPECT_EQ(delta.norm_eps, 1e-5f);
  EXPECT_EQ(config.norm_eps, 1e-6f);
}

TEST(OlmoHybrid, GivenOnesCount) {
  const ModelConfig config = ReadOlmoHybrid(R"(2, "linear_num_key_heads": 2,
      "linear_allow_neg_eigval": false, "rope_parameters": {"rope_theta": null},
      "layer_types": ["full_attention", "linear_attention"])");
  EXPECT_EQ(config.layers.front().rope, LayerConfig::kNoRope);
  EXPECT_FALSE(config.layers.front().is_recurrent);
  EXPECT_EQ(config.delta->key_dim, 24);
  EXPECT_EQ(config.delta->value_dim, 48);
  EXPECT_EQ(config.delta->beta_scale, 1);
}

// ---- Cohere 2 with experts ----

ModelConfig ReadCohere2Moe(const std::string& fields) {
  testing::TempFolder folder;
  folder.Write(
      "config.json",
      testing::TinyConfig("Cohere2MoeForCausalLM",
                          R"("num_hidden_layers": 6, "first_k_dense_replace": 3, "num_experts": 4,
                             "sliding_window": 5, "num_shared_experts": 2)" +
                              fields));
  return ReadModelConfig(folder.path());
}

Numbers WindowsOf(const ModelConfig& config) {
  return OfEach(config, [](const LayerConfig& layer) { return layer.window.size; });
}

Numbers RopesOf(const ModelConfig& config) {
  return OfEach(config, [](const LayerConfig& layer) { return layer.rope; });
}

TEST(Cohere2Moe, LayersWithExpertsHaveAPatternOfTheirOwn) {
  const ModelConfig absent = ReadCohere2Moe(R"(, "sliding_window_pattern": 2)");
  EXPECT_EQ(WindowsOf(absent), (Numbers{0, 0, 0, 5, 0, 5}));
  EXPECT_EQ(RopesOf(absent), (Numbers{0, 0, 0, 0, -1, 0}));  // dense ones have all of them
  const ModelConfig given = ReadCohere2Moe(R"(, "prefix_dense_sliding_window_pattern": 2)");
  EXPECT_EQ(WindowsOf(given), (Numbers{5, 0, 5, 5, 5, 5}));
  EXPECT_EQ(RopesOf(given), (Numbers{0, -1, 0, 0, 0, 0}));
}

TEST(Cohere2Moe, ExpertsAreAveragedWithTheSharedOneUnlessTheFieldSaysSum) {
  const ModelConfig absent = ReadCohere2Moe("");
  EXPECT_EQ(absent.experts->shared_scale, 0.5f);
  EXPECT_EQ(absent.experts->router.scale, 0.5f);
  EXPECT_EQ(absent.experts->shared_ffn_size, 2 * 48);
  EXPECT_TRUE(absent.experts->router.renormalize);
  EXPECT_EQ(absent.norm_kind, NormKind::kLayer);
  const ModelConfig sum = ReadCohere2Moe(
      R"(, "shared_expert_combination_strategy": "sum", "rms_norm_eps": 1e-3,
          "norm_topk_prob": false, "prefix_dense_intermediate_size": 80)");
  EXPECT_EQ(sum.experts->shared_scale, 1);
  EXPECT_EQ(sum.experts->router.scale, 1);
  EXPECT_TRUE(sum.experts->router.renormalize);  // softmax is of those chosen
  EXPECT_EQ(sum.norm_kind, NormKind::kRms);
  EXPECT_EQ(sum.residual_norm_eps, 1e-3f);
  EXPECT_EQ(sum.ffn_size, 80);
  EXPECT_EQ(sum.experts->ffn_size, 48);
  const ModelConfig sigmoid =
      ReadCohere2Moe(R"(, "expert_selection_fn": "sigmoid", "norm_topk_prob": false)");
  EXPECT_EQ(sigmoid.experts->router.score, kernels::RouterScore::kSigmoid);
  EXPECT_FALSE(sigmoid.experts->router.renormalize);
}

// ---- MiMo-V2-Flash ----

ModelConfig ReadMimo(const std::string& fields) {
  testing::TempFolder folder;
  folder.Write("config.json",
               testing::TinyConfig("MiMoV2FlashForCausalLM",
                                   R"("num_hidden_layers": 7, "head_dim": 24, "v_head_dim": 16,
                                      "partial_rotary_factor": 1)" +
                                       fields));
  return ReadModelConfig(folder.path());
}

TEST(MimoV2Flash, LayersWithAWindowHaveTwiceAsManyKvHeads) {
  const ModelConfig absent = ReadMimo("");
  EXPECT_EQ(WindowsOf(absent), (Numbers{0, 129, 129, 129, 129, 0, 129}));
  const auto kv_heads = [](const ModelConfig& config) {
    return OfEach(config, [&](const LayerConfig& layer) { return config.kv_heads_of(layer); });
  };
  EXPECT_EQ(kv_heads(absent), (Numbers{2, 4, 4, 4, 4, 2, 4}));
  EXPECT_EQ(absent.ropes.front().rotary_dim, 8);  // 0.334 of 24, whatever the field outside says
  const ModelConfig given = ReadMimo(R"(, "swa_num_key_value_heads": 1, "sliding_window_size": 8)");
  EXPECT_EQ(kv_heads(given), (Numbers{2, 1, 1, 1, 1, 2, 1}));
  EXPECT_EQ(WindowsOf(given), (Numbers{0, 9, 9, 9, 9, 0, 9}));
}

TEST(MimoV2Flash, ValuesArePaddedAndScaledByWhatReadsThem) {
  const ModelConfig config = ReadMimo("");
  EXPECT_EQ(config.stored_value_dim, 16);
  EXPECT_EQ(config.matrix_scales->attention_out, 0.707f);
  EXPECT_EQ(config.linear_columns(config.layers[0], LinearRole::kOut), 4 * 24);
  EXPECT_FALSE(ReadMimo(R"(, "attention_value_scale": null)").matrix_scales.has_value());
  const WeightMap map = MakeWeightMap(config, {.prefix = "model.",
                                               .head = "lm_head.weight",
                                               .experts = &config.arch->experts.spellings.front()});
  const auto slot = [&](const std::string& name) {
    return *std::ranges::find(map.slots, "model.layers.1.self_attn." + name, &WeightSlot::name);
  };
  EXPECT_EQ(slot("v_proj.weight").UnpaddedShape(), (Numbers{4 * 16, 32}));
  EXPECT_EQ(slot("v_proj.weight").shape, (Numbers{4 * 24, 32}));
  EXPECT_EQ(slot("k_proj.weight").UnpaddedShape(), (Numbers{4 * 24, 32}));
  EXPECT_EQ(slot("o_proj.weight").UnpaddedShape(), (Numbers{32, 4 * 16}));
  EXPECT_EQ(slot("o_proj.weight").scale, 0.707f);
  const auto has_sinks = [&](size_t layer) {
    return map.layers[layer].vectors[static_cast<size_t>(VectorRole::kSinks)] != kAbsent;
  };
  EXPECT_FALSE(has_sinks(0));  // without a window
  EXPECT_TRUE(has_sinks(1));
}

}  // namespace
}  // namespace mlc_native
