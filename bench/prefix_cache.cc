// Measures the prefix cache.
//
//   MatchAndInsert/K    A prompt of 2,000 tokens, K of which are cached, starts, is inserted into a
//                       cache of 10,000 such sequences, and ends. The pool is full, so pages are
//                       reclaimed.
//   NoHits/C            Requests without a common token on a model that takes 5 us per row (faster
//                       than any CPU), with the cache if C = 1. The difference is the cost of the
//                       cache.
//
// Run it on an otherwise idle machine: build/bench/prefix_cache
#include "kv/prefix_cache.h"

#include <benchmark/benchmark.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "fake_model/fake_model.h"
#include "mlc_native/engine.h"
#include "request/request.h"

namespace mlc_native {
namespace {

using testing::FakeModel;
using testing::FakeModelOptions;

constexpr int64_t kNumSequences = 10000;
constexpr int64_t kPromptLength = 2000;

std::vector<int32_t> RandomTokens(std::mt19937* rng, int64_t length, int32_t vocab_size) {
  std::uniform_int_distribution<int32_t> token(0, vocab_size - 1);
  std::vector<int32_t> tokens(length);
  for (int32_t& id : tokens) id = token(*rng);
  return tokens;
}

// A full cache, and prompts whose first tokens are those of its sequences.
class FullCache {
 public:
  FullCache() : kv_(kNumSequences * (kPromptLength / 16) + 128, 16), cache_(&kv_, {}) {
    for (int64_t i = 0; i < kNumSequences; ++i) {
      prompts_.push_back(RandomTokens(&rng_, kPromptLength, 150000));
      Serve(prompts_.back());
    }
  }

  std::vector<int32_t> NewPrompt(int64_t num_cached) {
    std::vector<int32_t> prompt = RandomTokens(&rng_, kPromptLength, 150000);
    // The most recent half is certainly cached.
    const size_t index = kNumSequences / 2 + rng_() % (kNumSequences / 2);
    std::copy_n(prompts_[index].begin(), num_cached, prompt.begin());
    return prompt;
  }

  // Serves a prompt like the engine, without a model. Returns the number of cached tokens.
  int64_t Serve(const std::vector<int32_t>& prompt) {
    const auto prefix = cache_.Find(std::span(prompt).first(prompt.size() - 1));
    cache_.StartSequence(0, std::span(prompt).first(prefix.length));
    copies_.clear();
    kv_.Reserve(0, std::ssize(prompt) - prefix.length, &copies_);
    kv_.Commit(0, std::ssize(prompt) - prefix.length);
    cache_.Insert(0, prompt);
    kv_.RemoveSequence(0);
    return prefix.length;
  }

 private:
  std::mt19937 rng_{1};
  PagedKvCache kv_;
  PrefixCache cache_;
  std::vector<std::vector<int32_t>> prompts_;
  std::vector<PageCopy> copies_;
};

void MatchAndInsert(benchmark::State& state) {
  FullCache cache;
  int64_t num_cached = 0;
  for (auto _ : state) {
    state.PauseTiming();
    const std::vector<int32_t> prompt = cache.NewPrompt(state.range(0));
    state.ResumeTiming();
    num_cached += cache.Serve(prompt);
  }
  state.counters["cached"] =
      benchmark::Counter(static_cast<double>(num_cached), benchmark::Counter::kAvgIterations);
}
BENCHMARK(MatchAndInsert)
    ->Arg(0)
    ->Arg(1000)
    ->Arg(1990)
    ->Iterations(2000)
    ->Unit(benchmark::kMicrosecond);

std::unique_ptr<Engine> MakeEngine(bool with_cache) {
  FakeModelOptions options;
  options.vocab_size = 32000;
  options.history_window = 1;
  options.reuse_rows = true;
  options.us_per_row = 5;
  EngineConfig config;
  config.max_num_sequence = 8;
  config.prefill_chunk_size = 512;
  config.max_single_sequence_length = 2048;
  config.max_total_sequence_length = 8 * 2048;
  config.prefix_cache_mode = with_cache ? PrefixCacheMode::kRadix : PrefixCacheMode::kDisable;
  EngineOptions engine_options;
  engine_options.request_stream_callback = [](const std::vector<RequestStreamOutput>&) {};
  return Engine::FromModel(std::make_unique<FakeModel>(options), config, {}, nullptr,
                           engine_options);
}

void NoHits(benchmark::State& state) {
  const auto engine = MakeEngine(state.range(0) != 0);
  std::mt19937 rng(1);
  int64_t id = 0;
  for (auto _ : state) {
    state.PauseTiming();
    for (int i = 0; i < 8; ++i) {
      GenerationConfig config;
      config.temperature = 0;
      config.max_tokens = 16;
      config.seed = 1;
      engine->AddRequest(CreateRequest(std::to_string(id++),
                                       {TokenData{RandomTokens(&rng, 500, 32000)}}, config,
                                       engine->request_limits()));
    }
    state.ResumeTiming();
    while (!engine->Empty()) engine->Step();
  }
}
BENCHMARK(NoHits)->Arg(0)->Arg(1)->Iterations(20)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace mlc_native

BENCHMARK_MAIN();
