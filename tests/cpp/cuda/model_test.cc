// CudaModel on small checkpoints: logits against the CPU's decoder, and what must not change a bit.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "cuda/model_driver.h"
#include "cuda/model_families.h"
#include "support/error.h"

namespace mlc_native {
namespace {

TEST(CudaModel, LogitsAreTheCpusInFloat32) {
  for (const auto& [architecture, fields] : kLoadedFamilies) {
    TinyModel tiny(architecture, fields);
    EXPECT_LT(Difference(SomeSteps(*tiny.OnDevice()), SomeSteps(*tiny.OnCpu())), 1e-4)
        << architecture;
  }
}

TEST(CudaModel, TheHeadMayBeTheEmbeddings) {
  TinyModel tiny("LlamaForCausalLM", R"("tie_word_embeddings": true)");
  EXPECT_LT(Difference(SomeSteps(*tiny.OnDevice()), SomeSteps(*tiny.OnCpu())), 1e-4);
  ModelSource source = tiny.Source("float16");
  source.quantization = WeightQuantization::kQ8;
  EXPECT_LT(Difference(SomeSteps(*tiny.Load(source)), SomeSteps(*tiny.OnCpu())), 2e-2);
}

TEST(CudaModel, SixteenAndFewerBitsAreNearFloat32) {
  TinyModel tiny("Qwen3ForCausalLM", R"("head_dim": 16)");
  const std::vector<float> want = SomeSteps(*tiny.OnCpu());
  EXPECT_LT(Difference(SomeSteps(*tiny.OnDevice("bfloat16")), want), 3e-2);
  EXPECT_LT(Difference(SomeSteps(*tiny.OnDevice("float16")), want), 5e-3);
  ModelSource source = tiny.Source("float16");
  source.kv_cache_dtype = KvCacheDType::kFloat8;
  EXPECT_LT(Difference(SomeSteps(*tiny.Load(source)), want), 8e-2);
  source = tiny.Source("float16");
  source.quantization = WeightQuantization::kQ8;
  EXPECT_LT(Difference(SomeSteps(*tiny.Load(source)), want), 2e-2);
  source.quantization = WeightQuantization::kQ4;
  EXPECT_LT(Difference(SomeSteps(*tiny.Load(source)), want), 2e-1);
}

// A budget of bits takes formats that the device has: 4 and 8 bits.
TEST(CudaModel, ABudgetIsSpentOnFourAndEightBits) {
  TinyModel tiny("Qwen3ForCausalLM", R"("head_dim": 16)");
  const std::vector<float> want = SomeSteps(*tiny.OnCpu());
  ModelSource source = tiny.Source("float16");
  const auto load = [&](const char* quantization) {
    source.quantization = *WeightQuantization::Parse(quantization);
    return tiny.Load(source);
  };
  const auto mixed = load("q6.5");
  const float error = Difference(SomeSteps(*mixed), want);
  EXPECT_LT(error, 1.5e-1);
  const auto four = load("q4.5"), eight = load("q8.25");
  EXPECT_LT(error, Difference(SomeSteps(*four), want));
  EXPECT_GT(error, Difference(SomeSteps(*eight), want));
  EXPECT_LT(four->metadata().weight_bytes, mixed->metadata().weight_bytes);
  EXPECT_LT(mixed->metadata().weight_bytes, eight->metadata().weight_bytes);
}

TEST(CudaModel, WhatDoesNotFitIsRefusedByName) {
  TinyModel tiny;
  const auto field_of = [&](const ModelSource& source) -> std::string {
    try {
      LoadCudaModel(source);
    } catch (const CallerError& error) {
      return error.field();
    }
    return "nothing";
  };
  ModelSource source = tiny.Source("float16");
  source.kv_cache_dtype = KvCacheDType::kInt8;
  EXPECT_EQ(field_of(source), "kv_cache_dtype");
  source.kv_cache_dtype = KvCacheDType::kBFloat16;  // not that of the weights
  EXPECT_EQ(field_of(source), "kv_cache_dtype");
  source = tiny.Source("float16");
  source.quantization = WeightQuantization::kQ6;
  EXPECT_EQ(field_of(source), "quantization");
  source = tiny.Source("float64");
  EXPECT_EQ(field_of(source), "dtype");
  source = tiny.Source("float32");
  source.quantization = WeightQuantization::kQ4;
  EXPECT_EQ(field_of(source), "dtype");
  for (const char* device : {"cpu", "cuda:", "cuda:x", "cuda:-1", "cuda:99", "cuda0"}) {
    EXPECT_EQ(field_of(tiny.Source("float32", device)), "device") << device;
  }
  EXPECT_EQ(field_of(TinyModel("LlamaForCausalLM", R"("head_dim": 12)").Source()), "head_dim");
  EXPECT_EQ(field_of(TinyModel("LlamaForCausalLM", R"("head_dim": 520)").Source()), "head_dim");
  // Attention to wide heads has no windows and no soft caps.
  EXPECT_EQ(field_of(TinyModel("Gemma2ForCausalLM", R"("head_dim": 264)").Source()), "head_dim");
  const auto field_of_gemma = [&](const std::string& fields) {
    const std::string table = R"(, "vocab_size_per_layer_input": 50)";
    return field_of(TinyModel("Gemma4ForCausalLM", fields + table).Source());
  };
  EXPECT_EQ(field_of_gemma(R"("head_dim": 264, "global_head_dim": 16)"), "head_dim");
  EXPECT_EQ(field_of_gemma(R"("head_dim": 16, "global_head_dim": 36)"), "global_head_dim");
  EXPECT_EQ(field_of_gemma(R"("head_dim": 16, "hidden_size_per_layer_input": 12)"),
            "hidden_size_per_layer_input");
  EXPECT_EQ(field_of(TinyModel("LlamaForCausalLM", R"("intermediate_size": 44)").Source()),
            "intermediate_size");
  const auto field_of_streams = [&](const std::string& fields) {
    return field_of(TinyModel("Gemma3nForCausalLM", fields).Source());
  };
  EXPECT_EQ(field_of_streams(R"("laurel_rank": 12)"), "laurel_rank");
  EXPECT_EQ(field_of_streams(R"("intermediate_size": [48, 44])"), "intermediate_size");
  const auto field_of_bamba = [&](const std::string& fields) {
    return field_of(TinyModel("BambaForCausalLM", kMamba + (", " + fields)).Source());
  };
  EXPECT_EQ(field_of_bamba(R"("mamba_d_state": 18)"), "mamba_d_state");
  EXPECT_EQ(field_of_bamba(R"("mamba_d_state": 264)"), "mamba_d_state");
  EXPECT_EQ(field_of_bamba(R"("mamba_n_heads": 32)"), "mamba_d_head");
  const auto field_of_scan = [&](const std::string& fields) {
    return field_of(TinyModel("MambaForCausalLM", fields).Source());
  };
  EXPECT_EQ(field_of_scan(R"("state_size": 18)"), "state_size");
  EXPECT_EQ(field_of_scan(R"("time_step_rank": 12)"), "time_step_rank");
  EXPECT_EQ(field_of_scan(R"("intermediate_size": 44)"), "intermediate_size");
  EXPECT_EQ(field_of(TinyModel("LagunaForCausalLM", R"("head_dim": 8)").Source()),
            "num_attention_heads");  // rows of gates of heads are vectors
  EXPECT_EQ(field_of(TinyModel("LagunaForCausalLM",
                               R"("head_dim": 8, "num_attention_heads_per_layer": [8, 12])")
                         .Source()),
            "num_attention_heads_per_layer");
  // By the names of the family, and of blocks that there are.
  const auto field_of_blocks = [&](const std::string& fields) {
    return field_of(TinyModel("NemotronHForCausalLM", fields).Source());
  };
  EXPECT_EQ(field_of_blocks(R"("hybrid_override_pattern": "M-", "ssm_state_size": 18)"),
            "ssm_state_size");
  EXPECT_EQ(field_of_blocks(R"("hybrid_override_pattern": "M-", "mamba_head_dim": 6)"),
            "mamba_head_dim");
  EXPECT_EQ(field_of_blocks(R"("hybrid_override_pattern": "M-", "intermediate_size": 44)"),
            "intermediate_size");
  EXPECT_EQ(field_of_blocks(R"("hybrid_override_pattern": "ME", "intermediate_size": 44)"),
            "nothing");
}

TEST(CudaModel, MetadataSaysWhatItTakes) {
  TinyModel tiny;
  const auto model = LoadCudaModel(tiny.Source("float16"));
  const ModelMetadata& metadata = model->metadata();
  EXPECT_EQ(metadata.vocab_size, 50);
  EXPECT_EQ(metadata.context_window_size, 256);
  EXPECT_EQ(metadata.kv_bytes_per_token, 2 * 2 * 2 * 8 * 2);  // layers, k and v, heads, size, bytes
  ASSERT_TRUE(metadata.free_memory_bytes.has_value());
  const int64_t before = kernels::cuda::GetDeviceInfo(0).free_bytes;
  constexpr int64_t kRows = 4096;
  constexpr int64_t kSequences = 256;
  constexpr int64_t kPages = 1000;
  model->Allocate(kPages, kRows, kSequences);
  const int64_t used = before - kernels::cuda::GetDeviceInfo(0).free_bytes;
  const int64_t promised = *metadata.free_memory_bytes -
                           kPages * kKvPageSize * metadata.kv_bytes_per_token -
                           kRows * metadata.workspace_bytes_per_token -
                           kSequences * metadata.workspace_bytes_per_sequence;
  // A GPU hands out memory in pieces of 2 MB, and cuBLASLt's handle takes some of it.
  const int64_t rounding = kernels::cuda::GetDeviceInfo(0).is_emulated ? 0 : 32 << 20;
  EXPECT_GE(before - used + rounding, promised);
}

// ---- Bits ----

TEST(CudaModel, ARowIsTheSameInEveryBatch) {
  for (const auto& [architecture, fields] :
       WithKindsOfLayers({{"Qwen2ForCausalLM", R"("head_dim": 16)"},
                          {"Qwen3MoeForCausalLM", kQwenExperts},
                          {"GptOssForCausalLM", kGptOssExperts}})) {
    SCOPED_TRACE(architecture);
    TinyModel tiny(architecture, fields);
    CheckThatARowIsTheSameInEveryBatch(*tiny.OnDevice("bfloat16"));
  }
}

// The rows of a draft, alone, with decode rows (replayed from a graph at the end) and with a
// prompt.
TEST(CudaModel, TheRowsOfADraftAreThoseOfStepsOfTheirOwn) {
  const std::vector<int32_t> draft = SomeTokens(7, 6);
  for (const auto& [architecture, fields] :
       WithKindsOfLayers({{"Gemma2ForCausalLM", R"("head_dim": 16)"},  // with windows
                          {"Qwen3ForCausalLM", R"("head_dim": 16)"},
                          {"GptOssForCausalLM", kGptOssExperts}})) {
    TinyModel tiny(architecture, fields);
    const auto model = tiny.OnDevice("bfloat16");
    const auto prefilled = [&](int64_t index) {
      TestSequence sequence(index);
      Logits(*model, TestBatch().Add(sequence, SomeTokens(13 + index, 2)));
      return sequence;
    };
    TestSequence single = prefilled(0);
    std::vector<float> want;
    for (int32_t token : draft) {
      const std::vector<float> logits = Logits(*model, TestBatch().Add(single, {token}));
      want.insert(want.end(), logits.begin(), logits.end());
    }
    for (int with = 0; with < 5; ++with) {
      TestSequence drafting = prefilled(0);
      TestSequence other = prefilled(1);
      TestBatch batch;
      batch.AddRowsAlone(drafting, draft);
      if (with > 0) batch.Add(other, {3});
      TestSequence prompt(2);
      if (with == 1) batch.Add(prompt, SomeTokens(20, 4));
      std::vector<float> logits = Logits(*model, batch);
      logits.resize(want.size());
      EXPECT_EQ(logits, want) << architecture << " " << with;
    }
  }
}

// Steps of three decode rows, as often as graphs need to be recorded and replayed.
std::vector<std::vector<float>> DecodeSteps(Model& model, int num_steps) {
  std::vector<TestSequence> sequences;
  for (int64_t i = 0; i < 3; ++i) {
    sequences.emplace_back(i);
    Logits(model, TestBatch().Add(sequences.back(), SomeTokens(9 + 2 * i, 5)));
  }
  std::vector<std::vector<float>> all;
  for (int step = 0; step < num_steps; ++step) {
    TestBatch batch;
    for (TestSequence& sequence : sequences) batch.Add(sequence, {step});
    all.push_back(Logits(model, batch));
  }
  return all;
}

TEST(CudaModel, ReplayedStepsHaveTheBitsOfTheFirstOnes) {
  for (const auto& [architecture, fields] : WithKindsOfLayers(
           {{"Gemma2ForCausalLM", R"("head_dim": 16)"}, {"Qwen3MoeForCausalLM", kQwenExperts}})) {
    TinyModel tiny(architecture, fields);
    const auto model = tiny.OnDevice("float16");
    const auto first = DecodeSteps(*model, 4);
    EXPECT_EQ(DecodeSteps(*model, 4), first) << architecture;  // all of them from graphs
  }
}

// Dependent launches are only on GPUs that know them; elsewhere the models are the same.
TEST(CudaModel, DependentLaunchesChangeNoBits) {
  for (const auto& [architecture, fields] : WithKindsOfLayers({{"Qwen3ForCausalLM", ""}})) {
    TinyModel tiny(architecture, fields);
    const auto usual = DecodeSteps(*tiny.OnDevice("bfloat16"), 5);
    setenv("MLC_NATIVE_CUDA_DEPENDENT_LAUNCH", "0", 1);
    EXPECT_EQ(DecodeSteps(*tiny.OnDevice("bfloat16"), 5), usual) << architecture;
    unsetenv("MLC_NATIVE_CUDA_DEPENDENT_LAUNCH");
  }
}

TEST(CudaModel, CopiedPagesHoldTheSame) {
  for (const auto& [architecture, fields] :
       {std::pair{"LlamaForCausalLM", ""}, {"Gemma4ForCausalLM", kGemma4Inputs}}) {
    TinyModel tiny(architecture, fields);
    const auto model = tiny.OnDevice();
    TestSequence a(0);
    Logits(*model, TestBatch().Add(a, SomeTokens(20, 1)));
    TestSequence b(1);
    Logits(*model, TestBatch().Add(b, SomeTokens(20, 2)));  // which the copies replace
    model->CopyPages(std::vector<PageCopy>{{a.pages[0], b.pages[0]}, {a.pages[1], b.pages[1]}});
    b.length = a.length;
    EXPECT_EQ(Logits(*model, TestBatch().Add(a, {9})), Logits(*model, TestBatch().Add(b, {9})))
        << architecture;
  }
}

TEST(CudaModel, TwoOfThemShareADevice) {
  TinyModel tiny;
  const auto one = tiny.OnDevice();
  const std::vector<float> want = SomeSteps(*one);
  const auto two = tiny.OnDevice();
  EXPECT_EQ(SomeSteps(*two), want);
  EXPECT_EQ(SomeSteps(*one), want);
}

}  // namespace
}  // namespace mlc_native
