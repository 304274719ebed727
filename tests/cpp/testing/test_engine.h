// TestEngine: an Engine over the fake model in a few words. Every output goes through a
// HistoryChecker and every step is audited. One thread.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fake_model/fake_model.h"
#include "mlc_native/engine.h"
#include "support/error.h"
#include "testing/fake_grammar.h"
#include "testing/history_checker.h"

namespace mlc_native::testing {

// A model that is waited for: the tokens of a step come out of that very step. For tests that count
// steps; others are run with steps that run ahead, too (core_run_ahead_test).
inline FakeModelOptions Waited(FakeModelOptions options = {}) {
  options.run_ahead = false;
  return options;
}

struct TestEngineSetup {
  FakeModelOptions model = {};
  int64_t max_num_sequence = 8;
  int64_t prefill_chunk_size = 64;
  int64_t num_pages = 256;
  std::optional<int64_t> max_total_sequence_length = {};  // default: all that the pages hold
  int64_t max_single_sequence_length = 1024;
  PrefillMode prefill_mode = PrefillMode::kHybrid;
  PrefixCacheMode prefix_cache_mode = PrefixCacheMode::kRadix;
  int64_t max_num_recycling_seqs = -1;
  std::vector<int32_t> eos_token_ids = {};
  std::shared_ptr<const TokenTable> token_table = nullptr;
  std::string model_folder = {};  // with the tokenizer.json of token_table, for jump-forward
  std::shared_ptr<EventTraceRecorder> trace = nullptr;
  ClockFunction now = Clock::now;
  FakeGrammarHooks grammar = {};
  std::optional<double> timeout_s = std::nullopt;
  std::optional<double> queue_timeout_s = std::nullopt;
  std::optional<int64_t> max_queue_length = std::nullopt;

  // What the engine reads from a resolved config; `config` keeps what else it says.
  EngineConfig Apply(EngineConfig config) const {
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
    return config;
  }
};

inline GenerationConfig Greedy(int64_t max_tokens, int32_t n = 1) {
  GenerationConfig config;
  config.temperature = 0;
  config.max_tokens = max_tokens;
  config.n = n;
  config.seed = 0;
  return config;
}

inline GenerationConfig Sampled(int64_t max_tokens, int64_t seed, int32_t n = 1) {
  GenerationConfig config = Greedy(max_tokens, n);
  config.temperature = 1;
  config.seed = seed;
  return config;
}

// `length` tokens that differ with `salt`.
inline std::vector<int32_t> Prompt(int64_t length, int32_t salt = 0) {
  std::vector<int32_t> tokens(length);
  for (int64_t i = 0; i < length; ++i) {
    tokens[i] = static_cast<int32_t>((i * 7 + salt * 13 + 1) % 200);
  }
  return tokens;
}

// What the fake model answers to a prompt when it is alone.
inline std::vector<int32_t> Oracle(const FakeModelOptions& model, std::vector<int32_t> history,
                                   int64_t num_tokens) {
  std::vector<int32_t> answer;
  for (int64_t i = 0; i < num_tokens; ++i) {
    answer.push_back(FakeModel::NextToken(model, history));
    history.push_back(answer.back());
  }
  return answer;
}

class TestEngine {
 public:
  explicit TestEngine(const TestEngineSetup& setup) {
    auto model = std::make_unique<FakeModel>(setup.model);
    model_ = model.get();
    ModelDefaults defaults;
    defaults.eos_token_ids = setup.eos_token_ids;
    EngineOptions options;
    options.trace_recorder = setup.trace;
    options.now = setup.now;
    options.create_grammar_compiler = FakeGrammarFactory(setup.grammar);
    options.request_stream_callback = [this](std::vector<RequestStreamOutput> outputs) {
      if (intercept) return intercept(std::move(outputs));
      Receive(outputs);
    };
    engine_ =
        Engine::FromModel(std::move(model), setup.Apply({}), defaults, setup.token_table, options);
  }

  // Called in the engine's callback, after the checker has seen the outputs.
  std::function<void(const std::vector<RequestStreamOutput>&)> on_outputs;
  // If set, called in the engine's callback instead of Receive.
  RequestStreamCallback intercept;

  void Receive(const std::vector<RequestStreamOutput>& outputs) {
    checker_.Receive(outputs);
    if (on_outputs) on_outputs(outputs);
  }

  void Add(const std::string& id, std::vector<int32_t> prompt, const GenerationConfig& config) {
    std::vector<Data> inputs;
    inputs.emplace_back(TokenData{std::move(prompt)});
    AddRequest(engine_->CreateRequest(id, std::move(inputs), config));
  }
  void AddRequest(RequestPtr request) {
    checker_.Add(*request);
    try {
      engine_->AddRequest(request);
    } catch (const QueueFull&) {
      checker_.Forget(request->id);
      throw;
    }
  }

  void Step() {
    engine_->Step();
    engine_->AuditPages();
    ++num_steps_;
  }

  // Steps until nothing is left; then no page may be used and every request final.
  void Run(int64_t max_steps = 100000) {
    while (!engine_->Empty() && max_steps-- > 0) Step();
    ExpectIdle();
  }

  void ExpectIdle() {
    EXPECT_TRUE(engine_->Empty()) << engine_->DebugCall("dump_state");
    engine_->AuditPages();
    checker_.ExpectAllFinal();
  }

  const SequenceHistory& Answer(const std::string& id, int sequence = 0) const {
    return checker_.of(id).sequences.at(sequence);
  }
  const RequestHistory& History(const std::string& id) const { return checker_.of(id); }

  Engine& engine() { return *engine_; }
  FakeModel& model() { return *model_; }
  HistoryChecker& checker() { return checker_; }
  int64_t num_steps() const { return num_steps_; }

 private:
  HistoryChecker checker_;
  std::unique_ptr<Engine> engine_;
  FakeModel* model_ = nullptr;  // owned by engine_
  int64_t num_steps_ = 0;
};

}  // namespace mlc_native::testing
