// Layers that differ in what they are made of, or in their sizes, on several devices of the
// emulated machine: each has its share of every layer, and what all of them compute is not added
// up.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cuda/model_driver.h"

namespace mlc_native {
namespace {

class ShardedLayersTest : public ::testing::Test {
 protected:
  ShardedLayersTest() { setenv("MLC_NATIVE_NCCL_LIB", FAKE_NCCL, 1); }
  ~ShardedLayersTest() override {
    unsetenv("MLC_NATIVE_NCCL_LIB");
    kernels::cuda::UseDevice(0);
  }

  static float DifferenceOn(int64_t number, const std::string& fields, const char* dtype,
                            const char* architecture = "Gemma4ForCausalLM",
                            WeightQuantization quantization = WeightQuantization::kAuto) {
    TinyModel tiny(architecture, fields);
    ModelSource source = tiny.Source(dtype);
    source.quantization = quantization;
    const std::vector<float> wanted = SomeSteps(*tiny.Load(source));
    source.tensor_parallel_shards = number;
    return static_cast<float>(Difference(SomeSteps(*tiny.Load(source)), wanted));
  }
  // Sizes of blocks that four devices can divide.
  static std::string Divisible(std::string fields) {
    const std::string experts = R"("moe_intermediate_size": 24)";
    if (const size_t at = fields.find(experts); at != std::string::npos) {
      fields.replace(at, experts.size(), R"("moe_intermediate_size": 32)");
    }
    return fields + R"(, "intermediate_size": 64)";
  }
};

TEST_F(ShardedLayersTest, LogitsOnTwoAndFourAreThoseOfOneDevice) {
  for (const char* fields : {kGemma4Dense, kGemma4Inputs, kGemma4Experts}) {
    EXPECT_LT(DifferenceOn(2, Divisible(fields), "float32"), 1e-5) << fields;
  }
  EXPECT_LT(DifferenceOn(4, Divisible(kGemma4Dense), "float32"), 1e-5) << "KV heads in pairs";
  EXPECT_LT(DifferenceOn(2, Divisible(kGemma4Inputs), "bfloat16"), 3e-2);
}

TEST_F(ShardedLayersTest, BlocksAndStatesAreThoseOfOneDevice) {
  const std::string four_groups = std::string(R"("mamba_d_ssm": 96, "mamba_n_groups": 4,)") +
                                  R"("num_attention_heads": 4, "intermediate_size": 64)";
  const std::tuple<int64_t, const char*, std::string> models[] = {
      {2, "NemotronHForCausalLM", kSingleBlocks},  // a group of heads each
      {2, "NemotronHForCausalLM", kSingleBlockExperts},
      {2, "NemotronHForCausalLM", kSingleBlocksWithoutStates},
      {2, "KimiLinearForCausalLM", kKimi},
      {2, "Gemma3nForCausalLM", kStreams},  // gates of which each device has some
      {2, "OlmoHybridForCausalLM", kOlmoHybrid},
      {2, "FalconH1ForCausalLM", kBesideMamba},  // of one group, which has no norm
      {2, "FalconH1ForCausalLM", kBesideMambaWithNorm},
      {4, "FalconH1ForCausalLM", four_groups},
      {2, "LagunaForCausalLM", kHeadsOfLayersWithBiases},
      {2, "Cohere2MoeForCausalLM", kParallelExperts},
      {2, "MiMoV2FlashForCausalLM", kShortValues}};
  for (const auto& [number, architecture, fields] : models) {
    EXPECT_LT(DifferenceOn(number, fields, "float32", architecture), 1e-5)
        << architecture << " " << fields;
  }
}

// Of matrices whose rows or columns belong to states, heads and experts.
TEST_F(ShardedLayersTest, QuantizedBlocksAreNear) {
  const std::string sizes = R"("hidden_size": 64, "head_dim": 32, "intermediate_size": 128, )";
  const std::string blocks = sizes + R"("hybrid_override_pattern": "EM*-", "mamba_head_dim": 32,
      "moe_intermediate_size": 128, "moe_shared_expert_intermediate_size": 128)";
  const std::string beside = sizes + R"("mamba_d_ssm": 128)";
  for (const auto& [architecture, fields] :
       {std::pair{"NemotronHForCausalLM", blocks}, {"FalconH1ForCausalLM", beside}}) {
    for (const auto bits : {WeightQuantization::kQ8, WeightQuantization::kQ4}) {
      EXPECT_LT(DifferenceOn(2, fields, "float16", architecture, bits), 5e-3) << architecture;
    }
  }
}

TEST_F(ShardedLayersTest, DevicesDivideWhatTheyKeep) {
  TinyModel tiny("Gemma4ForCausalLM", kGemma4Inputs);
  ModelSource source = tiny.Source("float16");
  const int64_t of_one = LoadCudaModel(source)->metadata().kv_bytes_per_token;
  source.tensor_parallel_shards = 2;
  EXPECT_EQ(LoadCudaModel(source)->metadata().kv_bytes_per_token, of_one / 2);
  TinyModel dense("Gemma4ForCausalLM", kGemma4Dense);
  source = dense.Source("float16");
  source.tensor_parallel_shards = 2;
  EXPECT_EQ(LoadCudaModel(source)->metadata().kv_bytes_per_token, 2 * 2 * (3 * 16 + 2 * 32))
      << "both have the KV head of layers without a window";
}

}  // namespace
}  // namespace mlc_native
