// TestEngine: an Engine over the fake model in a few words. Every output goes through a
// HistoryChecker and every step is audited. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fake_model/fake_model.h"
#include "mlc_native/engine.h"
#include "observe/metrics.h"
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
  EmbeddingDefaults embedding_defaults = {};
  std::shared_ptr<const TokenTable> token_table = nullptr;
  std::string model_folder = {};  // with the tokenizer.json of token_table, for jump-forward
  std::shared_ptr<EventTraceRecorder> trace = nullptr;
  ClockFunction now = Clock::now;
  FakeGrammarHooks grammar = {};
  std::optional<double> timeout_s = std::nullopt;
  std::optional<double> queue_timeout_s = std::nullopt;
  std::optional<int64_t> max_queue_length = std::nullopt;
  SpeculativeMode speculative_mode = SpeculativeMode::kDisable;
  int64_t spec_draft_length = 0;
  std::function<std::unique_ptr<Drafter>(const DraftSource&)> make_drafter = {};
  std::optional<FakeModelOptions> draft_model = std::nullopt;
  // Time decides nothing unless a test wants it.
  double grammar_step_budget_s = 3600;
  double grammar_time_limit_s = 3600;
  int64_t grammar_state_bytes = int64_t{1} << 50;
  std::shared_ptr<SlowCalls> slow_calls = nullptr;

  // What the engine reads from a resolved config; `config` keeps what else it says.
  EngineConfig Apply(EngineConfig config) const;
};

GenerationConfig Greedy(int64_t max_tokens, int32_t n = 1);
GenerationConfig Sampled(int64_t max_tokens, int64_t seed, int32_t n = 1);

// `length` tokens that differ with `salt`.
std::vector<int32_t> Prompt(int64_t length, int32_t salt = 0);

// Rows of one number, as the fake model reads them; and what they are in a history of it.
EmbeddingData Rows(std::vector<float> values);
std::vector<int32_t> TokensOfRows(const std::vector<float>& values);

// What the fake model answers to a prompt when it is alone.
std::vector<int32_t> Oracle(const FakeModelOptions& model, std::vector<int32_t> history,
                            int64_t num_tokens);

class TestEngine {
 public:
  explicit TestEngine(const TestEngineSetup& setup);
  ~TestEngine();

  // Called in the engine's callback, after the checker has seen the outputs.
  std::function<void(const std::vector<RequestStreamOutput>&)> on_outputs;
  // If set, called in the engine's callback instead of Receive.
  RequestStreamCallback intercept;

  void Receive(const std::vector<RequestStreamOutput>& outputs);

  void Add(const std::string& id, std::vector<int32_t> prompt, const GenerationConfig& config);
  void AddEmbedding(const std::string& id, std::vector<int32_t> prompt,
                    const EmbeddingConfig& config, const GenerationConfig& service = {});
  void AddInputs(const std::string& id, std::vector<Data> inputs, const GenerationConfig& config);
  void AddRequest(RequestPtr request);

  void Step();
  // Steps until nothing is left; then no page may be used and every request final.
  void Run(int64_t max_steps = 100000);
  void ExpectIdle();

  const SequenceHistory& Answer(const std::string& id, int sequence = 0) const {
    return checker_.of(id).sequences.at(sequence);
  }
  const RequestHistory& History(const std::string& id) const { return checker_.of(id); }

  // A value of JSONMetrics.
  int64_t Metric(const char* name) const;

  Engine& engine() { return *engine_; }
  FakeModel& model() { return *model_; }
  FakeModel& draft_model() { return *draft_model_; }
  HistoryChecker& checker() { return checker_; }
  const HistoryChecker& checker() const { return checker_; }
  int64_t num_steps() const { return num_steps_; }

 private:
  HistoryChecker checker_;
  std::unique_ptr<Engine> engine_;
  FakeModel* model_ = nullptr;  // owned by engine_, like the next one
  FakeModel* draft_model_ = nullptr;
  int64_t num_steps_ = 0;
};

}  // namespace mlc_native::testing
