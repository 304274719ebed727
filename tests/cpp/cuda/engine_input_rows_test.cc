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

// Of Qwen3VLForConditionalGeneration: places of three numbers, and a part of rows that a layer
// adds.
constexpr char kPlacesAndParts[] =
    R"("head_dim": 16, "vision_config": {"deepstack_visual_indexes": [3]},
       "rope_parameters": {"rope_type": "default", "mrope_section": [4, 2, 2]})";

using RowAnswers = std::map<std::string, std::vector<int32_t>>;

// Of the size of embeddings.
EmbeddingData SomeValues(int64_t num_rows, int64_t width, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> values(-1, 1);
  auto rows = std::make_shared<std::vector<float>>();
  for (int64_t i = 0; i < num_rows * width; ++i) rows->push_back(values(random));
  return {.num_rows = num_rows, .values = std::move(rows)};
}

EmbeddingData SomeRows(int64_t num_rows, const RequestLimits& limits, uint32_t seed) {
  EmbeddingData data = SomeValues(num_rows, limits.input_size, seed);
  if (!limits.row_positions) return data;
  std::mt19937 random(seed);
  std::uniform_int_distribution<int32_t> places(0, static_cast<int32_t>(num_rows) - 1);
  for (int64_t i = 0; i < num_rows; ++i) {
    data.positions.push_back({places(random), places(random), places(random)});
  }
  data.advance = num_rows / 2;
  return data;
}

// Prompts with rows within a chunk, across chunks (where rows may be computed by themselves) and at
// both ends, and one of tokens, while others decode; then the first one again, of which all but the
// end is cached.
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
  const RequestLimits limits = engine->request_limits();
  GenerationConfig greedy;
  greedy.temperature = 0;
  greedy.max_tokens = 12;
  const auto add = [&](const std::string& id, std::vector<Data> inputs) {
    engine->AddRequest(engine->CreateRequest(id, std::move(inputs), greedy));
  };
  const auto within = [&] {
    return std::vector<Data>{TokenData{SomeTokens(4, 1)}, SomeRows(7, limits, 1),
                             TokenData{SomeTokens(3, 2)}};
  };
  add("within", within());
  for (int step = 0; step < 4; ++step) engine->Step();
  add("tokens", {TokenData{SomeTokens(21, 3)}});
  const int64_t many = limits.max_whole_rows.value_or(37);
  add("across",
      {TokenData{SomeTokens(2, 4)}, SomeRows(many, limits, 2), TokenData{SomeTokens(1, 5)}});
  add("at the ends", {SomeRows(5, limits, 3), TokenData{SomeTokens(9, 6)}, SomeRows(3, limits, 4)});
  while (!engine->Empty()) engine->Step();
  add("again", within());
  while (!engine->Empty()) engine->Step();
  engine->AuditPages();
  EXPECT_EQ(errors, "");
  EXPECT_EQ(answers.size(), 5u);
  EXPECT_EQ(answers["again"], answers["within"]);
  return answers;
}

// A multiplier of embeddings that rows have in them already, and one that they have not; positions
// that are added to rows, too; rows that see each other, with a window and without; places of three
// numbers; and parts of rows that layers add.
TEST(CudaEngineInputRows, AreAnsweredAsOnTheCpu) {
  const std::pair<const char*, const char*> models[] = {
      {"LlamaForCausalLM", ""},
      {"Gemma2ForCausalLM", R"("head_dim": 16)"},
      {"GraniteForCausalLM", R"("residual_multiplier": 0.4, "embedding_multiplier": 3)"},
      {"GPT2LMHeadModel", ""},
      {"OPTForCausalLM", ""},
      {"Gemma3ForConditionalGeneration",
       R"("head_dim": 16, "sliding_window": 9,
          "layer_types": ["sliding_attention", "full_attention"])"},
      {"Qwen2VLForConditionalGeneration",
       R"("rope_parameters": {"rope_type": "default", "mrope_section": [1, 2, 1]})"},
      {"Qwen3VLForConditionalGeneration",
       R"("head_dim": 16, "num_hidden_layers": 3,
          "vision_config": {"deepstack_visual_indexes": [3, 5]},
          "rope_parameters": {"rope_type": "default", "mrope_section": [4, 2, 2],
                              "mrope_interleaved": true})"},
      {"Qwen3_5ForConditionalGeneration",
       R"("rope_parameters": {"rope_type": "default", "mrope_section": [2, 1, 1],
                              "mrope_interleaved": true, "partial_rotary_factor": 0.5})"}};
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
    const EmbeddingData data = SomeValues(4, model->metadata().input_size, 5);
    const InputRows rows{.first_row = 3, .num_rows = 4, .values = data.values->data()};
    const TestBatch mixed = TestBatch().Add(prompt, tokens).Add(running, {7});
    ForwardBatch batch = mixed.batch();
    batch.input_rows = {&rows, 1};
    const LogitsView view = model->Forward(batch);
    return std::vector<float>(view.data, view.data + view.num_rows * view.vocab_size);
  };
  EXPECT_LT(Difference(logits(tiny.OnDevice()), logits(tiny.OnCpu())), 1e-4);
}

// On tensor cores, of which float32 has none: a step of one row, too, has its places and parts.
TEST(CudaEngineInputRows, OfSixteenBitsAreCloseToThoseOnTheCpu) {
  const std::pair<const char*, const char*> models[] = {
      {"Gemma3ForConditionalGeneration",
       R"("head_dim": 16, "sliding_window": 9,
          "layer_types": ["sliding_attention", "full_attention"])"},
      {"Qwen3VLForConditionalGeneration", kPlacesAndParts}};
  for (const auto& [architecture, fields] : models) {
    SCOPED_TRACE(architecture);
    TinyModel tiny(architecture, fields);
    const auto logits = [](std::unique_ptr<Model> model) {
      const ModelMetadata& metadata = model->metadata();
      std::vector<float> all;
      for (const int32_t num_rows : {20, 1}) {
        TestSequence sequence(0);
        std::vector<int32_t> tokens = SomeTokens(30, 2);
        std::fill_n(tokens.begin() + 3, num_rows, 0);
        const EmbeddingData data = SomeValues(num_rows, metadata.input_size, 5);
        std::vector<RowPosition> places;
        for (int32_t i = 0; i < 3 + num_rows; ++i) places.push_back({i, i / 2, i % 5});
        const InputRows rows{.first_row = 3, .num_rows = num_rows, .values = data.values->data()};
        const SequenceSlice slice{
            .num_tokens = 30,
            .block_table = sequence.pages,
            .of_prompt = true,
            .rope_positions = metadata.row_positions ? std::span(places) : std::span<RowPosition>(),
            .rope_shift = metadata.row_positions ? -1 : 0};
        std::vector<int32_t> wanted = {2, 4, 12, 29};
        const LogitsView view = model->Forward({.token_ids = tokens,
                                                .sequences = {&slice, 1},
                                                .logits_rows = wanted,
                                                .input_rows = {&rows, 1}});
        all.insert(all.end(), view.data, view.data + view.num_rows * view.vocab_size);
      }
      return all;
    };
    const auto want = logits(tiny.OnCpu());
    EXPECT_LT(Difference(logits(tiny.OnDevice()), want), 1e-4);
    EXPECT_LT(Difference(logits(tiny.OnDevice("bfloat16")), want), 0.2);
  }
}

#ifdef FAKE_NCCL
TEST(CudaEngineInputRows, AreAnsweredByTwoDevices) {
  setenv("MLC_NATIVE_NCCL_LIB", FAKE_NCCL, 1);
  const std::pair<const char*, const char*> models[] = {
      {"LlamaForCausalLM", ""}, {"Qwen3VLForConditionalGeneration", kPlacesAndParts}};
  for (const auto& [architecture, fields] : models) {
    SCOPED_TRACE(architecture);
    TinyModel tiny(architecture, fields);
    ModelSource source = tiny.Source();
    const RowAnswers want = AnswerPromptsWithRows(LoadCudaModel(source));
    source.tensor_parallel_shards = 2;
    EXPECT_EQ(AnswerPromptsWithRows(LoadCudaModel(source)), want);
  }
  unsetenv("MLC_NATIVE_NCCL_LIB");
}
#endif

}  // namespace
}  // namespace mlc_native
