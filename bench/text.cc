// Measures the way from logits to text: the cost per token of one sequence, without the model.
//
//   text                                      everything
//   text --benchmark_filter=StopStr           tokens per second of the stop string search
//   text --benchmark_filter=Sample            one row of a vocabulary of 151,936 (Qwen)
#include <benchmark/benchmark.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "sampling/sampler.h"
#include "tokenizer/stop_str_handler.h"
#include "tokenizer/text_streamer.h"

namespace mlc_native {
namespace {

constexpr size_t kVocabSize = 151936;
constexpr size_t kNumTokens = 4096;

// ---- text ----

// Words of 1 to 8 letters with a space in front, and sometimes the beginning of a stop string.
std::vector<std::string> AsciiTokens() {
  std::mt19937 random(1);
  std::vector<std::string> tokens(kNumTokens);
  for (std::string& token : tokens) {
    token.assign(1, random() % 16 == 0 ? '\n' : ' ');
    for (size_t n = 1 + random() % 8; n > 0; --n) token += static_cast<char>('a' + random() % 26);
  }
  return tokens;
}

// Emojis of four bytes, cut into tokens of one to three.
std::vector<std::string> EmojiTokens() {
  std::mt19937 random(2);
  std::string text;
  for (size_t i = 0; i < kNumTokens; ++i) text += "\xF0\x9F\xA4\x94";
  std::vector<std::string> tokens(kNumTokens);
  size_t at = 0;
  for (std::string& token : tokens) {
    token = text.substr(at, 1 + random() % 3);
    at += token.size();
  }
  return tokens;
}

void RunStopStrHandler(benchmark::State& state, const std::vector<std::string>& stop_strs,
                       const std::vector<std::string>& tokens) {
  const auto set = std::make_shared<const StopStrSet>(stop_strs);
  std::string text;
  std::vector<int32_t> ids;
  for (auto _ : state) {
    StopStrHandler handler(set);
    for (size_t i = 0; i < tokens.size(); ++i) {
      text.clear();
      ids.clear();
      handler.Put(static_cast<int32_t>(i), tokens[i], &text, &ids);
      benchmark::DoNotOptimize(text.data());
    }
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * tokens.size()));
}

void BM_StopStrHandler(benchmark::State& state) {
  RunStopStrHandler(state, {"\n\nUser:", "<|im_end|>", "</answer>"}, AsciiTokens());
}
BENCHMARK(BM_StopStrHandler);

void BM_StopStrHandlerOf1024(benchmark::State& state) {
  std::mt19937 random(3);
  std::vector<std::string> stop_strs(StopStrSet::kMaxStopStrs);
  for (std::string& stop_str : stop_strs) {
    for (int i = 0; i < 12; ++i) stop_str += static_cast<char>('a' + random() % 26);
  }
  RunStopStrHandler(state, stop_strs, AsciiTokens());
}
BENCHMARK(BM_StopStrHandlerOf1024);

// Every token continues a stop string that never comes.
void BM_StopStrHandlerHoldingBack(benchmark::State& state) {
  RunStopStrHandler(state, {std::string(1000, 'a') + "b"},
                    std::vector<std::string>(kNumTokens, "aaaa"));
}
BENCHMARK(BM_StopStrHandlerHoldingBack);

void RunTextStreamer(benchmark::State& state, const std::vector<std::string>& tokens) {
  std::string text;
  for (auto _ : state) {
    TextStreamer streamer;
    for (const std::string& token : tokens) {
      text.clear();
      streamer.Put(token, &text);
      benchmark::DoNotOptimize(text.data());
    }
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * tokens.size()));
}

void BM_TextStreamerAscii(benchmark::State& state) { RunTextStreamer(state, AsciiTokens()); }
BENCHMARK(BM_TextStreamerAscii);

void BM_TextStreamerEmoji(benchmark::State& state) { RunTextStreamer(state, EmojiTokens()); }
BENCHMARK(BM_TextStreamerEmoji);

void BM_TokenCountsAdd(benchmark::State& state) {
  std::mt19937 random(4);
  std::vector<int32_t> ids(100000);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % kVocabSize);
  for (auto _ : state) {
    TokenCounts counts;
    for (int32_t id : ids) counts.Add(id);
    benchmark::DoNotOptimize(counts.counts().data());
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * ids.size()));
}
BENCHMARK(BM_TokenCountsAdd);

// ---- one row of logits ----

// Deviation 3 is like a trained model's row, 0.3 is nearly flat.
void RunSampler(benchmark::State& state, GenerationConfig config, float deviation = 3.0f) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> logits(kVocabSize);
  for (float& logit : logits) logit = normal(random);
  TokenCounts generated;
  config.seed = 1;
  Sampler sampler;
  uint64_t position = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(sampler.Sample(logits, {&config, generated.counts(), 0, position++}));
  }
}

GenerationConfig Config(double temperature, double top_p = 1, int32_t top_k = 0, double min_p = 0) {
  GenerationConfig config;
  config.temperature = temperature;
  config.top_p = top_p;
  config.top_k = top_k;
  config.min_p = min_p;
  return config;
}

void BM_SampleGreedy(benchmark::State& state) { RunSampler(state, Config(0)); }
BENCHMARK(BM_SampleGreedy)->Unit(benchmark::kMicrosecond);

void BM_SampleTemperature(benchmark::State& state) { RunSampler(state, Config(0.7)); }
BENCHMARK(BM_SampleTemperature)->Unit(benchmark::kMicrosecond);

void BM_SampleTopK50(benchmark::State& state) { RunSampler(state, Config(0.7, 1, 50)); }
BENCHMARK(BM_SampleTopK50)->Unit(benchmark::kMicrosecond);

void BM_SampleTopK50TopP90(benchmark::State& state) { RunSampler(state, Config(0.7, 0.9, 50)); }
BENCHMARK(BM_SampleTopK50TopP90)->Unit(benchmark::kMicrosecond);

void BM_SampleTopP90(benchmark::State& state) { RunSampler(state, Config(0.7, 0.9)); }
BENCHMARK(BM_SampleTopP90)->Unit(benchmark::kMicrosecond);

void BM_SampleTopP90Flat(benchmark::State& state) { RunSampler(state, Config(1, 0.9), 0.3f); }
BENCHMARK(BM_SampleTopP90Flat)->Unit(benchmark::kMicrosecond);

void BM_SampleMinP(benchmark::State& state) { RunSampler(state, Config(0.7, 1, 0, 0.05)); }
BENCHMARK(BM_SampleMinP)->Unit(benchmark::kMicrosecond);

void BM_SampleGreedyLogprobs20(benchmark::State& state) {
  GenerationConfig config = Config(0);
  config.logprobs = true;
  config.top_logprobs = 20;
  RunSampler(state, config);
}
BENCHMARK(BM_SampleGreedyLogprobs20)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace mlc_native

BENCHMARK_MAIN();
