// CudaModel with layers that differ: chunks of prompts, pages, and heads of 512 elements.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "cuda/model_driver.h"

namespace mlc_native {
namespace {

// Logits of the last row of a prompt in chunks; in 16 bits, of which tiles are computed together.
TEST(CudaModel, APromptIsTheSameInEveryChunk) {
  for (const auto& [architecture, fields] : {std::pair{"Gemma4ForCausalLM", kGemma4Dense},
                                             {"Gemma4ForCausalLM", kGemma4Inputs},
                                             {"Gemma4ForCausalLM", kGemma4Experts},
                                             {"Gemma3nForCausalLM", kStreams},
                                             {"GPT2LMHeadModel", ""},
                                             {"OPTForCausalLM", ""},
                                             {"NemotronHForCausalLM", kSingleBlocks},
                                             {"NemotronHForCausalLM", kSingleBlockExperts},
                                             {"FalconH1ForCausalLM", kBesideMamba}}) {
    SCOPED_TRACE(architecture);
    TinyModel tiny(architecture, fields);
    ModelSource source = tiny.Source("bfloat16");
    source.deterministic = true;
    const auto model = tiny.Load(source);
    const std::vector<int32_t> tokens = SomeTokens(45, 3);
    const auto logits = [&](const std::vector<int64_t>& cuts) {
      TestSequence sequence(0);
      std::vector<float> last;
      for (size_t i = 0; i + 1 < cuts.size(); ++i) {
        last = Logits(*model, TestBatch().AddPrompt(sequence, {tokens.begin() + cuts[i],
                                                               tokens.begin() + cuts[i + 1]}));
      }
      return last;
    };
    const std::vector<float> whole = logits({0, 45});
    EXPECT_EQ(logits({0, 1, 44, 45}), whole);
    EXPECT_EQ(logits({0, 17, 30, 45}), whole);
  }
}

// Bytes of a token in the pages: each layer with keys and values of its own has its own size.
TEST(CudaModel, LayersHavePagesOfTheirOwnSize) {
  const auto bytes = [](const char* architecture, const char* fields) {
    TinyModel tiny(architecture, fields);
    return LoadCudaModel(tiny.Source("float16"))->metadata().kv_bytes_per_token;
  };
  EXPECT_EQ(bytes("Gemma4ForCausalLM", kGemma4Dense), 2 * 2 * (3 * 2 * 16 + 2 * 32));
  EXPECT_EQ(bytes("Gemma4ForCausalLM", kGemma4Inputs),
            2 * 2 * (2 * 2 * 16 + 2 * 32));                                 // without the last two
  EXPECT_EQ(bytes("NemotronHForCausalLM", kSingleBlocks), 2 * 2 * 2 * 16);  // of one of six
  EXPECT_EQ(bytes("FalconH1ForCausalLM", kBesideMamba), 2 * 2 * 2 * 2 * 8);
}

// Attention, Mamba-2, blocks without a gate and experts with weights of few bits.
TEST(CudaModel, QuantizedBlocksAreNearFloat32) {
  for (const auto& [architecture, fields] : {std::pair{"NemotronHForCausalLM", kSingleBlocks},
                                             {"NemotronHForCausalLM", kSingleBlockExperts},
                                             {"FalconH1ForCausalLM", kBesideMamba}}) {
    SCOPED_TRACE(architecture);
    TinyModel tiny(architecture, fields);
    const std::vector<float> want = SomeSteps(*tiny.OnCpu());
    EXPECT_LT(Difference(SomeSteps(*tiny.OnDevice("float16")), want), 1e-2);
    ModelSource source = tiny.Source("float16");
    source.quantization = WeightQuantization::kQ8;
    EXPECT_LT(Difference(SomeSteps(*tiny.Load(source)), want), 5e-2);
    source.quantization = WeightQuantization::kQ4;
    EXPECT_LT(Difference(SomeSteps(*tiny.Load(source)), want), 5e-1);
  }
}

// Heads of 512 elements, as Gemma 4 has them.
TEST(CudaModel, WideHeadsAreNearFloat32) {
  TinyModel tiny("Gemma4ForCausalLM", R"("head_dim": 256, "global_head_dim": 512,
      "sliding_window": 9, "hidden_size_per_layer_input": 0, "num_hidden_layers": 2,
      "layer_types": ["sliding_attention", "full_attention"])");
  const std::vector<float> want = SomeSteps(*tiny.OnCpu());
  EXPECT_LT(Difference(SomeSteps(*tiny.OnDevice()), want), 1e-4);
  EXPECT_LT(Difference(SomeSteps(*tiny.OnDevice("bfloat16")), want), 5e-2);
  CheckThatARowIsTheSameInEveryBatch(*tiny.OnDevice("bfloat16"));
}

}  // namespace
}  // namespace mlc_native
