// Prompts with rows in place of tokens on a CudaModel: answers are those of the CPU's decoder, in
// chunks, beside others, behind cached rows and of steps in flight.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "cuda/model_driver.h"
#include "mlc_native/engine.h"

namespace mlc_native {
namespace {

using RowAnswers = std::map<std::string, std::vector<int32_t>>;

// Of the size of embeddings.
EmbeddingData SomeRows(int64_t num_rows, int64_t width, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> values(-1, 1);
  auto rows = std::make_shared<std::vector<float>>();
  for (int64_t i = 0; i < num_rows * width; ++i) rows->push_back(values(random));
  return {.num_rows = num_rows, .values = std::move(rows)};
}

// Prompts with rows within a chunk, across chunks and at both ends, and one of tokens, while
// others decode; then the first one again, of which all but the end is cached.
RowAnswers AnswerPromptsWithRows(std::unique_ptr<Model> model) {
  RowAnswers answers;
  std::string errors;
  EngineConfig config;
  config.max_num_sequence = 4;
  config.prefill_chunk_size = 16;
  config.max_total_sequence_length = 320;
  EngineOptions options;
  options.request_stream_callback = [&](const std::vector<RequestStreamOutput>& outputs) {
    for (const RequestStreamOutput& output : outputs) {
      errors += output.error_message;
      for (const SequenceDelta& delta : output.group) {
        std::vector<int32_t>& answer = answers[output.request_id];
        answer.insert(answer.end(), delta.token_ids.begin(), delta.token_ids.end());
      }
    }
  };
  const EngineConfig resolved = ResolveEngineConfig(config, model->metadata(), int64_t{1} << 30);
  const auto engine = Engine::FromModel(std::move(model), resolved, {}, nullptr, options);
  const int64_t width = engine->request_limits().input_size;
  GenerationConfig greedy;
  greedy.temperature = 0;
  greedy.max_tokens = 12;
  const auto add = [&](const std::string& id, std::vector<Data> inputs) {
    engine->AddRequest(engine->CreateRequest(id, std::move(inputs), greedy));
  };
  const auto within = [&] {
    return std::vector<Data>{TokenData{SomeTokens(4, 1)}, SomeRows(7, width, 1),
                             TokenData{SomeTokens(3, 2)}};
  };
  add("within", within());
  for (int step = 0; step < 4; ++step) engine->Step();
  add("tokens", {TokenData{SomeTokens(21, 3)}});
  add("across", {TokenData{SomeTokens(2, 4)}, SomeRows(37, width, 2), TokenData{SomeTokens(1, 5)}});
  add("at the ends", {SomeRows(5, width, 3), TokenData{SomeTokens(9, 6)}, SomeRows(3, width, 4)});
  while (!engine->Empty()) engine->Step();
  add("again", within());
  while (!engine->Empty()) engine->Step();
  engine->AuditPages();
  EXPECT_EQ(errors, "");
  EXPECT_EQ(answers.size(), 5u);
  EXPECT_EQ(answers["again"], answers["within"]);
  return answers;
}

// A multiplier of embeddings that rows have in them already, and one that they have not.
TEST(CudaEngineInputRows, AreAnsweredAsOnTheCpu) {
  const std::pair<const char*, const char*> models[] = {
      {"LlamaForCausalLM", ""},
      {"Gemma2ForCausalLM", R"("head_dim": 16)"},
      {"GraniteForCausalLM", R"("residual_multiplier": 0.4, "embedding_multiplier": 3)"}};
  for (const auto& [architecture, fields] : models) {
    SCOPED_TRACE(architecture);
    TinyModel tiny(architecture, fields);
    EXPECT_EQ(AnswerPromptsWithRows(LoadCudaModel(tiny.Source())),
              AnswerPromptsWithRows(LoadModel(tiny.Source("float32", "cpu"))));
  }
}

// The device computes the single rows of a batch first, which the engine mostly puts there.
TEST(CudaEngineInputRows, KeepTheirPlacesBehindSingleRows) {
  TinyModel tiny;
  const auto logits = [](std::unique_ptr<Model> model) {
    TestSequence running(0), prompt(1);
    Logits(*model, TestBatch().Add(running, SomeTokens(5, 1)));
    std::vector<int32_t> tokens = SomeTokens(9, 2);
    std::fill_n(tokens.begin() + 3, 4, 0);
    const EmbeddingData data = SomeRows(4, model->metadata().input_size, 5);
    const InputRows rows{.first_row = 3, .num_rows = 4, .values = data.values->data()};
    const TestBatch mixed = TestBatch().Add(prompt, tokens).Add(running, {7});
    ForwardBatch batch = mixed.batch();
    batch.input_rows = {&rows, 1};
    const LogitsView view = model->Forward(batch);
    return std::vector<float>(view.data, view.data + view.num_rows * view.vocab_size);
  };
  EXPECT_LT(Difference(logits(tiny.OnDevice()), logits(tiny.OnCpu())), 1e-4);
}

TEST(CudaEngineInputRows, AreNotOfModelsThatAddPositions) {
  TinyModel tiny("GPT2LMHeadModel");
  EXPECT_EQ(LoadCudaModel(tiny.Source())->metadata().input_size, 0);
}

#ifdef FAKE_NCCL
TEST(CudaEngineInputRows, AreAnsweredByTwoDevices) {
  setenv("MLC_NATIVE_NCCL_LIB", FAKE_NCCL, 1);
  TinyModel tiny;
  ModelSource source = tiny.Source();
  const RowAnswers want = AnswerPromptsWithRows(LoadCudaModel(source));
  source.tensor_parallel_shards = 2;
  EXPECT_EQ(AnswerPromptsWithRows(LoadCudaModel(source)), want);
  unsetenv("MLC_NATIVE_NCCL_LIB");
}
#endif

}  // namespace
}  // namespace mlc_native
