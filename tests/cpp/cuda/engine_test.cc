// The engine on a CudaModel: the same requests as on the CPU's decoder, with the same answers.
#include "mlc_native/engine.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include <nlohmann/json.hpp>

#include "cuda/model_driver.h"
#include "tokenizer/logprob_json.h"

namespace mlc_native {
namespace {

constexpr int64_t kFreeBytes = int64_t{1} << 30;

struct Answer {
  std::vector<std::vector<int32_t>> tokens;  // of each sequence
  std::vector<std::string> logprobs;
  std::vector<SampleResult> prompt;  // with prompt_logprobs
  std::string error;
  bool is_final = false;

  void Add(const RequestStreamOutput& output) {
    is_final = is_final || output.is_final();
    if (!output.error_message.empty()) error = output.error_message;
    if (output.prompt_logprobs) prompt = output.prompt_logprobs->tokens;
    tokens.resize(std::max(tokens.size(), output.group.size()));
    for (size_t i = 0; i < output.group.size(); ++i) {
      const SequenceDelta& delta = output.group[i];
      tokens[i].insert(tokens[i].end(), delta.token_ids.begin(), delta.token_ids.end());
      for (const SampleResult& result : delta.logprobs) {
        logprobs.push_back(LogprobJson(result, delta.token_table.get()));
      }
    }
  }
};

class CudaEngine : public ::testing::Test {
 protected:
  static std::unique_ptr<Engine> MakeEngine(std::unique_ptr<Model> model,
                                            std::map<std::string, Answer>* answers,
                                            EngineConfig config = {}) {
    config.max_num_sequence = 4;
    config.prefill_chunk_size = 16;
    if (!config.max_total_sequence_length) config.max_total_sequence_length = 320;
    EngineOptions options;
    options.request_stream_callback = [answers](const std::vector<RequestStreamOutput>& outputs) {
      for (const RequestStreamOutput& output : outputs) (*answers)[output.request_id].Add(output);
    };
    const EngineConfig resolved = ResolveEngineConfig(config, model->metadata(), kFreeBytes);
    return Engine::FromModel(std::move(model), resolved, {}, nullptr, options);
  }

  static void Add(Engine& engine, const std::string& id, const std::vector<int32_t>& prompt,
                  const GenerationConfig& config) {
    engine.AddRequest(engine.CreateRequest(id, {TokenData{prompt}}, config));
  }

  static int64_t Metric(const Engine& engine, const char* name) {
    return nlohmann::json::parse(engine.JSONMetrics()).at(name);
  }
  static int64_t NumAccepted(const Engine& engine) {
    const auto metrics = nlohmann::json::parse(engine.JSONMetrics());
    return metrics.at("spec_decode").at("num_accepted_tokens");
  }

  // Of all kinds of requests at once, more than run at a time.
  static std::map<std::string, Answer> Serve(std::unique_ptr<Model> model,
                                             const EngineConfig& config = {},
                                             int64_t* num_accepted = nullptr) {
    std::map<std::string, Answer> answers;
    const auto engine = MakeEngine(std::move(model), &answers, config);
    GenerationConfig greedy;
    greedy.temperature = 0;
    greedy.max_tokens = 8;
    Add(*engine, "greedy", SomeTokens(21, 1), greedy);
    GenerationConfig changed = greedy;
    changed.frequency_penalty = 0.3;
    changed.repetition_penalty = 1.2;
    changed.logit_bias = {{7, 0.2}};
    Add(*engine, "penalties", SomeTokens(21, 1), changed);
    changed = greedy;
    changed.logprobs = true;
    changed.top_logprobs = 2;
    changed.stop_token_ids = {11};
    Add(*engine, "logprobs", SomeTokens(5, 2), changed);
    changed = greedy;
    changed.prompt_logprobs = 3;
    Add(*engine, "scored", SomeTokens(40, 4), changed);
    changed = greedy;
    changed.temperature = 1;
    changed.top_p = 0.8;
    changed.seed = 3;
    changed.n = 2;
    Add(*engine, "sampled", SomeTokens(9, 3), changed);
    Add(*engine, "again", SomeTokens(21, 1), greedy);
    while (!engine->Empty()) engine->Step();
    engine->AuditPages();
    if (num_accepted != nullptr) *num_accepted = NumAccepted(*engine);
    return answers;
  }
};

TEST_F(CudaEngine, AnswersAreTheCpus) {
  TinyModel tiny;
  auto want = Serve(LoadModel(tiny.Source("float32", "cpu")));
  auto got = Serve(LoadCudaModel(tiny.Source()));
  ASSERT_EQ(got.size(), want.size());
  for (auto& [id, answer] : want) {
    EXPECT_EQ(got[id].tokens, answer.tokens) << id;
    EXPECT_EQ(got[id].error, "") << id;
    EXPECT_TRUE(got[id].is_final) << id;
  }
  EXPECT_EQ(got["again"].tokens, got["greedy"].tokens);
  EXPECT_EQ(got["logprobs"].logprobs.size(), want["logprobs"].logprobs.size());
  ASSERT_EQ(want["scored"].prompt.size(), 40);
  ASSERT_EQ(got["scored"].prompt.size(), 40);
  for (size_t i = 1; i < 40; ++i) {
    const SampleResult& one = got["scored"].prompt[i];
    const SampleResult& other = want["scored"].prompt[i];
    EXPECT_EQ(one.token.token_id, other.token.token_id);
    EXPECT_NEAR(one.token.logprob, other.token.logprob, 1e-4);
    ASSERT_EQ(one.top_logprobs.size(), 3);
    EXPECT_EQ(one.top_logprobs[0].token_id, other.top_logprobs[0].token_id);
    EXPECT_NEAR(one.top_logprobs[0].logprob, other.top_logprobs[0].logprob, 1e-4);
  }
}

TEST_F(CudaEngine, DraftsDoNotChangeAnswers) {
  TinyModel tiny("LlamaForCausalLM", R"("head_dim": 16)");
  const auto load = [&] { return LoadCudaModel(tiny.Source("bfloat16")); };
  auto want = Serve(load());
  EngineConfig config;
  config.speculative_mode = SpeculativeMode::kNGram;
  config.prompt_lookup_min = 1;
  config.spec_draft_length = 4;
  int64_t num_accepted = 0;
  auto got = Serve(load(), config, &num_accepted);
  EXPECT_GT(num_accepted, 0);
  ASSERT_EQ(got.size(), want.size());
  for (auto& [id, answer] : want) {
    EXPECT_EQ(got[id].tokens, answer.tokens) << id;
    EXPECT_EQ(got[id].logprobs, answer.logprobs) << id;
    EXPECT_EQ(got[id].error, "") << id;
    EXPECT_TRUE(got[id].is_final) << id;
  }
}

// Pages are shared, copied, given up and filled again, of layers with pages of several sizes, some
// of which read those of others.
TEST_F(CudaEngine, AnswersOfGemma4AreTheCpus) {
  for (const char* fields : {kGemma4Dense, kGemma4Inputs}) {
    TinyModel tiny("Gemma4ForCausalLM", fields);
    auto want = Serve(LoadModel(tiny.Source("float32", "cpu")));
    auto got = Serve(LoadCudaModel(tiny.Source()));
    ASSERT_EQ(got.size(), want.size());
    for (auto& [id, answer] : want) {
      EXPECT_EQ(got[id].tokens, answer.tokens) << id << fields;
      EXPECT_EQ(got[id].error, "") << id;
    }
  }
}

TEST_F(CudaEngine, PreemptionAndCachedPrefixesChangeNoAnswerOfGemma4) {
  TinyModel tiny("Gemma4ForCausalLM", kGemma4Inputs);
  GenerationConfig greedy;
  greedy.temperature = 0;
  greedy.max_tokens = 26;
  // Prompts with the same beginning, in a pool of so many tokens.
  const auto serve = [&](int64_t pool, PrefixCacheMode mode,
                         std::map<std::string, Answer>* answers) {
    EngineConfig config;
    config.max_total_sequence_length = pool;
    config.max_single_sequence_length = 96;
    config.prefix_cache_mode = mode;
    auto engine = MakeEngine(LoadCudaModel(tiny.Source()), answers, config);
    for (int32_t i = 0; i < 4; ++i) {
      std::vector<int32_t> prompt = SomeTokens(33, 1);
      prompt.push_back(i);
      Add(*engine, std::to_string(i), prompt, greedy);
    }
    while (!engine->Empty()) engine->Step();
    engine->AuditPages();
    return engine;
  };
  std::map<std::string, Answer> want, got;
  const auto roomy = serve(640, PrefixCacheMode::kDisable, &want);
  EXPECT_EQ(Metric(*roomy, "num_preemptions"), 0);
  const auto tight = serve(144, PrefixCacheMode::kRadix, &got);
  EXPECT_GT(Metric(*tight, "num_preemptions"), 0);
  EXPECT_GT(Metric(*tight, "prefix_cache_hits"), 0);
  for (auto& [id, answer] : want) {
    EXPECT_EQ(answer.tokens[0].size(), 26u) << id;
    EXPECT_EQ(got[id].tokens, answer.tokens) << id;
  }
}

// MLC_NATIVE_TEST_DEMO_MODEL names the folder where the tests were built on another machine.
std::string DemoModel() {
  const char* folder = std::getenv("MLC_NATIVE_TEST_DEMO_MODEL");
  return folder != nullptr ? folder : DEMO_MODEL;
}

TEST_F(CudaEngine, TheDemoModelAnswersLikeOnTheCpu) {
  std::vector<std::vector<int32_t>> answers;
  for (const char* device : {"cpu", "cuda:0"}) {
    const ModelSource source{.path = DemoModel(), .device = device, .dtype = "float32"};
    std::map<std::string, Answer> outputs;
    const auto engine =
        MakeEngine(source.device == "cpu" ? LoadModel(source) : LoadCudaModel(source), &outputs);
    GenerationConfig greedy;
    greedy.temperature = 0;
    greedy.max_tokens = 6;
    Add(*engine, "question", SomeTokens(10, 1), greedy);
    while (!engine->Empty()) engine->Step();
    answers.push_back(outputs["question"].tokens[0]);
  }
  EXPECT_EQ(answers[0].size(), 6);
  EXPECT_EQ(answers[1], answers[0]);
}

}  // namespace
}  // namespace mlc_native
