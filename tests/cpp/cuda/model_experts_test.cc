// CudaModel with mixtures of experts against the decoder of the CPU. What of its bits must not
// change is model_test.cc's.
#include <gtest/gtest.h>

#include "cuda/model_driver.h"
#include "support/error.h"

namespace mlc_native {
namespace {

// Every way of choosing experts, with and without shared ones and biases.
TEST(CudaModel, MixturesOfExpertsAreTheCpusInFloat32) {
  const std::pair<const char*, const char*> models[] = {
      {"Qwen3MoeForCausalLM", kQwenExperts},
      {"GptOssForCausalLM", kGptOssExperts},
      {"MixtralForCausalLM", R"("num_local_experts": 3, "num_experts_per_tok": 2)"},
      {"Qwen2MoeForCausalLM", R"("num_experts": 5, "num_experts_per_tok": 2,
          "moe_intermediate_size": 16, "shared_expert_intermediate_size": 40,
          "mlp_only_layers": [0])"},
      {"Glm4MoeForCausalLM", R"("head_dim": 16, "n_routed_experts": 8, "num_experts_per_tok": 3,
          "n_group": 4, "topk_group": 2, "moe_intermediate_size": 16, "n_shared_experts": 2,
          "routed_scaling_factor": 1.5)"},
      {"MiniMaxM2ForCausalLM", R"("head_dim": 16, "rotary_dim": 8, "num_local_experts": 6,
          "num_experts_per_tok": 2)"},
      {"PhimoeForCausalLM", R"("num_local_experts": 4, "num_experts_per_tok": 2)"},
      {"OlmoeForCausalLM", R"("num_experts": 6, "num_experts_per_tok": 3)"},
      {"FlexOlmoForCausalLM", R"("num_experts": 6, "num_experts_per_tok": 3)"},
      {"HunYuanMoEV1ForCausalLM", R"("num_experts": 6, "moe_topk": 3)"},
      {"Ernie4_5_MoeForCausalLM", R"("moe_num_experts": 6, "moe_k": 2,
          "moe_intermediate_size": 16, "moe_num_shared_experts": 1)"},
      {"GraniteMoeSharedForCausalLM", R"("num_local_experts": 4, "num_experts_per_tok": 2,
          "shared_intermediate_size": 24)"}};
  for (const auto& [architecture, fields] : models) {
    TinyModel tiny(architecture, fields);
    EXPECT_LT(Difference(SomeSteps(*tiny.OnDevice()), SomeSteps(*tiny.OnCpu())), 1e-4)
        << architecture;
  }
}

// Values are shorter than queries and keys, longer, and as long.
TEST(CudaModel, LatentAttentionIsTheCpusInFloat32) {
  const std::pair<const char*, const char*> models[] = {
      {"DeepseekV3ForCausalLM",
       R"("q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
          "v_head_dim": 16, "n_routed_experts": 8, "num_experts_per_tok": 3, "n_group": 4,
          "topk_group": 2,
          "moe_intermediate_size": 16, "first_k_dense_replace": 1)"},
      {"DeepseekV2ForCausalLM", R"("q_lora_rank": null, "kv_lora_rank": 24, "qk_nope_head_dim": 8,
          "qk_rope_head_dim": 8, "v_head_dim": 24, "n_routed_experts": 6,
          "num_experts_per_tok": 2, "moe_intermediate_size": 16)"},
      {"Glm4MoeLiteForCausalLM", R"("q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8,
          "qk_rope_head_dim": 8, "v_head_dim": 16, "n_routed_experts": 6,
          "num_experts_per_tok": 2, "moe_intermediate_size": 16)"},
      // A norm behind experts alone.
      {"AXK1ForCausalLM", R"("q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8,
          "qk_rope_head_dim": 8, "v_head_dim": 16, "n_routed_experts": 6, "n_group": 2,
          "topk_group": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 16)"}};
  for (const auto& [architecture, fields] : models) {
    TinyModel tiny(architecture, fields);
    const std::vector<float> want = SomeSteps(*tiny.OnCpu());
    EXPECT_LT(Difference(SomeSteps(*tiny.OnDevice()), want), 1e-4) << architecture;
  }
}

TEST(CudaModel, LatentAttentionOfSixteenAndFewerBitsIsNearFloat32) {
  TinyModel tiny("DeepseekV3ForCausalLM", kLatent);
  const std::vector<float> want = SomeSteps(*tiny.OnCpu());
  EXPECT_LT(Difference(SomeSteps(*tiny.OnDevice("bfloat16")), want), 3e-2);
  EXPECT_LT(Difference(SomeSteps(*tiny.OnDevice("float16")), want), 5e-3);
  ModelSource source = tiny.Source("float16");
  source.quantization = WeightQuantization::kQ8;
  EXPECT_LT(Difference(SomeSteps(*tiny.Load(source)), want), 2e-2);
}

// Every row has all experts, of which rounding could otherwise choose others.
TEST(CudaModel, ExpertsOfSixteenAndFewerBitsAreNearFloat32) {
  TinyModel tiny("GptOssForCausalLM", R"("head_dim": 16, "num_local_experts": 3,
      "num_experts_per_tok": 3)");
  const std::vector<float> want = SomeSteps(*tiny.OnCpu());
  EXPECT_LT(Difference(SomeSteps(*tiny.OnDevice("bfloat16")), want), 3e-2);
  EXPECT_LT(Difference(SomeSteps(*tiny.OnDevice("float16")), want), 5e-3);
  ModelSource source = tiny.Source("float16");
  source.quantization = WeightQuantization::kQ8;
  EXPECT_LT(Difference(SomeSteps(*tiny.Load(source)), want), 2e-2);
  source.quantization = WeightQuantization::kQ4;
  EXPECT_LT(Difference(SomeSteps(*tiny.Load(source)), want), 2e-1);
}

TEST(CudaModel, SizesOfExpertsAreRefusedByTheNamesOfTheFamily) {
  const auto refused = [](const char* architecture, const char* fields) -> std::string {
    try {
      LoadCudaModel(TinyModel(architecture, fields).Source());
    } catch (const LoadError& error) {
      return error.field();
    }
    return "nothing";
  };
  EXPECT_EQ(refused("Qwen3MoeForCausalLM", R"("num_experts": 2, "num_experts_per_tok": 1,
                "moe_intermediate_size": 20)"),
            "moe_intermediate_size");
  EXPECT_EQ(refused("Qwen2MoeForCausalLM", R"("num_experts": 2, "num_experts_per_tok": 1,
                "moe_intermediate_size": 16, "shared_expert_intermediate_size": 12)"),
            "shared_expert_intermediate_size");
  EXPECT_EQ(refused("DeepseekV3ForCausalLM",
                    R"("kv_lora_rank": 20, "n_routed_experts": 8, "n_group": 1, "topk_group": 1)"),
            "kv_lora_rank");
}

}  // namespace
}  // namespace mlc_native
