// Measures sampling per row of logits for each kind of request, with the vocabulary of Qwen3
// (151,936). The rows of a batch are in the last-level cache, as after a forward.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "sampling/sampler.h"

namespace mlc_native {
namespace {

constexpr int64_t kVocab = 151936;
constexpr int64_t kRows = 16;

void Sample(benchmark::State& state, const GenerationConfig& config) {
  std::minstd_rand random(1);
  std::normal_distribution<float> logit(0.0f, 3.0f);
  std::vector<float> rows(kRows * kVocab);
  for (float& value : rows) value = logit(random);
  TokenCounts generated;
  for (int i = 0; i < 500; ++i) generated.Add(static_cast<int32_t>(random() % kVocab));
  Sampler sampler;
  uint64_t position = 0;
  for (auto _ : state) {
    float* row = rows.data() + position % kRows * kVocab;
    benchmark::DoNotOptimize(sampler.Sample(
        {row, kVocab}, {.config = &config, .generated = generated.counts(), .position = position}));
    ++position;
  }
}

GenerationConfig Drawn(double top_p, int32_t top_k) {
  GenerationConfig config;
  config.temperature = 0.8;
  config.top_p = top_p;
  config.top_k = top_k;
  config.seed = 1;
  return config;
}

void RegisterAll() {
  GenerationConfig greedy;
  greedy.temperature = 0;
  GenerationConfig penalties = greedy;  // small, because they change the same rows repeatedly
  penalties.frequency_penalty = 1e-6;
  GenerationConfig logprobs = greedy;
  logprobs.logprobs = true;
  logprobs.top_logprobs = 5;
  const std::pair<const char*, GenerationConfig> kinds[] = {
      {"greedy", greedy},      {"temperature", Drawn(1, 0)},     {"top_p", Drawn(0.95, 0)},
      {"top_k", Drawn(1, 50)}, {"top_p_top_k", Drawn(0.95, 50)}, {"penalties", penalties},
      {"logprobs", logprobs},
  };
  for (const auto& [name, config] : kinds) {
    benchmark::RegisterBenchmark(name, [config = config](benchmark::State& state) {
      Sample(state, config);
    })->Unit(benchmark::kMicrosecond);
  }
}

}  // namespace
}  // namespace mlc_native

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  mlc_native::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
