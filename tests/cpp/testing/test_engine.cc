#include "testing/test_engine.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/error.h"

namespace mlc_native::testing {

EngineConfig TestEngineSetup::Apply(EngineConfig config) const {
  if (!model_folder.empty()) config.model = model_folder;
  config.max_num_sequence = max_num_sequence;
  config.prefill_chunk_size = prefill_chunk_size;
  config.max_total_sequence_length = max_total_sequence_length.value_or(num_pages * kKvPageSize);
  config.max_single_sequence_length = max_single_sequence_length;
  config.prefill_mode = prefill_mode;
  config.prefix_cache_mode = prefix_cache_mode;
  config.prefix_cache_max_num_recycling_seqs = max_num_recycling_seqs;
  config.timeout_s = timeout_s;
  config.queue_timeout_s = queue_timeout_s;
  config.max_queue_length = max_queue_length;
  config.speculative_mode = speculative_mode;
  config.spec_draft_length = spec_draft_length;
  config.grammar_step_budget_s = grammar_step_budget_s;
  config.grammar_time_limit_s = grammar_time_limit_s;
  config.grammar_state_bytes = grammar_state_bytes;
  return config;
}

GenerationConfig Greedy(int64_t max_tokens, int32_t n) {
  GenerationConfig config;
  config.temperature = 0;
  config.max_tokens = max_tokens;
  config.n = n;
  config.seed = 0;
  return config;
}

GenerationConfig Sampled(int64_t max_tokens, int64_t seed, int32_t n) {
  GenerationConfig config = Greedy(max_tokens, n);
  config.temperature = 1;
  config.seed = seed;
  return config;
}

std::vector<int32_t> Prompt(int64_t length, int32_t salt) {
  std::vector<int32_t> tokens(length);
  for (int64_t i = 0; i < length; ++i) {
    tokens[i] = static_cast<int32_t>((i * 7 + salt * 13 + 1) % 200);
  }
  return tokens;
}

EmbeddingData Rows(std::vector<float> values) {
  const int64_t num_rows = std::ssize(values);
  return {.num_rows = num_rows,
          .values = std::make_shared<const std::vector<float>>(std::move(values))};
}

std::vector<int32_t> TokensOfRows(const std::vector<float>& values) {
  std::vector<int32_t> tokens;
  for (const float value : values) tokens.push_back(FakeModel::TokenOfRow(value));
  return tokens;
}

std::vector<int32_t> Oracle(const FakeModelOptions& model, std::vector<int32_t> history,
                            int64_t num_tokens) {
  std::vector<int32_t> answer;
  for (int64_t i = 0; i < num_tokens; ++i) {
    answer.push_back(FakeModel::NextToken(model, history));
    history.push_back(answer.back());
  }
  return answer;
}

TestEngine::TestEngine(const TestEngineSetup& setup) {
  auto model = std::make_unique<FakeModel>(setup.model);
  model_ = model.get();
  ModelDefaults defaults;
  defaults.eos_token_ids = setup.eos_token_ids;
  defaults.embedding = setup.embedding_defaults;
  EngineOptions options;
  options.trace_recorder = setup.trace;
  options.now = setup.now;
  options.make_drafter = setup.make_drafter;
  options.slow_calls = setup.slow_calls;
  if (setup.draft_model) {
    options.make_draft_model = [&] {
      auto draft_model = std::make_unique<FakeModel>(*setup.draft_model);
      draft_model_ = draft_model.get();
      return draft_model;
    };
  }
  options.create_grammar_compiler = FakeGrammarFactory(setup.grammar);
  options.request_stream_callback = [this](std::vector<RequestStreamOutput> outputs) {
    if (intercept) return intercept(std::move(outputs));
    Receive(outputs);
  };
  engine_ =
      Engine::FromModel(std::move(model), setup.Apply({}), defaults, setup.token_table, options);
}

TestEngine::~TestEngine() = default;

void TestEngine::Receive(const std::vector<RequestStreamOutput>& outputs) {
  checker_.Receive(outputs);
  if (on_outputs) on_outputs(outputs);
}

void TestEngine::Add(const std::string& id, std::vector<int32_t> prompt,
                     const GenerationConfig& config) {
  std::vector<Data> inputs;
  inputs.emplace_back(TokenData{std::move(prompt)});
  AddRequest(engine_->CreateRequest(id, std::move(inputs), config));
}

void TestEngine::AddInputs(const std::string& id, std::vector<Data> inputs,
                           const GenerationConfig& config) {
  AddRequest(engine_->CreateRequest(id, std::move(inputs), config));
}

void TestEngine::AddEmbedding(const std::string& id, std::vector<int32_t> prompt,
                              const EmbeddingConfig& config, const GenerationConfig& service) {
  std::vector<Data> inputs;
  inputs.emplace_back(TokenData{std::move(prompt)});
  AddRequest(engine_->CreateEmbeddingRequest(id, std::move(inputs), config, service));
}

void TestEngine::AddRequest(RequestPtr request) {
  checker_.Add(*request);
  try {
    engine_->AddRequest(request);
  } catch (const QueueFull&) {
    checker_.Forget(request->id);
    throw;
  }
}

int64_t TestEngine::Metric(const char* name) const {
  return nlohmann::json::parse(engine_->JSONMetrics())[name];
}

void TestEngine::Step() {
  engine_->Step();
  engine_->AuditPages();
  ++num_steps_;
}

void TestEngine::Run(int64_t max_steps) {
  while (!engine_->Empty() && max_steps-- > 0) Step();
  ExpectIdle();
}

void TestEngine::ExpectIdle() {
  EXPECT_TRUE(engine_->Empty()) << engine_->DebugCall("dump_state");
  engine_->AuditPages();
  checker_.ExpectAllFinal();
}

}  // namespace mlc_native::testing
