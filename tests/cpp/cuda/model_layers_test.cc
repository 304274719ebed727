// CudaModel with layers that differ: chunks of prompts, pages, and heads of 512 elements.
#include <gtest/gtest.h>

#include "cuda/model_driver.h"

namespace mlc_native {
namespace {

// Logits of the last row of a prompt in chunks; in 16 bits, of which tiles are computed together.
TEST(CudaModel, APromptIsTheSameInEveryChunk) {
  for (const char* fields : {kGemma4Dense, kGemma4Inputs, kGemma4Experts}) {
    TinyModel tiny("Gemma4ForCausalLM", fields);
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
  const auto bytes = [](const char* fields) {
    TinyModel tiny("Gemma4ForCausalLM", fields);
    return LoadCudaModel(tiny.Source("float16"))->metadata().kv_bytes_per_token;
  };
  EXPECT_EQ(bytes(kGemma4Dense), 2 * 2 * (3 * 2 * 16 + 2 * 32));
  EXPECT_EQ(bytes(kGemma4Inputs), 2 * 2 * (2 * 2 * 16 + 2 * 32));  // without the last two
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
