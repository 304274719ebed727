// Models on several devices of the emulated machine, with the fake NCCL: the same answers as on
// one, and what happens when a device fails or NCCL is not there.
#include "models/cuda/sharded_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <thread>
#include <tuple>

#include <nlohmann/json.hpp>

#include "cuda/emulator/emulator.h"
#include "cuda/fake_nccl/fake_nccl.h"
#include "cuda/model_driver.h"
#include "mlc_native/engine.h"
#include "models/draft_head.h"
#include "support/error.h"

namespace mlc_native {
namespace {

using kernels::cuda::DeviceError;
using ::testing::HasSubstr;

constexpr const char* kGroupedSizes =
    R"("hidden_size": 64, "head_dim": 32, "intermediate_size": 128)";

constexpr const char* kFourHeads =
    R"("num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 64)";

class ShardedModelTest : public ::testing::Test {
 protected:
  ShardedModelTest() { setenv("MLC_NATIVE_NCCL_LIB", FAKE_NCCL, 1); }
  ~ShardedModelTest() override {
    EXPECT_EQ(fake_nccl_num_comms(), 0);
    fake_nccl_refuse(0);
    unsetenv("MLC_NATIVE_NCCL_LIB");
    for (int i = 0; i < emulator::kNumDevices; ++i) mlc_native_emulated_lose_device(i, -1);
    mlc_native_emulated_allow_graphs(1);
    mlc_native_emulated_set_memory(int64_t{256} << 20);
    kernels::cuda::UseDevice(0);
  }

  static ModelSource On(int64_t number, ModelSource source) {
    source.tensor_parallel_shards = number;
    return source;
  }
  static ModelSource OnTwo(ModelSource source) { return On(2, std::move(source)); }
  static double DifferenceOnTwo(TinyModel& tiny, const ModelSource& source) {
    return Difference(SomeSteps(*tiny.Load(OnTwo(source))), SomeSteps(*tiny.Load(source)));
  }
  static std::string ErrorOf(const ModelSource& source, const std::string& field) {
    try {
      LoadCudaModel(source);
    } catch (const CallerError& error) {
      EXPECT_EQ(error.field(), field) << error.what();
      return error.what();
    }
    return "nothing";
  }
};

TEST_F(ShardedModelTest, LogitsAreThoseOfOneDevice) {
  const std::pair<const char*, std::string> models[] = {
      {"LlamaForCausalLM", ""},
      {"LlamaForCausalLM", R"("num_key_value_heads": 1)"},  // on both
      {"LlamaForCausalLM", R"("num_key_value_heads": 4, "tie_word_embeddings": true)"},
      {"Qwen2ForCausalLM", ""},                             // biases of q, k and v
      {"Qwen3ForCausalLM", R"("head_dim": 16)"},            // norms of heads
      {"Phi3ForCausalLM", ""},                              // joined tensors
      {"Starcoder2ForCausalLM", R"("sliding_window": 9)"},  // biases of sums, no gate
      {"CohereForCausalLM", R"("use_qk_norm": true)"},      // each head's own norm, parallel blocks
      {"StableLmForCausalLM", R"("qk_layernorm": true, "use_parallel_residual": true)"},
      {"Glm4ForCausalLM", R"("head_dim": 16)"},  // norms behind sums
      {"ApertusForCausalLM", ""},                // an activation with weights
      {"GraniteForCausalLM", R"("residual_multiplier": 0.4, "logits_scaling": 3)"},
      {"Qwen3MoeForCausalLM",
       R"("head_dim": 16, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32)"},
      {"PhimoeForCausalLM",  // a bias of the head
       R"("num_local_experts": 4, "num_experts_per_tok": 2, "lm_head_bias": true,
          "intermediate_size": 64)"},
      {"GptOssForCausalLM", kGptOssExperts},  // biases of experts, sinks
      {"BloomForCausalLM", ""},               // slopes of heads
      {"Lfm2ForCausalLM", kConvolution},
      {"BambaForCausalLM", kMamba},                    // a norm over all heads
      {"GraniteMoeHybridForCausalLM", kMambaExperts},  // over those of a group
      {"Olmo2ForCausalLM", ""},                        // norms over all heads
      {"Olmo3ForCausalLM", R"("num_key_value_heads": 1)"},
      {"MiniMaxM2ForCausalLM", R"("head_dim": 16, "rotary_dim": 8, "num_local_experts": 6,
          "num_experts_per_tok": 2)"}};
  for (const auto& [architecture, fields] : models) {
    TinyModel tiny(architecture, fields);
    EXPECT_LT(DifferenceOnTwo(tiny, tiny.Source()), 1e-5) << architecture << " " << fields;
  }
}

TEST_F(ShardedModelTest, SixteenAndFewerBitsAreNear) {
  TinyModel tiny("Qwen2ForCausalLM", kGroupedSizes);
  ModelSource source = tiny.Source("float16");
  EXPECT_LT(DifferenceOnTwo(tiny, source), 2e-3);
  source.quantization = WeightQuantization::kQ8;
  EXPECT_LT(DifferenceOnTwo(tiny, source), 2e-3);
  source.quantization = WeightQuantization::kQ4;
  EXPECT_LT(DifferenceOnTwo(tiny, source), 2e-3);
  source.kv_cache_dtype = KvCacheDType::kFloat8;
  EXPECT_LT(DifferenceOnTwo(tiny, source), 3e-2);
  EXPECT_LT(DifferenceOnTwo(tiny, tiny.Source("bfloat16")), 2e-2);
  TinyModel tied("LlamaForCausalLM",
                 std::string(kGroupedSizes) + R"(, "tie_word_embeddings": true)");
  source = tied.Source("float16");
  source.quantization = WeightQuantization::kQ8;  // so the table is stored once more, as floats
  EXPECT_LT(DifferenceOnTwo(tied, source), 2e-3);
}

TEST_F(ShardedModelTest, DevicesDivideWhatTheyKeep) {
  TinyModel tiny;
  const auto one = tiny.Load(tiny.Source("float16"));
  const auto two = tiny.Load(OnTwo(tiny.Source("float16")));
  const ModelMetadata& metadata = two->metadata();
  EXPECT_EQ(metadata.num_shards, 2);
  EXPECT_EQ(metadata.kv_bytes_per_token, one->metadata().kv_bytes_per_token / 2);
  EXPECT_LT(metadata.weight_bytes, 2 * one->metadata().weight_bytes);
  EXPECT_EQ(metadata.description.compute, "2 x emulator");
  EXPECT_EQ(metadata.hidden_size, one->metadata().hidden_size);
}

TEST_F(ShardedModelTest, OtherDevicesAreNotUsed) {
  TinyModel tiny;
  ModelSource source = OnTwo(tiny.Source());
  source.device = "cuda:2";
  for (const int other : {0, 1}) mlc_native_emulated_forget_context(other);
  std::thread([&] { LoadCudaModel(source); }).join();  // on which none is current
  for (const int other : {0, 1}) EXPECT_FALSE(mlc_native_emulated_has_context(other)) << other;
  for (const int own : {2, 3}) EXPECT_TRUE(mlc_native_emulated_has_context(own)) << own;
}

TEST_F(ShardedModelTest, PagesAreCopiedOnBoth) {
  TinyModel tiny;
  const auto model = tiny.Load(OnTwo(tiny.Source()));
  TestSequence first(0), second(1);
  Logits(*model, TestBatch().Add(first, SomeTokens(20, 1)));
  model->CopyPages(
      std::vector<PageCopy>{{first.pages[0], second.pages[0]}, {first.pages[1], second.pages[1]}});
  second.length = first.length;
  const std::vector<float> want = Logits(*model, TestBatch().Add(first, {3}));
  EXPECT_EQ(Logits(*model, TestBatch().Add(second, {3})), want);
}

// A row of a batch is added up with others and without them, by itself and as one of a prompt's.
TEST_F(ShardedModelTest, ARowHasTheSameBitsInEveryBatchOnFour) {
  for (const auto& [architecture, dtype] :
       {std::pair("LlamaForCausalLM", "float32"), std::pair("LlamaForCausalLM", "bfloat16"),
        std::pair("Olmo2ForCausalLM", "bfloat16")}) {
    TinyModel tiny(architecture, kFourHeads);
    ModelSource source = On(4, tiny.Source(dtype));
    source.deterministic = true;
    const auto model = tiny.Load(source);
    constexpr int64_t kSequences = 4;
    std::vector<TestSequence> sequences;
    for (int64_t i = 0; i < 2 * kSequences; ++i) sequences.emplace_back(i);
    std::vector<float> want;
    for (int64_t i = 0; i < kSequences; ++i) {
      TestSequence& sequence = sequences[static_cast<size_t>(i)];
      const auto seed = static_cast<int32_t>(i);
      Logits(*model, TestBatch().AddPrompt(sequence, SomeTokens(7 * i + 1, seed)));
      const std::vector<float> row = Logits(*model, TestBatch().Add(sequence, {3 + seed}));
      want.insert(want.end(), row.begin(), row.end());
    }
    TestBatch prompts;
    TestBatch together;
    for (int64_t i = 0; i < kSequences; ++i) {
      const auto seed = static_cast<int32_t>(i);
      prompts.AddPrompt(sequences[static_cast<size_t>(kSequences + i)],
                        SomeTokens(7 * i + 1, seed));
    }
    Logits(*model, prompts);
    for (int64_t i = 0; i < kSequences; ++i) {
      together.Add(sequences[static_cast<size_t>(kSequences + i)], {3 + static_cast<int32_t>(i)});
    }
    EXPECT_EQ(Logits(*model, together), want) << architecture << " in " << dtype;
  }
}

TEST_F(ShardedModelTest, LogitsOnThreeAndFourAreThoseOfOneDevice) {
  const std::tuple<int64_t, const char*, std::string> models[] = {
      {3, "LlamaForCausalLM", R"("num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 16,
                                 "hidden_size": 48, "intermediate_size": 72)"},
      {4, "LlamaForCausalLM", R"("num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
                                 "intermediate_size": 64, "tie_word_embeddings": true)"},
      {4, "LlamaForCausalLM", R"("num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
                                 "intermediate_size": 64, "vocab_size": 66)"},
      {4, "Qwen3ForCausalLM", R"("num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
                                 "intermediate_size": 64)"},
      {4, "Olmo2ForCausalLM", R"("num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
                                 "intermediate_size": 64)"},
      {4, "Starcoder2ForCausalLM", R"("num_attention_heads": 4, "num_key_value_heads": 1,
                                      "head_dim": 16, "intermediate_size": 64)"}};
  for (const auto& [number, architecture, fields] : models) {
    TinyModel tiny(architecture, fields);
    const auto model = tiny.Load(On(number, tiny.Source()));
    EXPECT_EQ(model->metadata().num_shards, number);
    EXPECT_LT(Difference(SomeSteps(*model), SomeSteps(*tiny.Load(tiny.Source()))), 1e-5)
        << architecture << " on " << number;
  }
}

// ---- What cannot be ----

TEST_F(ShardedModelTest, WhatDoesNotFitIsRefusedByName) {
  TinyModel tiny;
  constexpr const char* kField = "tensor_parallel_shards";
  ModelSource source = OnTwo(tiny.Source());
  source.device = "cuda:1";
  source.tensor_parallel_shards = 4;
  EXPECT_THAT(ErrorOf(source, kField), HasSubstr("[1, 3], the number of GPUs from \"cuda:1\" on"));
  source.device = "cuda:0";
  source.tensor_parallel_shards = 0;
  EXPECT_THAT(ErrorOf(source, kField), HasSubstr("got 0"));
  TinyModel odd("LlamaForCausalLM", R"("num_attention_heads": 3, "num_key_value_heads": 1,
                                       "head_dim": 8)");
  EXPECT_THAT(ErrorOf(OnTwo(odd.Source()), kField), HasSubstr("3 query heads"));
  source = OnTwo(tiny.Source("float32", "cpu"));
  EXPECT_THROW(LoadModel(source), InvalidConfig);
}

TEST_F(ShardedModelTest, WithoutNcclAnErrorSaysWhatToInstall) {
  TinyModel tiny;
  setenv("MLC_NATIVE_NCCL_LIB", "/nowhere/libnccl.so.2", 1);
  EXPECT_THAT(ErrorOf(OnTwo(tiny.Source()), "tensor_parallel_shards"),
              ::testing::AllOf(HasSubstr("/nowhere/libnccl.so.2"),
                               HasSubstr("pip install nvidia-nccl-cu13")));
  setenv("MLC_NATIVE_NCCL_LIB", FAKE_NCCL, 1);
  fake_nccl_refuse(1);
  EXPECT_THAT(ErrorOf(OnTwo(tiny.Source()), "tensor_parallel_shards"),
              HasSubstr("it cannot connect the GPUs: invalid usage"));
}

TEST_F(ShardedModelTest, TooLittleMemoryOnOneDeviceIsAConfigError) {
  TinyModel tiny;
  kernels::cuda::UseDevice(1);
  const int64_t left = int64_t{64} << 10;
  const kernels::cuda::DeviceMemory taken((int64_t{256} << 20) - left);
  kernels::cuda::UseDevice(0);
  EXPECT_THAT(ErrorOf(OnTwo(tiny.Source()), "device"), HasSubstr("one of the GPUs"));
}

// ---- The engine ----

struct Answer {
  std::vector<int32_t> tokens;
  std::string error;
  int num_finals = 0;
};

class Served {
 public:
  using MakeDraftModel = std::function<std::unique_ptr<Model>()>;

  explicit Served(std::unique_ptr<Model> model, EngineConfig config = {},
                  MakeDraftModel make_draft_model = {}) {
    config.max_num_sequence = 4;
    config.prefill_chunk_size = 16;
    config.max_total_sequence_length = 320;
    EngineOptions options;
    options.request_stream_callback = [this](const std::vector<RequestStreamOutput>& outputs) {
      for (const RequestStreamOutput& output : outputs) Take(output);
    };
    options.make_draft_model = std::move(make_draft_model);
    const EngineConfig resolved = ResolveEngineConfig(config, model->metadata(), int64_t{1} << 30);
    engine_ = Engine::FromModel(std::move(model), resolved, {}, nullptr, options);
  }

  // More requests than run at a time. The host takes part in the steps of one with penalties.
  const std::map<std::string, Answer>& Run(bool has_penalties = true) {
    GenerationConfig config;
    config.temperature = 0;
    config.max_tokens = has_penalties ? 12 : 20;
    Add("greedy", SomeTokens(21, 1), config);
    Add("short", SomeTokens(3, 5), config);
    config.logprobs = true;
    config.top_logprobs = 2;
    Add("logprobs", SomeTokens(5, 2), config);
    config.temperature = 1;
    config.seed = 3;
    config.logprobs = false;
    config.top_logprobs = 0;
    Add("sampled", SomeTokens(9, 3), config);
    if (has_penalties) config.frequency_penalty = 0.3;
    Add("penalties", SomeTokens(40, 4), config);
    while (!engine_->Empty()) engine_->Step();
    engine_->AuditPages();
    return answers_;
  }

  nlohmann::json Speculation() const {
    return nlohmann::json::parse(engine_->JSONMetrics()).at("spec_decode");
  }

 private:
  void Add(const std::string& id, const std::vector<int32_t>& prompt,
           const GenerationConfig& config) {
    answers_[id] = {};
    engine_->AddRequest(engine_->CreateRequest(id, {TokenData{prompt}}, config));
  }
  void Take(const RequestStreamOutput& output) {
    Answer& answer = answers_[output.request_id];
    answer.num_finals += output.is_final() ? 1 : 0;
    answer.error += output.error_message;
    for (const SequenceDelta& delta : output.group) {
      answer.tokens.insert(answer.tokens.end(), delta.token_ids.begin(), delta.token_ids.end());
    }
  }

  std::unique_ptr<Engine> engine_;
  std::map<std::string, Answer> answers_;
};

void ExpectSame(const std::map<std::string, Answer>& got,
                const std::map<std::string, Answer>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [id, answer] : want) {
    EXPECT_EQ(got.at(id).tokens, answer.tokens) << id;
    EXPECT_EQ(got.at(id).error, "") << id;
    EXPECT_EQ(got.at(id).num_finals, 1) << id;
  }
}

TEST_F(ShardedModelTest, TheEngineAnswersAsOnOneDevice) {
  TinyModel tiny;
  const auto want = Served(LoadCudaModel(tiny.Source())).Run();
  const int64_t graphs = mlc_native_emulated_counter(MLC_NATIVE_EMULATED_GRAPHS);
  ExpectSame(Served(LoadCudaModel(OnTwo(tiny.Source()))).Run(), want);
  EXPECT_GT(mlc_native_emulated_counter(MLC_NATIVE_EMULATED_GRAPHS), graphs);
  mlc_native_emulated_allow_graphs(0);
  ExpectSame(Served(LoadCudaModel(OnTwo(tiny.Source()))).Run(), want);
}

// A device that cannot replay a step does not meet others that do.
TEST_F(ShardedModelTest, AllDevicesHaveGraphsOrNone) {
  TinyModel tiny;
  const auto want = Served(LoadCudaModel(tiny.Source())).Run();
  for (const int device : {0, 1}) {
    mlc_native_emulated_allow_graphs_on(device, 0);
    const int64_t graphs = mlc_native_emulated_counter(MLC_NATIVE_EMULATED_GRAPHS);
    ExpectSame(Served(LoadCudaModel(OnTwo(tiny.Source()))).Run(), want);
    EXPECT_EQ(mlc_native_emulated_counter(MLC_NATIVE_EMULATED_GRAPHS), graphs);
    mlc_native_emulated_allow_graphs(1);
  }
}

TEST_F(ShardedModelTest, GuessesOfTheHostDoNotChangeAnswers) {
  TinyModel tiny("LlamaForCausalLM", kFourHeads);
  EngineConfig config;
  const ModelSource source = On(4, tiny.Source("bfloat16"));
  const auto want = Served(LoadCudaModel(source)).Run();
  config.speculative_mode = SpeculativeMode::kNGram;
  config.prompt_lookup_min = 1;
  config.spec_draft_length = 4;
  ExpectSame(Served(LoadCudaModel(source), config).Run(), want);
}

// The first device guesses, with the model itself as a whole, while the step before is in flight.
TEST_F(ShardedModelTest, GuessesOfADraftModelDoNotChangeAnswers) {
  TinyModel tiny("LlamaForCausalLM", kFourHeads);
  const ModelSource source = On(4, tiny.Source("bfloat16"));
  const auto want = Served(LoadCudaModel(source)).Run(false);
  EngineConfig config;
  config.speculative_mode = SpeculativeMode::kSmallDraft;
  config.spec_draft_length = 3;
  Served served(LoadCudaModel(source), config,
                [&] { return LoadCudaModel(tiny.Source("bfloat16")); });
  ExpectSame(served.Run(false), want);
  const nlohmann::json found = served.Speculation();
  EXPECT_EQ(found["num_failures"], 0);
  EXPECT_GT(found["num_steps_ahead"], 3);
  EXPECT_GT(found["num_accepted_tokens"], 5);
}

// Of a head with a head of the logits, and of one that has the model's.
TEST_F(ShardedModelTest, GuessesOfADraftHeadDoNotChangeAnswers) {
  TinyModel tiny("LlamaForCausalLM", kFourHeads);
  const ModelSource source = OnTwo(tiny.Source("bfloat16"));
  const auto want = Served(LoadCudaModel(source)).Run(false);
  for (const char* layer : {"midlayer.", "layers.0."}) {
    testing::TempFolder folder;
    testing::WriteTinyDraftHead(folder, tiny.Source().path, layer, "");
    EngineConfig config;
    const bool is_eagle3 = std::string(layer) == "midlayer.";
    config.speculative_mode = is_eagle3 ? SpeculativeMode::kEagle3 : SpeculativeMode::kEagle;
    config.spec_draft_length = 2;
    std::unique_ptr<Model> target = LoadCudaModel(source);
    ModelSource head = tiny.Source("bfloat16");
    head.path = folder.path();
    head.target = target.get();
    Served served(std::move(target), config, [&] { return LoadCudaModel(head); });
    ExpectSame(served.Run(false), want);
    const nlohmann::json found = served.Speculation();
    EXPECT_EQ(found["num_failures"], 0);
    EXPECT_GT(found["num_steps_ahead"], 2) << layer;
    EXPECT_GT(found["num_draft_tokens"], 20) << layer;
  }
}

// What a head guesses with the states and the head of a model on several devices.
TEST_F(ShardedModelTest, ADraftHeadGuessesAsOnOneDevice) {
  TinyModel tiny("LlamaForCausalLM", kFourHeads);
  testing::TempFolder folder;
  testing::WriteTinyDraftHead(folder, tiny.Source().path, "layers.0.", "");
  const auto guesses = [&](const ModelSource& source) {
    const auto target = tiny.Load(source);
    ModelSource of_head = tiny.Source();
    of_head.path = folder.path();
    of_head.target = target.get();
    DraftHead head(LoadCudaModel(of_head));
    head.Allocate(kTestPages, kTestRows, 1);
    const std::vector<int32_t>& streams = head.info().target_streams;
    constexpr int32_t kRows = 12;
    const auto states =
        target->MakeStateMemory(kRows, std::ssize(streams) * target->metadata().hidden_size);
    std::vector<int32_t> rows(kRows);
    for (int32_t i = 0; i < kRows; ++i) rows[static_cast<size_t>(i)] = i;
    TestSequence sequence(0);
    const std::vector<int32_t> tokens = SomeTokens(kRows + 1, 3);
    TestBatch batch;
    batch.Add(sequence, {tokens.begin(), tokens.end() - 1});
    ForwardBatch forward = batch.batch();
    forward.hidden = {.rows = rows, .streams = streams, .memory = states.get(), .places = rows};
    target->Forward(forward);
    TestSequence pages(1);
    const DraftWork work{.next_tokens = std::span(tokens).subspan(1),
                         .places = rows,
                         .position = 0,
                         .block_table = pages.pages,
                         .length = 5};
    return head.Propose({&work, 1}, *states);
  };
  const auto want = guesses(tiny.Source());
  EXPECT_EQ(want[0].size(), 5);
  for (const int64_t number : {2, 4}) EXPECT_EQ(guesses(On(number, tiny.Source())), want) << number;
}

// Head and model have the states that one device has, on the first one.
TEST_F(ShardedModelTest, HiddenStatesAreThoseOfOneDevice) {
  TinyModel tiny("LlamaForCausalLM", kFourHeads);
  const auto states_of = [&](const ModelSource& source) {
    const auto model = tiny.Load(source);
    TestSequence sequence(0);
    const std::vector<int32_t> streams{0, 1, static_cast<int32_t>(model->metadata().num_layers),
                                       static_cast<int32_t>(model->metadata().num_layers) + 1};
    const int64_t width = std::ssize(streams) * model->metadata().hidden_size;
    const auto memory = model->MakeStateMemory(6, width);
    const std::vector<int32_t> rows{0, 3, 8};
    const std::vector<int32_t> places{5, 0, 2};
    TestBatch batch;
    batch.Add(sequence, SomeTokens(9, 2));
    ForwardBatch forward = batch.batch();
    forward.hidden = {.rows = rows, .streams = streams, .memory = memory.get(), .places = places};
    model->Forward(forward);
    std::vector<float> all;
    for (const int32_t place : places) {
      std::vector<float> row(static_cast<size_t>(width));
      memory->Read(place, row);
      all.insert(all.end(), row.begin(), row.end());
    }
    return all;
  };
  const std::vector<float> want = states_of(tiny.Source());
  for (const int64_t number : {2, 4}) {
    EXPECT_LT(Difference(states_of(On(number, tiny.Source())), want), 1e-5) << number;
  }
}

TEST_F(ShardedModelTest, ALostDeviceEndsEachRequestOnce) {
  TinyModel tiny;
  for (const int device : {1, 0}) {
    for (const int64_t launches : {1, 25, 70, 150, 260}) {
      Served served(LoadCudaModel(OnTwo(tiny.Source())));
      mlc_native_emulated_lose_device(device, launches);
      for (int i = 0; i < 2; ++i) {  // and no request that comes later hangs
        int num_errors = 0;
        for (const auto& [id, answer] : served.Run()) {
          EXPECT_EQ(answer.num_finals, 1) << id << ", " << launches << " launches";
          if (answer.error.empty()) continue;
          EXPECT_THAT(answer.error, ::testing::AnyOf(HasSubstr("CUDA"), HasSubstr("NCCL")));
          ++num_errors;
        }
        EXPECT_GT(num_errors, 0) << launches;
      }
      mlc_native_emulated_lose_device(device, -1);
    }
  }
}

}  // namespace
}  // namespace mlc_native
