// Measures grammars: masks and steps of a matcher at three places of an answer, and the compilation
// of a schema in this process, through the helper process, for the first time, and from the cache.
// The argument is the size of the vocabulary, which holds the bytes, artificial words of 2 to 10
// letters and, one in 32, runs of signs (a token with a quote is expensive inside of a string).
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <unordered_set>
#include <vector>

#include "grammar/backend.h"
#include "support/error.h"

namespace mlc_native {
namespace {

constexpr char kStopText[] = "</s>";

GrammarVocab MakeVocab(int64_t size) {
  constexpr std::string_view kLetters = "eeeeaaaiiootnnrsshldcumfpgwybk ETASIW";
  constexpr std::string_view kSigns = " ,.\"\":{}[]0123456789_-\n";
  GrammarVocab vocab;
  vocab.vocab_size = size;
  vocab.stop_token_ids = {static_cast<int32_t>(size - 1)};
  for (int byte = 0; byte < 256; ++byte) {
    vocab.token_bytes.emplace_back(1, static_cast<char>(byte));
  }
  std::mt19937 random(1);
  std::unordered_set<std::string> known;
  while (static_cast<int64_t>(vocab.token_bytes.size()) < size - 1) {
    std::string word(2 + random() % 9, ' ');
    const std::string_view alphabet = random() % 32 == 0 ? kSigns : kLetters;
    for (char& sign : word) sign = alphabet[random() % alphabet.size()];
    if (known.insert(word).second) vocab.token_bytes.push_back(word);
  }
  vocab.token_bytes.emplace_back(kStopText);
  return vocab;
}

// A schema that differs in `id`, so that it is not in the cache.
GrammarSpec Schema(int64_t id) {
  return {GrammarKind::kJsonSchema, R"({"type": "object", "properties": {"name)" +
                                        std::to_string(id) + R"(": {"type": "string"},
      "age": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}},
      "required": ["name)" + std::to_string(id) +
                                        R"(", "age", "tags"]})"};
}

// A matcher that has accepted `text`.
std::unique_ptr<GrammarMatcher> After(const GrammarVocab& vocab, const std::string& text) {
  const auto grammar = LoadGrammarBackend(vocab)->Compile(Schema(0), true);
  auto matcher = grammar->NewMatcher(16);
  for (char byte : text) {
    if (!matcher->AcceptToken(static_cast<unsigned char>(byte))) throw std::logic_error(text);
  }
  return matcher;
}

void BenchFillMask(benchmark::State& state, const std::string& text) {
  const GrammarVocab vocab = MakeVocab(state.range(0));
  const auto matcher = After(vocab, text);
  std::vector<int32_t> mask((vocab.vocab_size + 31) / 32);
  for (auto _ : state) benchmark::DoNotOptimize(matcher->FillMask(mask));
}
BENCHMARK_CAPTURE(BenchFillMask, forced, "")->Arg(2048)->Arg(150000);
BENCHMARK_CAPTURE(BenchFillMask, in_string, R"({"name0": "Ada)")->Arg(2048)->Arg(150000);
BENCHMARK_CAPTURE(BenchFillMask, after_digit, R"({"name0": "Ada", "age": 3)")
    ->Arg(2048)
    ->Arg(150000);

void BenchAcceptAndRollback(benchmark::State& state) {
  const auto matcher = After(MakeVocab(state.range(0)), R"({"name0": "Ada)");
  for (auto _ : state) {
    benchmark::DoNotOptimize(matcher->AcceptToken('x'));
    matcher->Rollback(1);
  }
}
BENCHMARK(BenchAcceptAndRollback)->Arg(2048)->Arg(150000);

void BenchJumpForward(benchmark::State& state) {
  const auto matcher = After(MakeVocab(state.range(0)), R"({"name0": "Ada")");
  for (auto _ : state) benchmark::DoNotOptimize(matcher->FindJumpForwardString());
}
BENCHMARK(BenchJumpForward)->Arg(2048)->Arg(150000);

void BenchCompileHere(benchmark::State& state) {
  const auto backend = LoadGrammarBackend(MakeVocab(state.range(0)));
  int64_t id = 0;
  for (auto _ : state) benchmark::DoNotOptimize(backend->Compile(Schema(id++), true));
}
BENCHMARK(BenchCompileHere)->Arg(2048)->Arg(150000)->Unit(benchmark::kMillisecond)->UseRealTime();

void BenchCompileIsolated(benchmark::State& state) {
  const auto compiler = CreateGrammarCompiler(MakeVocab(state.range(0)), {});
  int64_t id = 0;
  compiler->Compile(Schema(id++));
  for (auto _ : state) benchmark::DoNotOptimize(compiler->Compile(Schema(id++)));
}
BENCHMARK(BenchCompileIsolated)
    ->Arg(2048)
    ->Arg(150000)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

// Creates the compiler, starts its helper and compiles the first grammar.
void BenchFirstCompile(benchmark::State& state) {
  const GrammarVocab vocab = MakeVocab(state.range(0));
  for (auto _ : state) {
    benchmark::DoNotOptimize(CreateGrammarCompiler(vocab, {})->Compile(Schema(0)));
  }
}
BENCHMARK(BenchFirstCompile)->Arg(2048)->Arg(150000)->Unit(benchmark::kMillisecond)->UseRealTime();

void BenchCacheHit(benchmark::State& state) {
  const auto compiler = CreateGrammarCompiler(MakeVocab(state.range(0)), {});
  const GrammarSpec spec = Schema(0);
  compiler->Compile(spec);
  for (auto _ : state) benchmark::DoNotOptimize(compiler->Compile(spec));
}
BENCHMARK(BenchCacheHit)->Arg(2048)->Arg(150000);

}  // namespace
}  // namespace mlc_native

int main(int argc, char** argv) {
  try {
    mlc_native::LoadGrammarBackend(mlc_native::MakeVocab(300));
  } catch (const mlc_native::InvalidConfig& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
