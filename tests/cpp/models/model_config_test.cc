#include "arch/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "arch/unsupported.h"
#include "support/error.h"
#include "testing/tiny_checkpoint.h"

namespace mlc_native {
namespace {

using testing::TempFolder;
using testing::TinyConfig;

ModelConfig Read(const std::string& architecture, const std::string& fields = "",
                 int64_t longest = std::numeric_limits<int64_t>::max()) {
  TempFolder folder;
  folder.Write("config.json", TinyConfig(architecture, fields));
  return ReadModelConfig(folder.path(), longest);
}

std::vector<int64_t> Windows(const ModelConfig& config) {
  std::vector<int64_t> windows;
  for (const LayerConfig& layer : config.layers) windows.push_back(layer.window.size);
  return windows;
}

TEST(ModelConfig, DerivedSizes) {
  const ModelConfig config = Read("LlamaForCausalLM");
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.qkv_size(), 32 + 2 * 16);
  EXPECT_EQ(config.linear_rows({}, LinearRole::kGateUp), 96);
  EXPECT_EQ(config.linear_columns({}, LinearRole::kDown), 48);
  EXPECT_FLOAT_EQ(config.attention_scale, 1.0f / std::sqrt(8.0f));
  EXPECT_FALSE(config.has_bias(LinearRole::kQkv));
  EXPECT_EQ(config.dtype, std::nullopt);
}

TEST(ModelConfig, HeadDimNeedNotDivideHiddenSize) {
  const ModelConfig config = Read("Qwen3ForCausalLM");
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_EQ(config.linear_columns({}, LinearRole::kOut), 512);
}

TEST(ModelConfig, BiasesOfAFamily) {
  const ModelConfig qwen2 = Read("Qwen2ForCausalLM");
  EXPECT_TRUE(qwen2.has_bias(LinearRole::kQkv));
  EXPECT_FALSE(qwen2.has_bias(LinearRole::kOut));
  const ModelConfig llama = Read("LlamaForCausalLM", R"("attention_bias": true, "mlp_bias": true)");
  EXPECT_TRUE(llama.has_bias(LinearRole::kQkv) && llama.has_bias(LinearRole::kOut));
  EXPECT_TRUE(llama.has_bias(LinearRole::kGateUp) && llama.has_bias(LinearRole::kDown));
}

TEST(ModelConfig, WindowRules) {
  const std::string layers = R"("num_hidden_layers": 7)";
  EXPECT_EQ(Windows(Read("LlamaForCausalLM", R"("sliding_window": 9)")),
            (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(Windows(Read("MistralForCausalLM")), (std::vector<int64_t>{4096, 4096}));
  EXPECT_EQ(Windows(Read("MistralForCausalLM", R"("sliding_window": null)")),
            (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(
      Windows(Read("Qwen2ForCausalLM",
                   R"("use_sliding_window": true, "sliding_window": 9, "max_window_layers": 1)")),
      (std::vector<int64_t>{0, 9}));
  EXPECT_EQ(Windows(Read("Qwen2ForCausalLM", R"("sliding_window": 9, "max_window_layers": 1)")),
            (std::vector<int64_t>{0, 0}));
  const std::string asked = R"("use_sliding_window": true, "sliding_window": 9)";
  EXPECT_EQ(Windows(Read("Qwen3MoeForCausalLM", asked)), (std::vector<int64_t>{9, 9}));
  EXPECT_EQ(Windows(Read("Qwen3MoeForCausalLM", R"("sliding_window": 0)")),
            (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(Windows(Read("Qwen2MoeForCausalLM",
                         asked + R"(, "max_window_layers": 3, "num_hidden_layers": 6)")),
            (std::vector<int64_t>{9, 0, 9, 0, 0, 0}));
  const std::vector<int64_t> images =
      Windows(Read("Qwen2_5_VLForConditionalGeneration", asked + R"(, "num_hidden_layers": 82)"));
  EXPECT_EQ(std::vector<int64_t>(images.end() - 3, images.end()), (std::vector<int64_t>{0, 9, 9}));
  const std::string from_first = R"("max_window_layers": 1)";
  EXPECT_EQ(Windows(Read("Dots1ForCausalLM", from_first)), (std::vector<int64_t>{0, 4096}));
  EXPECT_EQ(Windows(Read("Dots1ForCausalLM", from_first + R"(, "sliding_window": null)")),
            (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(Windows(Read("MellumForCausalLM")), (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(Windows(Read("MellumForCausalLM",
                         R"("layer_types": ["full_attention", "sliding_attention"])")),
            (std::vector<int64_t>{0, 1024}));
  EXPECT_EQ(Windows(Read("Gemma2ForCausalLM", R"("sliding_window": 5, )" + layers)),
            (std::vector<int64_t>{5, 0, 5, 0, 5, 0, 5}));
  const ModelConfig gemma3 = Read("Gemma3ForCausalLM", R"("sliding_window": 5, )" + layers);
  EXPECT_EQ(Windows(gemma3), (std::vector<int64_t>{5, 5, 5, 5, 5, 0, 5}));
  ASSERT_EQ(gemma3.ropes.size(), 2u);
  EXPECT_EQ(gemma3.ropes[static_cast<size_t>(gemma3.layers[5].rope)].theta, 1e6);
  EXPECT_EQ(gemma3.ropes[static_cast<size_t>(gemma3.layers[0].rope)].theta, 1e4);
}

std::vector<bool> Sparse(const ModelConfig& config) {
  std::vector<bool> sparse;
  for (const LayerConfig& layer : config.layers) sparse.push_back(layer.has_experts);
  return sparse;
}

TEST(ModelConfig, LayersWithExperts) {
  const std::string layers = R"("num_hidden_layers": 6)";
  const auto read = [&](const std::string& fields) {
    return Sparse(Read("Qwen3MoeForCausalLM", layers + fields));
  };
  EXPECT_EQ(read(""), std::vector<bool>(6, true));
  EXPECT_EQ(read(R"(, "decoder_sparse_step": 3, "mlp_only_layers": [5, 9])"),
            (std::vector<bool>{false, false, true, false, false, false}));
  EXPECT_EQ(Sparse(Read("LlamaForCausalLM", layers)), std::vector<bool>(6, false));
  const std::string behind = R"("first_k_dense_replace": 0)";
  EXPECT_EQ(Sparse(Read("ExaoneMoeForCausalLM")), (std::vector<bool>{false, true}));
  EXPECT_EQ(Sparse(Read("ExaoneMoeForCausalLM", behind)), (std::vector<bool>{true, true}));
  EXPECT_EQ(
      Sparse(Read("ExaoneMoeForCausalLM", behind + R"(, "mlp_layer_types": ["sparse", "dense"])")),
      (std::vector<bool>{true, false}));
  EXPECT_EQ(Sparse(Read("HYV3ForCausalLM", behind)), (std::vector<bool>{false, true}));
}

TEST(ModelConfig, ExpertsThatReadAProjection) {
  const std::string sizes = R"("layers_block_type": ["mamba", "moe"], "mamba_num_heads": 8,
      "num_attention_heads": 2, "num_key_value_heads": 2, "mlp_bias": true,
      "moe_intermediate_size": 48)";
  const ModelConfig config = Read("NemotronHForCausalLM", sizes + R"(, "moe_latent_size": 24)");
  const LayerConfig& layer = config.layers[1];
  EXPECT_EQ(config.num_linears(layer, LinearRole::kExpertsIn), 1);
  EXPECT_EQ(config.num_linears(config.layers[0], LinearRole::kExpertsIn), 0);
  const auto shape = [&](LinearRole role) {
    return std::pair(config.linear_rows(layer, role), config.linear_columns(layer, role));
  };
  const int64_t hidden = config.hidden_size;
  EXPECT_EQ(shape(LinearRole::kExpertsIn), std::pair(int64_t{24}, hidden));
  EXPECT_EQ(shape(LinearRole::kExpertsOut), std::pair(hidden, int64_t{24}));
  EXPECT_EQ(shape(LinearRole::kExpertGateUp), std::pair(int64_t{48}, int64_t{24}));
  EXPECT_EQ(shape(LinearRole::kExpertDown), std::pair(int64_t{24}, int64_t{48}));
  EXPECT_EQ(config.linear_columns(layer, LinearRole::kRouter), hidden);
  EXPECT_EQ(config.linear_columns(layer, LinearRole::kSharedGateUp), hidden);
  EXPECT_TRUE(config.has_bias(LinearRole::kExpertsIn));
  EXPECT_TRUE(config.has_bias(LinearRole::kExpertsOut));
  EXPECT_FALSE(config.has_bias(LinearRole::kExpertDown));
  const ModelConfig plain = Read("NemotronHForCausalLM", sizes + R"(, "moe_latent_size": null)");
  EXPECT_EQ(plain.num_linears(plain.layers[1], LinearRole::kExpertsOut), 0);
  EXPECT_EQ(plain.linear_columns(plain.layers[1], LinearRole::kExpertGateUp), hidden);
}

TEST(ModelConfig, ExpertsByTheFieldsOfTheFamily) {
  const ModelConfig qwen = Read("Qwen2MoeForCausalLM", R"("num_experts": 6,
      "num_experts_per_tok": 3, "moe_intermediate_size": 7, "shared_expert_intermediate_size": 9)");
  ASSERT_TRUE(qwen.experts.has_value());
  EXPECT_EQ(qwen.experts->router.num_experts, 6);
  EXPECT_EQ(qwen.experts->router.num_chosen, 3);
  EXPECT_FALSE(qwen.experts->router.renormalize);
  const LayerConfig& layer = qwen.layers.front();
  EXPECT_EQ(qwen.num_linears(layer, LinearRole::kExpertGateUp), 6);
  EXPECT_EQ(qwen.num_linears(layer, LinearRole::kGateUp), 0);
  EXPECT_EQ(qwen.linear_rows({}, LinearRole::kRouter), 7);  // and the shared expert's gate
  EXPECT_EQ(qwen.linear_rows({}, LinearRole::kExpertGateUp), 14);
  EXPECT_EQ(qwen.linear_columns({}, LinearRole::kSharedDown), 9);
  // What the family calls otherwise is also found under the name that transformers gives it.
  EXPECT_EQ(Read("Qwen2MoeForCausalLM", R"("num_local_experts": 5)").experts->router.num_experts,
            5);
  EXPECT_EQ(Read("Qwen2MoeForCausalLM").experts->shared_ffn_size, 5632);
  // A list has a number for each layer.
  const auto chosen = [](const std::string& list) {
    const ModelConfig config =
        Read("HunYuanMoEV1ForCausalLM", R"("num_experts": 6, "moe_topk": )" + list);
    return config.experts->router.num_chosen;
  };
  EXPECT_EQ(chosen("[3, 3]"), 3);
  for (const char* wrong : {"[]", "[2, 3]", "[7, 7]", "[0, 0]", "[2.5]"}) {
    EXPECT_THROW(chosen(wrong), LoadError) << wrong;
  }
  const ModelConfig mixtral = Read("MixtralForCausalLM");
  EXPECT_EQ(mixtral.experts->ffn_size, 48);
  EXPECT_TRUE(mixtral.experts->router.renormalize);
  EXPECT_EQ(mixtral.num_linears(mixtral.layers.front(), LinearRole::kSharedDown), 0);
}

TEST(ModelConfig, ScaledRopeIsOnlyThatOfLayersWithoutAWindow) {
  const ModelConfig config = Read("Olmo3ForCausalLM", R"("num_hidden_layers": 4,
      "rope_scaling": {"rope_type": "yarn", "factor": 8, "original_max_position_embeddings": 32})");
  EXPECT_EQ(Windows(config), (std::vector<int64_t>{4096, 4096, 4096, 0}));
  const auto rope = [&](size_t layer) {
    return config.ropes[static_cast<size_t>(config.layers[layer].rope)];
  };
  EXPECT_EQ(rope(3).scaling, RopeScaling::kYarn);
  EXPECT_EQ(rope(0).scaling, RopeScaling::kNone);
  EXPECT_EQ(rope(0).theta, 5e5);
}

TEST(ModelConfig, LayersWithoutRope) {
  const auto ropes = [](const std::string& fields) {
    std::vector<int> ropes;
    const ModelConfig config = Read("SmolLM3ForCausalLM", R"("num_hidden_layers": 4)" + fields);
    for (const LayerConfig& layer : config.layers) ropes.push_back(layer.rope);
    return ropes;
  };
  constexpr int kNone = LayerConfig::kNoRope;
  EXPECT_EQ(ropes(""), (std::vector<int>{0, 0, 0, kNone}));
  EXPECT_EQ(ropes(R"(, "no_rope_layer_interval": 2)"), (std::vector<int>{0, kNone, 0, kNone}));
  EXPECT_EQ(ropes(R"(, "no_rope_layers": [0, 1, 1, 0, 1])"),
            (std::vector<int>{kNone, 0, 0, kNone}));
  EXPECT_THROW(ropes(R"(, "no_rope_layers": [1, 0, 1])"), LoadError);
  EXPECT_EQ(Windows(Read("SmolLM3ForCausalLM", R"("no_rope_layers": [0, 1], "sliding_window": 9,
                                                  "use_sliding_window": true)")),
            (std::vector<int64_t>{9, 0}));
  EXPECT_EQ(Windows(Read("SmolLM3ForCausalLM", R"("no_rope_layers": [0, 1], "sliding_window": 9)")),
            (std::vector<int64_t>{0, 0}));
}

TEST(ModelConfig, AbsentSoftCapsAreTheFamilysNullIsNone) {
  const ModelConfig absent = Read("Gemma2ForCausalLM");
  EXPECT_EQ(absent.attention_soft_cap, 50.0f);
  EXPECT_EQ(absent.final_soft_cap, 30.0f);
  const ModelConfig null = Read("Gemma2ForCausalLM", R"("attn_logit_softcapping": null)");
  EXPECT_EQ(null.attention_soft_cap, 0.0f);
  EXPECT_EQ(Read("Gemma3ForCausalLM").final_soft_cap, 0.0f);
}

TEST(ModelConfig, MultipliersAreFolded) {
  const ModelConfig config = Read("GraniteForCausalLM", R"("rms_norm_eps": 1e-4,
      "embedding_multiplier": 6, "residual_multiplier": 0.5, "attention_multiplier": 0.25,
      "logits_scaling": 8)");
  EXPECT_EQ(config.EmbeddingScale(DType::kBFloat16), 12.0f);
  EXPECT_FLOAT_EQ(config.residual_norm_eps, 4e-4f);
  EXPECT_FLOAT_EQ(config.norm_eps, 1e-4f);
  EXPECT_EQ(config.attention_scale, 0.25f);
  EXPECT_EQ(config.final_norm_scale, 0.125f);
  const ModelConfig absent = Read("GraniteForCausalLM");
  EXPECT_EQ(absent.EmbeddingScale(DType::kFloat32), 1.0f);
  EXPECT_EQ(absent.residual_norm_eps, absent.norm_eps);
  EXPECT_EQ(absent.attention_scale, 1.0f);
  EXPECT_EQ(absent.final_norm_scale, 1.0f);
}

TEST(ModelConfig, AHybridMayHaveAttentionInSomeLayersOrAll) {
  const char* const kName = "GraniteMoeHybridForCausalLM";
  const std::string sizes = R"("num_hidden_layers": 2, "shared_intermediate_size": 24, )";
  const std::string types = R"("layer_types": ["attention", "full_attention"], )";
  const std::string fields = sizes + types + R"("num_local_experts": 0)";
  const ModelConfig config = Read(kName, fields);
  EXPECT_EQ(config.ffn_size, 24);
  EXPECT_FALSE(config.layers[0].has_experts);
  EXPECT_EQ(config.layers[0].rope, LayerConfig::kNoRope);
  EXPECT_EQ(Read(kName, fields + R"(, "position_embedding_type": "rope")").layers[1].rope, 0);
  EXPECT_FALSE(config.mamba);
  const ModelConfig experts = Read(kName, sizes + types + R"("num_local_experts": 4)");
  EXPECT_TRUE(experts.layers[0].has_experts);
  const std::string dense = R"("num_local_experts": 0)";
  const ModelConfig mixed =
      Read(kName, sizes + R"("layer_types": ["attention", "mamba"], )" + dense);
  EXPECT_FALSE(mixed.layers[0].is_recurrent);
  EXPECT_TRUE(mixed.layers[1].is_recurrent);
  EXPECT_EQ(mixed.mamba->num_heads, 4);
  EXPECT_EQ(mixed.mamba->head_dim, 16);
  const ModelConfig absent = Read(kName, sizes + R"("layer_types": null, )" + dense);
  EXPECT_TRUE(absent.layers[0].is_recurrent && absent.layers[1].is_recurrent);
  try {
    Read(kName, sizes + R"("layer_types": ["attention", "conv"], )" + dense);
    ADD_FAILURE() << "no layer is a convolution";
  } catch (const LoadError& error) {
    EXPECT_EQ(error.field(), "layer_types");
    EXPECT_THAT(error.what(), ::testing::HasSubstr("= \"conv\" is not supported"));
  }
}

TEST(ModelConfig, PeriodsSayWhichLayersOfJambaAttendAndHaveExperts) {
  const std::string sizes = R"("num_hidden_layers": 5, "attn_layer_period": 3,
      "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 0,
      "num_experts_per_tok": 1, "mamba_dt_rank": "auto", )";
  const ModelConfig config = Read("JambaForCausalLM", sizes + R"("num_experts": 4)");
  for (size_t i = 0; i < config.layers.size(); ++i) {
    EXPECT_EQ(config.layers[i].is_recurrent, i % 3 != 1) << i;
    EXPECT_EQ(config.layers[i].has_experts, i % 2 == 0) << i;
    EXPECT_EQ(config.layers[i].rope, LayerConfig::kNoRope);
  }
  ASSERT_TRUE(config.scan);
  EXPECT_EQ(config.scan->channels, 2 * config.hidden_size);
  EXPECT_EQ(config.scan->rank, (config.hidden_size + 15) / 16);
  EXPECT_TRUE(config.scan->has_norms);
  EXPECT_TRUE(config.ropes.empty());
  EXPECT_TRUE(Read("MambaForCausalLM").ropes.empty());
  const ModelConfig dense = Read("JambaForCausalLM", sizes + R"("num_experts": 1)");
  EXPECT_FALSE(dense.experts);
  EXPECT_TRUE(std::ranges::none_of(dense.layers, &LayerConfig::has_experts));
}

// The long factors beyond the original context, which otherwise limits the sequences.
TEST(ModelConfig, TheLongestSequenceChoosesTheFactorsOfLongRope) {
  const std::string fields = R"(
      "original_max_position_embeddings": 64,
      "rope_scaling": {"type": "su", "short_factor": [1, 1, 2, 2], "long_factor": [9, 9, 9, 9]})";
  struct Case {
    int64_t longest;
    int64_t max_positions;
    std::vector<double> factors;
  };
  for (const Case& c : {Case{1 << 20, 256, {9, 9, 9, 9}}, Case{65, 256, {9, 9, 9, 9}},
                        Case{64, 64, {1, 1, 2, 2}}}) {
    const ModelConfig config = Read("Phi3ForCausalLM", fields, c.longest);
    EXPECT_EQ(config.max_positions, c.max_positions);
    EXPECT_EQ(config.ropes[0].scaling, RopeScaling::kLongRope);
    EXPECT_EQ(config.ropes[0].factors, c.factors);
    EXPECT_DOUBLE_EQ(config.ropes[0].attention_factor,
                     std::sqrt(1.0 + std::log(4.0) / std::log(64.0)));
  }
}

TEST(ModelConfig, EveryArchitectureHasARowThatParses) {
  for (const ArchSpec& arch : SupportedArchitectures()) {
    if (!arch.config_section.empty()) continue;
    const ModelConfig config = Read(std::string(arch.architecture));
    EXPECT_EQ(config.arch, &arch);
    EXPECT_NE(SupportedArchitectureList().find(arch.architecture), std::string::npos);
  }
}

TEST(ModelConfig, WhatAnArchitectureLacksIsNamed) {
  for (const UnsupportedArchitecture& row : UnsupportedArchitectures()) {
    EXPECT_EQ(FindArchitecture(row.architecture), nullptr) << row.architecture;
    try {
      Read(std::string(row.architecture));
      ADD_FAILURE() << row.architecture;
    } catch (const LoadError& error) {
      EXPECT_EQ(error.field(), "architectures");
      const std::string what =
          std::string(row.architecture) + " is not supported: it needs " + std::string(row.lacks);
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
    }
  }
}

TEST(ModelConfig, RopeRules) {
  const auto ropes = [](const std::string& architecture, const std::string& fields) {
    std::vector<int> ropes;
    const ModelConfig config = Read(architecture, R"("num_hidden_layers": 4)" + fields);
    for (const LayerConfig& layer : config.layers) ropes.push_back(layer.rope);
    return ropes;
  };
  constexpr int kNone = LayerConfig::kNoRope;
  EXPECT_EQ(ropes("Cohere2ForCausalLM", ""), (std::vector<int>{0, 0, 0, kNone}));
  EXPECT_EQ(ropes("Exaone4ForCausalLM", ""), (std::vector<int>{0, 0, 0, kNone}));
  EXPECT_EQ(ropes("Exaone4ForCausalLM", R"(, "sliding_window": null)"),
            (std::vector<int>{0, 0, 0, 0}));
}

TEST(ModelConfig, ChunksOfLlama4) {
  const auto layers = [](const std::string& fields) {
    return Read("Llama4ForCausalLM", R"("num_hidden_layers": 4)" + fields).layers;
  };
  const auto is_chunk = [](const LayerConfig& layer) { return layer.window.is_chunk; };
  // The first checkpoints have an empty list, which says nothing, and a number for "true".
  const ModelConfig config =
      Read("Llama4ForCausalLM", R"("num_hidden_layers": 4, "no_rope_layers": [],
           "attn_temperature_tuning": 4, "interleave_moe_layer_step": 2, "floor_scale": 2)");
  EXPECT_EQ(Windows(config), (std::vector<int64_t>{8192, 8192, 8192, 0}));
  EXPECT_EQ(std::ranges::count_if(config.layers, is_chunk), 3);
  EXPECT_EQ(config.QueryScales(3)[0], 1.0f);  // the first period ends one position earlier
  EXPECT_FLOAT_EQ(config.QueryScales(3)[1], 1.0f + 0.1f * std::log(2.0f));
  for (int i = 0; i < 4; ++i) {
    const LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    EXPECT_EQ(layer.has_experts, i % 2 == 1) << i;
    EXPECT_EQ(config.scales_queries(layer), i == 3) << i;
    EXPECT_EQ(config.has_norm(layer, NormRole::kQ), i < 3) << i;
  }
  const std::vector<LayerConfig> listed = layers(
      R"(, "moe_layers": [0], "attention_chunk_size": 7, "layer_types": ["full_attention",
         "chunked_attention", "full_attention", "full_attention"])");
  EXPECT_TRUE(listed[0].has_experts && !listed[1].has_experts);
  EXPECT_EQ(std::ranges::count_if(listed, is_chunk), 1);
  EXPECT_EQ(listed[1].window, kernels::AttentionWindow(7, true));
  EXPECT_EQ(std::ranges::count_if(layers(R"(, "attention_chunk_size": null)"), is_chunk), 0);
  EXPECT_THROW(layers(R"(, "attention_chunk_size": null, "layer_types": ["chunked_attention",
                      "full_attention", "full_attention", "full_attention"])"),
               LoadError);
  EXPECT_THROW(layers(R"(, "layer_types": ["sliding_attention", "full_attention",
                      "full_attention", "full_attention"])"),
               LoadError);
}

TEST(ModelConfig, AbsentRopesOfAFamily) {
  const ModelConfig ministral = Read("Ministral3ForCausalLM");
  EXPECT_EQ(ministral.ropes[0].scaling, RopeScaling::kYarn);
  EXPECT_EQ(ministral.ropes[0].theta, 1e6);
  EXPECT_FLOAT_EQ(ministral.query_scaling.strength, 0.1f);
  const std::vector<float> scales = ministral.QueryScales(32769);
  EXPECT_EQ(scales[16383], 1.0f);
  EXPECT_FLOAT_EQ(scales[16384], 1.0f + 0.1f * std::log(2.0f));
  EXPECT_FLOAT_EQ(scales[32768], 1.0f + 0.1f * std::log(3.0f));
  const ModelConfig given =
      Read("Ministral3ForCausalLM", R"("rope_parameters": {"rope_theta": 5})");
  EXPECT_EQ(given.ropes[0].scaling, RopeScaling::kNone);
  EXPECT_TRUE(given.QueryScales(4).empty());
  EXPECT_EQ(Read("ApertusForCausalLM").ropes[0].scaling, RopeScaling::kLlama3);
  // A Mistral in a folder with images.
  const ModelConfig mistral = Read("Mistral3ForConditionalGeneration", R"("rope_theta": 7)");
  EXPECT_EQ(mistral.ropes[0].scaling, RopeScaling::kNone);
  EXPECT_EQ(mistral.ropes[0].theta, 7);
}

TEST(RopeFrequencies, OfEachScaling) {
  RopeConfig rope{.theta = 100.0, .rotary_dim = 4};
  EXPECT_EQ(RopeFrequencies(rope), (std::vector<float>{1.0f, 0.1f}));
  rope.scaling = RopeScaling::kLinear;
  rope.factor = 4.0;
  EXPECT_EQ(RopeFrequencies(rope), (std::vector<float>{0.25f, 0.025f}));
  // Wavelengths 6.3 and 63 of a context of 32: kept below 32 / 4, stretched above 32 / 1.
  rope.scaling = RopeScaling::kLlama3;
  rope.original_max_positions = 32;
  EXPECT_EQ(RopeFrequencies(rope), (std::vector<float>{1.0f, 0.025f}));
}

TEST(RopeTable, AngleIsPositionTimesFrequency) {
  const RopeTable table = MakeRopeTable({.theta = 100.0, .rotary_dim = 4}, 3);
  ASSERT_EQ(table.cos.size(), 6u);
  EXPECT_FLOAT_EQ(table.cos[0], 1.0f);
  EXPECT_FLOAT_EQ(table.sin[1], 0.0f);
  EXPECT_FLOAT_EQ(table.cos[2 * 2], std::cos(2.0f));
  EXPECT_FLOAT_EQ(table.sin[2 * 2 + 1], std::sin(0.2f));
}

}  // namespace
}  // namespace mlc_native
