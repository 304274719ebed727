// Steps on a device that follow guesses in flight: the same bits as one step after the other.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cuda/model_driver.h"
#include "mlc_native/engine.h"
#include "support/check.h"
#include "tokenizer/logprob_json.h"

namespace mlc_native {
namespace {

constexpr int64_t kPromptLength = 14;  // so that the guesses end behind a page

constexpr char kArchitecture[] = "LlamaForCausalLM";
constexpr char kFields[] = R"("head_dim": 16)";
constexpr char kPlaces[] =
    R"("head_dim": 16, "rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3]})";

GenerationConfig SampledWithLogprobs() {
  GenerationConfig config;
  config.temperature = 0.8;
  config.seed = 5;
  config.logprobs = true;
  return config;
}

TokenRow DrawAt(const GenerationConfig& config, int64_t position) {
  TokenRow row;
  row.config = &config;
  row.position = static_cast<uint64_t>(position);
  return row;
}

std::vector<DrawnToken> OneByOne(Model& model, const GenerationConfig& config, size_t count) {
  TestSequence sequence(0);
  std::vector<DrawnToken> drawn =
      Step(model, TestBatch().Add(sequence, SomeTokens(kPromptLength, 1)),
           {DrawAt(config, kPromptLength)});
  while (drawn.size() < count) {
    const int32_t last = drawn.back().result.token.token_id;
    const TokenRow row = DrawAt(config, sequence.length + 1);
    drawn.push_back(Step(model, TestBatch().Add(sequence, {last}), {row})[0]);
  }
  return drawn;
}

void ExpectSame(const DrawnToken& got, const DrawnToken& want) {
  EXPECT_EQ(got.error, "");
  EXPECT_EQ(got.result.token.token_id, want.result.token.token_id);
  EXPECT_EQ(got.result.token.logprob, want.result.token.logprob);
}

void ExpectToBeginWhereTheGuessesWereRight(const char* architecture, const char* fields = kFields) {
  constexpr int32_t kNumGuesses = 3;
  constexpr int32_t kGuessPlace = 40;
  TinyModel tiny(architecture, fields);
  const GenerationConfig config = SampledWithLogprobs();
  const auto reference = tiny.OnDevice("bfloat16");
  const std::vector<DrawnToken> want = OneByOne(*reference, config, 8);
  const auto token = [&](size_t i) { return want[i].result.token.token_id; };
  for (int32_t num_right = 0; num_right <= kNumGuesses; ++num_right) {
    SCOPED_TRACE(num_right);
    const auto model = tiny.OnDevice("bfloat16");
    const auto memory = model->MakeTokenMemory(64);
    StepQueue& queue = *model->step_queue();
    // What the next step guesses, on the device.
    const std::vector<int32_t> guess = {token(static_cast<size_t>(num_right) + 2)};
    memory->Write(kGuessPlace, guess);
    TestSequence sequence(0);
    Step(*model, TestBatch().Add(sequence, SomeTokens(kPromptLength, 1)),
         {DrawAt(config, kPromptLength)});

    std::vector<int32_t> ids = {token(0)};
    for (int32_t i = 1; i <= kNumGuesses; ++i) {
      ids.push_back(i <= num_right ? token(static_cast<size_t>(i))
                                   : (token(static_cast<size_t>(i)) + 1) % 50);
    }
    const TokenBlock first{.place = 0, .num_guesses = kNumGuesses};
    SequenceSlice slice{.num_tokens = 1 + kNumGuesses,
                        .position = kPromptLength,
                        .block_table = sequence.pages,
                        .rows_alone = true,
                        .block = first};
    std::vector<int32_t> logits = {0, 1, 2, 3};
    std::vector<TokenRow> rows;
    for (int64_t i = 0; i <= kNumGuesses; ++i) {
      rows.push_back(DrawAt(config, kPromptLength + 1 + i));
    }
    queue.Forward({.token_ids = ids,
                   .sequences = {&slice, 1},
                   .logits_rows = logits,
                   .tokens = memory.get()});
    queue.Sample(rows);

    const std::vector<int32_t> next_ids = {TokenAt(first.next()), TokenAt(kGuessPlace)};
    slice = {.num_tokens = 2,
             .position = kPromptLength + 1,
             .block_table = sequence.pages,
             .rows_alone = true,
             .behind = first,
             .block = {.place = 20, .num_guesses = 1}};
    logits = {0, 1};
    rows.clear();
    for (int64_t i = 0; i < 2; ++i) {
      rows.push_back(DrawAt(config, kPromptLength + 2 + i));
      rows.back().behind = first.count();
    }
    queue.Forward({.token_ids = next_ids,
                   .sequences = {&slice, 1},
                   .logits_rows = logits,
                   .tokens = memory.get()});
    queue.Sample(rows);

    std::vector<DrawnToken> drawn = Collect(*model);
    ASSERT_EQ(drawn.size(), 1 + kNumGuesses);
    for (int32_t i = 0; i <= num_right; ++i) ExpectSame(drawn[i], want[i + 1]);
    for (int32_t i = 0; i < kNumGuesses; ++i) EXPECT_EQ(drawn[i].draft_token, ids[i + 1]);
    drawn = Collect(*model);
    ASSERT_EQ(drawn.size(), 2);
    ExpectSame(drawn[0], want[num_right + 2]);
    ExpectSame(drawn[1], want[num_right + 3]);
    EXPECT_EQ(drawn[0].draft_token, guess[0]);
    std::vector<int32_t> block(2);
    memory->Read(20, block);
    EXPECT_EQ(block, (std::vector<int32_t>{1, token(static_cast<size_t>(num_right) + 3)}));
  }
}

TEST(CudaStepsAhead, BeginWhereTheGuessesWereRight) {
  ExpectToBeginWhereTheGuessesWereRight(kArchitecture);
}

TEST(CudaStepsAhead, EmbedTheirPositionsWhichTheDeviceFinds) {
  ExpectToBeginWhereTheGuessesWereRight("OPTForCausalLM");
}

TEST(CudaStepsAhead, MoveThePlacesOfRopeAlong) {
  ExpectToBeginWhereTheGuessesWereRight("Qwen2VLForConditionalGeneration", kPlaces);
}

TEST(CudaStepsAhead, PlacesOutsideOfTheMemoryAreRefused) {
  TinyModel tiny(kArchitecture, kFields);
  const auto model = tiny.OnDevice();
  const auto memory = model->MakeTokenMemory(8);
  TestSequence sequence(0);
  const std::vector<int32_t> rows = {0};
  const auto forward = [&](int32_t id, TokenBlock behind, TokenBlock block) {
    const SequenceSlice slice{
        .num_tokens = 1, .block_table = sequence.pages, .behind = behind, .block = block};
    model->step_queue()->Forward({.token_ids = {&id, 1},
                                  .sequences = {&slice, 1},
                                  .logits_rows = rows,
                                  .tokens = memory.get()});
  };
  EXPECT_THROW(forward(TokenAt(8), {}, {}), InternalError);
  EXPECT_THROW(forward(1, {}, {.place = 6}), InternalError);
  EXPECT_THROW(forward(1, {.place = 7}, {}), InternalError);
  forward(TokenAt(7), {}, {.place = 5});
}

// What one engine answers to requests that share steps.
struct Answers {
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::vector<std::string>> logprobs;
  nlohmann::json spec_decode;
};

Answers Serve(TinyModel& tiny, int64_t draft_length) {
  const ModelSource source = tiny.Source("bfloat16");
  std::unique_ptr<Model> target = LoadCudaModel(source);
  EngineConfig config;
  config.max_num_sequence = 4;
  config.prefill_chunk_size = 16;
  config.max_total_sequence_length = 512;
  Answers answers;
  answers.tokens.resize(4);
  answers.logprobs.resize(4);
  EngineOptions options;
  options.request_stream_callback = [&](const std::vector<RequestStreamOutput>& outputs) {
    for (const RequestStreamOutput& output : outputs) {
      EXPECT_EQ(output.error_message, "");
      const size_t i = output.request_id.at(0) - '0';
      for (const SequenceDelta& delta : output.group) {
        answers.tokens[i].insert(answers.tokens[i].end(), delta.token_ids.begin(),
                                 delta.token_ids.end());
        for (const SampleResult& result : delta.logprobs) {
          answers.logprobs[i].push_back(LogprobJson(result, nullptr));
        }
      }
    }
  };
  if (draft_length > 0) {
    config.speculative_mode = SpeculativeMode::kSmallDraft;
    config.spec_draft_length = draft_length;
    options.make_draft_model = [&] { return LoadCudaModel(source); };  // itself
  }
  const EngineConfig resolved = ResolveEngineConfig(config, target->metadata(), int64_t{1} << 30);
  const auto engine = Engine::FromModel(std::move(target), resolved, {}, nullptr, options);
  for (int32_t i = 0; i < 4; ++i) {
    GenerationConfig sampled;
    sampled.temperature = 0.2 * i;
    sampled.seed = i;
    sampled.max_tokens = 24 + i;
    sampled.logprobs = i == 2;
    engine->AddRequest(
        engine->CreateRequest(std::to_string(i), {TokenData{SomeTokens(9 + i, i)}}, sampled));
  }
  while (!engine->Empty()) engine->Step();
  engine->AuditPages();
  answers.spec_decode =
      nlohmann::json::parse(engine->JSONMetrics()).value("spec_decode", nlohmann::json::object());
  return answers;
}

TEST(CudaStepsAhead, GuessesOfADraftModelDoNotChangeAnswers) {
  TinyModel tiny(kArchitecture, kFields);
  const Answers want = Serve(tiny, 0);
  const Answers got = Serve(tiny, 3);
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_EQ(got.logprobs, want.logprobs);
  EXPECT_EQ(got.spec_decode["num_failures"], 0);
  EXPECT_GT(got.spec_decode["num_steps_ahead"], 3);
  EXPECT_GT(got.spec_decode["num_accepted_tokens"], 5);
  EXPECT_GT(got.spec_decode["num_draft_tokens"], got.spec_decode["num_accepted_tokens"]);
}

}  // namespace
}  // namespace mlc_native
